"""Adapter directories as PEFT writes them, with random matrices, and the same adapters merged into a model's weights."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
EVERY = (*ATTENTION, "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """What was written."""

    folder: Path
    matrices: Mapping[str, tuple[torch.Tensor, torch.Tensor]]
    """A and B by the linear's name."""
    scales: Mapping[str, float]

    def merge_into(self, model: Any) -> Any:
        """Adds scale · B A to the weights of a float model, which is returned."""
        with torch.no_grad():
            for name, (a, b) in self.matrices.items():
                model.get_submodule(name).weight += self.scales[name] * (b @ a)
        return model


def linears_of(model: Any, ends: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Sizes in and out of the linears whose names end so."""
    kinds = tuple(ends)
    return {
        name: (module.in_features, module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name.rpartition(".")[2] in kinds
    }


def write_adapter(
    folder: Path,
    linears: Mapping[str, tuple[int, int]],
    *,
    rank: int = 4,
    alpha: float = 8.0,
    ranks: Mapping[str, int] | None = None,
    alphas: Mapping[str, float] | None = None,
    seed: int = 0,
    **config: Any,
) -> Adapter:
    """An adapter of these linears. `ranks` and `alphas` are those of linears that differ, by name."""
    generator = torch.Generator().manual_seed(seed)
    matrices, scales = {}, {}
    for name, (inputs, outputs) in linears.items():
        own = (ranks or {}).get(name, rank)
        matrices[name] = (
            torch.randn(own, inputs, generator=generator) * 0.1,
            torch.randn(outputs, own, generator=generator) * 0.1,
        )
        scales[name] = (alphas or {}).get(name, alpha) / (math.sqrt(own) if config.get("use_rslora") else own)
    tensors = {}
    for name, (a, b) in matrices.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = a
        tensors[f"base_model.model.{name}.lora_B.weight"] = b
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    write_config(folder, {"r": rank, "lora_alpha": alpha, "target_modules": sorted(linears), **config})
    return Adapter(folder=folder, matrices=matrices, scales=scales)


def write_config(folder: Path, values: Mapping[str, Any]) -> None:
    """adapter_config.json with what PEFT always writes, and these values."""
    always = {
        "peft_type": "LORA",
        "base_model_name_or_path": "somewhere/model",
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_dropout": 0.05,
        "modules_to_save": None,
        "rank_pattern": {},
        "alpha_pattern": {},
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
    (folder / "adapter_config.json").write_text(json.dumps({**always, **values}))
