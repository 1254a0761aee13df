"""Reads an adapter directory of PEFT for one model: every shape is checked before a tensor is read.

    base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight   [rank, in]    A
    base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight   [out, rank]   B
                     └──────── name in the model ───┘

Only safetensors: a pickle runs code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from omniflow_roles.engines.checkpoints.findings import UnreadableError
from omniflow_roles.engines.checkpoints.lora_adapter import DTYPES, PART, WEIGHTS
from omniflow_roles.engines.checkpoints.safetensors_header import read_header
from omniflow_roles.engines.checkpoints.tensors import StoredTensor
from omniflow_roles.engines.torch.lora_config import AdapterConfig, read_adapter_config, refuse

_PICKLE = "adapter_model.bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraMatrices:
    """What is added to one linear: `up @ down @ x`."""

    down: torch.Tensor
    """A, float32 [rank, in]."""
    up: torch.Tensor
    """B times the scale, float32 [out, rank]."""

    @property
    def rank(self) -> int:
        return len(self.down)


def read_adapter(folder: Path, linears: Mapping[str, tuple[int, int]], *, max_rank: int) -> dict[str, LoraMatrices]:
    """The matrices by the name of the linear that they belong to.

    `linears` are those of the model that adapters can change, with their sizes in and out. Raises INVALID_CONFIG, which
    names the file and the key or tensor.
    """
    config = read_adapter_config(folder)
    targets = config.targeted(linears)
    if not targets:
        refuse(config.file, "target_modules", "names no linear of this model that adapters can change")
    for linear in targets:
        if (rank := config.rank_of(linear)) > max_rank:
            refuse(config.file, "r", f"{linear} has rank {rank}; this engine takes up to {max_rank}")
    file = folder / WEIGHTS
    tensors = _tensors(file)
    _check(file, tensors, targets, config, linears)
    loaded = load_file(file)
    found = {}
    for linear in targets:
        down, up = (loaded[tensors[linear, part].name].float() for part in "AB")
        if not (down.isfinite().all() and up.isfinite().all()):
            refuse(file, linear, "has values that are not finite")
        found[linear] = LoraMatrices(down=down, up=up * config.scale_of(linear))
    return found


def _tensors(file: Path) -> dict[tuple[str, str], StoredTensor]:
    """By linear and part."""
    if not file.is_file():
        if file.with_name(_PICKLE).is_file():
            refuse(file.with_name(_PICKLE), "", f"is a pickle, which can run code: save the adapter as {WEIGHTS}")
        refuse(file, "", "is missing")
    try:
        stored = read_header(file)
    except UnreadableError as problem:
        refuse(file, "", problem.message)
    tensors = {}
    for tensor in stored:
        parts = PART.fullmatch(tensor.name)
        if parts is None:
            refuse(file, tensor.name, "is no part A or B of a linear's adapter")
        if tensor.dtype not in DTYPES:
            refuse(file, tensor.name, f"is stored as {tensor.dtype}; adapters are {', '.join(DTYPES)}")
        tensors[parts["linear"], parts["part"]] = tensor
    return tensors


def _check(
    file: Path,
    tensors: Mapping[tuple[str, str], StoredTensor],
    targets: list[str],
    config: AdapterConfig,
    linears: Mapping[str, tuple[int, int]],
) -> None:
    known = set(targets)
    for (linear, _), tensor in tensors.items():
        if linear not in linears:
            refuse(file, tensor.name, f"{linear} is no linear of this model that adapters can change")
        if linear not in known:
            refuse(file, tensor.name, f"{linear} is none of the target_modules of {config.file.name}")
    for linear in targets:
        rank = config.rank_of(linear)
        inputs, outputs = linears[linear]
        for part, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
            stored = tensors.get((linear, part))
            if stored is None:
                refuse(file, linear, f"part {part} is missing, though {config.file.name} targets it")
            if stored.shape != shape:
                refuse(
                    file, stored.name, f"has the shape {list(stored.shape)}; the model and its rank want {list(shape)}"
                )
