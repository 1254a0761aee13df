"""Linears of a loaded model with int8 weights, in place of those that it was loaded with.

    o_proj   Linear 576 → 576, float             ─▶  Int8Linear: int8 [576, 576], scales float32 [576]
    q_proj   Linear 576 → 576, k_proj, v_proj    ─▶  siblings that share one Int8Linear 576 → 960
    lm_head  Linear 576 → 49152, tied            ─▶  an Int8Linear of its own; the embedding stays as it is

Only modules that are exactly `torch.nn.Linear`: what derives from it does something else, and experts that are one parameter
with three dimensions are no linears. The model's other floats, and so its activations, keep their dtype. On a CPU with VNNI
float32 activations are as fast as bfloat16 ones here; bfloat16 halves the embedding, and the keys and values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.torch import int8
from omniflow_roles.engines.torch.siblings import families, share


class Int8Linear(nn.Module):  # type: ignore[misc]
    """A linear whose weights are int8 with a scale for each output channel. It has no `weight`, which code could mistake."""

    def __init__(self, *linears: nn.Linear) -> None:
        """Of linears of the same input: their outputs one after another."""
        super().__init__()
        weight = torch.cat([linear.weight.detach() for linear in linears])
        self.out_features, self.in_features = weight.shape
        self.route = int8.choose_route(weight.device, self.in_features)
        quantised, scales = int8.quantise_weight(weight, self.route)
        self.register_buffer("quantised", quantised)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", _joint_bias(linears))

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
    for name in [name for name in linears if not {name, name.rpartition(".")[2]}.isdisjoint(skip)]:
        del linears[name]
    for family in list(families(linears)):
        # Popped, so that their weights go as soon as they are replaced.
        members = [linears.pop(name) for name in family]
        weights += sum(linear.weight.numel() for linear in members)
        modules += len(members)
        for name, replacement in zip(family, _quantised(members), strict=True):
            folder, _, own = name.rpartition(".")
            setattr(model.get_submodule(folder), own, replacement)
    return Quantised(
        modules=modules,
        weights=weights,
        other_weights=sum(parameter.numel() for parameter in model.parameters()),
        freed_bytes=bytes_before - _tensor_bytes(model),
    )


def _quantised(linears: Sequence[nn.Linear]) -> Sequence[nn.Module]:
    if len({linear.in_features for linear in linears}) > 1 or len(linears) == 1:
        return [Int8Linear(linear) for linear in linears]
    return share(Int8Linear(*linears), linears)


def _joint_bias(linears: Sequence[nn.Linear]) -> torch.Tensor | None:
    """[out], zeros for the linears without one; None when none has."""
    if all(linear.bias is None for linear in linears):
        return None
    return torch.cat(
        [
            linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias.detach()
            for linear in linears
        ]
    )


def _tensor_bytes(model: Any) -> int:
    """Of parameters and buffers, tied ones once."""
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
