"""LoRA adapters of a model in memory: loaded and unloaded while it runs, each request with its own or none.

    adapters = LoraAdapters(model, max_adapters=8, max_rank=16)       the model stays as it is
    adapters.load("french", folder)        the linears that it targets are wrapped:  base(x) + B A x, for its tokens
    adapters.context.tokens = GroupedTokens.of(counts, [adapters.index("french"), NO_ADAPTER])
    model(...)                             a ragged batch [1, tokens]

Places are stacked for each wrapped linear, so that captured graphs read an adapter by its index; loading into a place that
was unloaded reuses its memory. Linears that no adapter has targeted yet are not wrapped and have no stacks: 8 places of
rank 16 for all linears of an 8-billion model would take 0.7 GB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_roles.engines.torch.linears import Int8Linear
from omniflow_roles.engines.torch.lora_files import LoraMatrices, read_adapter
from omniflow_roles.engines.torch.lora_tokens import GroupedTokens, LoraStacks, StackedTokens
from omniflow_roles.engines.torch.siblings import Sibling

_ADAPTABLE = (nn.Linear, Int8Linear, Sibling)
_EXPERTS = "experts"
"""Linears under such a module are given the tokens routed to them, not those of the step."""


class LoraContext:
    """What the wrapped linears of one model look at: the tokens of the next forward, None when none has an adapter."""

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        self.tokens: GroupedTokens | StackedTokens | None = None


class LoraLinear(nn.Module):  # type: ignore[misc]
    """A linear, of floats or int8, to whose output the adapters of a step's tokens add."""

    def __init__(self, base: nn.Module, context: LoraContext, stacks: LoraStacks) -> None:
        super().__init__()
        self.base = base
        self.in_features: int = base.in_features
        self.out_features: int = base.out_features
        self.stacks = stacks
        self._context = context

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[1, tokens, in] -> [1, tokens, out]."""
        output: torch.Tensor = self.base(hidden)
        tokens = self._context.tokens
        if tokens is not None:
            tokens.add_to(output.view(-1, self.out_features), hidden.reshape(-1, self.in_features), self.stacks)
        return output


class LoraAdapters:
    """The adapters of one model. Not thread-safe, and not to be changed while a forward runs."""

    def __init__(self, model: Any, *, max_adapters: int, max_rank: int) -> None:
        """`model` is on its device, and quantised already if it is to be."""
        embedding = model.get_input_embeddings().weight
        self.context = LoraContext()
        self.max_adapters = max_adapters
        self.max_rank = max_rank
        self.layout_version = 0
        """Grows when linears are wrapped: graphs captured before lack what these add."""
        self._model = model
        self._dtype: torch.dtype = embedding.dtype
        self._device: torch.device = embedding.device
        self._sizes = {name: (linear.in_features, linear.out_features) for name, linear in _adaptable(model)}
        self._wrapped: dict[str, LoraLinear] = {}
        self._places: dict[str, int] = {}

    @property
    def names(self) -> Mapping[str, int]:
        """Index of every loaded adapter, from 0 up to `max_adapters`, which stands for none in `StackedTokens`."""
        return dict(self._places)

    @property
    def size_bytes(self) -> int:
        """Of the stacks."""
        return sum(linear.stacks.size_bytes for linear in self._wrapped.values())

    def index(self, name: str) -> int:
        """Raises UNKNOWN_RESOURCE for an adapter that is not loaded."""
        try:
            return self._places[name]
        except KeyError:
            raise OmniFlowError(Reason.UNKNOWN_RESOURCE, f"no adapter {name!r} is loaded") from None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def load(self, name: str, folder: Path) -> int:
        """Loads an adapter directory and returns its index. What raises has changed nothing.

        Raises INVALID_CONFIG for files that do not fit this model, INVALID_FIELD for a name that is empty or taken, and
        POOL_EXHAUSTED when `max_adapters` are loaded.
        """
        if not name or name in self._places:
            raise invalid_field("adapter", f"{name!r} is loaded already" if name else "an adapter must have a name")
        free = set(range(self.max_adapters)) - set(self._places.values())
        if not free:
            raise OmniFlowError(
                Reason.POOL_EXHAUSTED, f"{self.max_adapters} adapters are loaded, which is all there is room for"
            )
        matrices = read_adapter(folder, self._sizes, max_rank=self.max_rank)
        stacks = {linear: self._stacks(linear) for linear in matrices}
        place = min(free)
        self._wrap({linear: stack for linear, stack in stacks.items() if linear not in self._wrapped})
        for linear, own in matrices.items():
            _write(stacks[linear], place, own)
        self._places[name] = place
        return place

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def unload(self, name: str) -> None:
        """Frees an adapter's place. No sequence may use it any more. Raises UNKNOWN_RESOURCE."""
        place = self.index(name)
        for linear in self._wrapped.values():
            _clear(linear.stacks, place)
        del self._places[name]

    def _stacks(self, linear: str) -> LoraStacks:
        if wrapped := self._wrapped.get(linear):
            return wrapped.stacks
        inputs, outputs = self._sizes[linear]
        return LoraStacks.zeros(
            self.max_adapters, self.max_rank, inputs, outputs, dtype=self._dtype, device=self._device
        )

    def _wrap(self, stacks: Mapping[str, LoraStacks]) -> None:
        for name, own in stacks.items():
            folder, _, child = name.rpartition(".")
            parent = self._model.get_submodule(folder)
            self._wrapped[name] = LoraLinear(getattr(parent, child), self.context, own)
            setattr(parent, child, self._wrapped[name])
        self.layout_version += bool(stacks)


def _adaptable(model: Any) -> Iterator[tuple[str, nn.Module]]:
    """The linears that are given every token of the step; the output layer is given those drawn from."""
    head = model.get_output_embeddings()
    found = ""
    for name, module in model.named_modules():
        is_inside = found and name.startswith(f"{found}.")  # what a linear of ours is made of
        if type(module) in _ADAPTABLE and module is not head and not is_inside and _EXPERTS not in name.split("."):
            found = name
            yield name, module


def _write(stacks: LoraStacks, place: int, matrices: LoraMatrices) -> None:
    stacks.down[place, : matrices.rank] = matrices.down
    stacks.up[place, :, : matrices.rank] = matrices.up
    stacks.ranks[place] = matrices.rank


def _clear(stacks: LoraStacks, place: int) -> None:
    if stacks.ranks[place]:
        stacks.down[place] = 0
        stacks.up[place] = 0
        stacks.ranks[place] = 0
