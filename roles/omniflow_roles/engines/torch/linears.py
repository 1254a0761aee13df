"""Linears of a loaded model with int8 weights, in place of those that it was loaded with.

    q_proj  Linear(576, 576)   float   ─▶  Int8Linear   weight int8 [576, 576], scales float32 [576]
    lm_head Linear(576, 49152) float, tied to the embedding   ─▶  Int8Linear of its own; the embedding stays as it is

Only modules that are exactly `torch.nn.Linear`: what derives from it does something else, and experts that are one parameter
with three dimensions are no linears. The model's other floats, and so its activations, keep their dtype. On a CPU with VNNI
float32 activations are as fast as bfloat16 ones here; bfloat16 halves the embedding, and the keys and values.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.torch import int8


class Int8Linear(nn.Module):  # type: ignore[misc]
    """A linear whose weights are int8 with a scale for each output channel. It has no `weight`, which code could mistake."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features: int = linear.in_features
        self.out_features: int = linear.out_features
        self.route = int8.choose_route(linear.weight.device, self.in_features)
        quantised, scales = int8.quantise_weight(linear.weight, self.route)
        self.register_buffer("quantised", quantised)
        self.register_buffer("scales", scales)
        self.bias: torch.Tensor | None = linear.bias

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., in] of a float dtype -> [..., out] of that dtype."""
        rows = hidden.reshape(-1, self.in_features)
        product = int8.multiply(rows, self.quantised, self.scales, self.route)
        if self.bias is not None:
            product += self.bias
        return product.view(*hidden.shape[:-1], self.out_features)

    def dequantised(self) -> torch.Tensor:
        """The weights that it multiplies by, float32 [out, in]."""
        return int8.dequantise_weight(self.quantised, self.scales, self.route)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, route={self.route}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """What was done to a model's weights."""

    modules: int
    weights: int
    """Elements that are int8 now; a head that was tied to the embedding counts as its own."""
    other_weights: int
    """Elements that stayed floats: embeddings, norms, biases, experts, what was skipped."""
    freed_bytes: int
    """Less memory than before; negative when a tied head's own copy takes more than the others gave."""

    @property
    def share(self) -> float:
        """Of the weights, 0 to 1."""
        return self.weights / max(1, self.weights + self.other_weights)


def quantise_linears(model: Any, *, bits: int = 8, skip: Collection[str] = ()) -> Quantised:
    """Replaces the linears of a model, which must be on its device already, one after another.

    `skip` has module names: whole ones such as `model.layers.0.mlp.down_proj`, or their last part. Quantise before
    adapters are installed. Raises INVALID_CONFIG for other than 8 bits, and for a name in `skip` that is no linear's.
    """
    if bits != 8:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"linears are quantised to 8 bits, not to {bits}")
    linears = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    unknown = set(skip) - linears.keys() - {name.rpartition(".")[2] for name in linears}
    if unknown:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"skip: {min(unknown)!r} is no linear of this model")
    bytes_before = _tensor_bytes(model)
    weights = modules = 0
    for name in list(linears):
        linear = linears.pop(name)  # the last reference but the model's, so that its weight goes when it is replaced
        folder, _, own = name.rpartition(".")
        if not {name, own}.isdisjoint(skip):
            continue
        setattr(model.get_submodule(folder), own, Int8Linear(linear))
        weights += linear.weight.numel()
        modules += 1
        del linear
    return Quantised(
        modules=modules,
        weights=weights,
        other_weights=sum(parameter.numel() for parameter in model.parameters()),
        freed_bytes=bytes_before - _tensor_bytes(model),
    )


def _tensor_bytes(model: Any) -> int:
    """Of parameters and buffers, tied ones once."""
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
