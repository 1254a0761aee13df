"""A PEFT adapter directory: adapter_config.json and adapter_model.safetensors.

    base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight   [rank, inputs]
    base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight   [outputs, rank]

A linear's output is increased by alpha / rank * B A x, and nothing else: what PEFT can do beyond that is refused.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from omniflow_roles.engines.checkpoints.findings import FindingCode, Findings, UnreadableError, and_more
from omniflow_roles.engines.checkpoints.json_files import read_object
from omniflow_roles.engines.checkpoints.report import LoraConfig, ModelKind, ModelReport
from omniflow_roles.engines.checkpoints.tensors import StoredTensor, WeightCount
from omniflow_roles.engines.checkpoints.weight_files import read_weights

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
INDEX = "adapter_model.safetensors.index.json"

_PART = re.compile(r"(?P<module>.+)\.lora_(?P<part>[AB])\.weight")
_PLAIN = "Train or export the adapter as plain LoRA of linear layers, without it."

_REFUSED: Mapping[str, str] = {
    "alpha_pattern": "scales modules differently",
    "fan_in_fan_out": "stores matrices transposed",
    "layer_replication": "adds layers to the model",
    "lora_bias": "adds a bias to the adapter",
    "modules_to_save": "replaces whole modules of the model",
    "rank_pattern": "gives modules different ranks",
    "target_parameters": "changes parameters that are no linear layers",
    "trainable_token_indices": "replaces embeddings",
    "use_dora": "is DoRA, which rescales the model's own weights",
}
"""Keys that, when set, make an adapter something that low-rank products beside the linears do not compute."""

_CHANGES_BASE = ("corda", "olora", "pissa")
"""Ways of initialising that subtract the adapter from the model's weights, so that it fits no unchanged model."""


def inspect_adapter(folder: Path) -> ModelReport:
    """The report of a directory that has an adapter_config.json."""
    findings = Findings()
    weights = read_weights(folder, findings, single=WEIGHTS, index=INDEX)
    lora: LoraConfig | None = None
    try:
        values = read_object(folder / CONFIG, FindingCode.BAD_CONFIG)
        modules = _modules(weights.tensors, findings)
        lora = _read_config(values, len(modules), findings)
        if lora is not None and weights.are_readable:
            _check_pairs(modules, lora.rank, findings)
    except UnreadableError as problem:
        findings.unreadable(problem)
    return ModelReport(
        path=str(folder),
        kind=ModelKind.LORA,
        lora=lora,
        weights=WeightCount.of(weights.tensors) if weights.are_readable else None,
        file_count=weights.file_count,
        stored_bytes=sum(tensor.size_bytes for tensor in weights.tensors),
        dtypes=weights.dtypes,
        findings=findings.in_order(),
    )


def _read_config(values: Mapping[str, Any], module_count: int, findings: Findings) -> LoraConfig | None:
    if (kind := values.get("peft_type")) != "LORA":
        findings.error(
            FindingCode.UNSUPPORTED_ADAPTER,
            f"{CONFIG}: peft_type",
            f"is {reprlib.repr(kind)}; only LORA is loaded",
            _PLAIN,
        )
        return None
    for key, reason in _REFUSED.items():
        if values.get(key):
            findings.error(FindingCode.UNSUPPORTED_ADAPTER, f"{CONFIG}: {key}", reason, _PLAIN)
    if values.get("bias", "none") != "none":
        findings.error(
            FindingCode.UNSUPPORTED_ADAPTER, f"{CONFIG}: bias", "changes the biases of the model's own layers", _PLAIN
        )
    initialised = values.get("init_lora_weights")
    if isinstance(initialised, str) and initialised.lower().startswith(_CHANGES_BASE):
        findings.error(
            FindingCode.UNSUPPORTED_ADAPTER,
            f"{CONFIG}: init_lora_weights",
            f"is {initialised!r}, which changed the model's own weights too",
            "Save it with PEFT's path_initial_model_for_weight_conversion, which makes it fit the unchanged model.",
        )
    return _sizes(values, module_count, findings)


def _sizes(values: Mapping[str, Any], module_count: int, findings: Findings) -> LoraConfig | None:
    rank, alpha, base = values.get("r"), values.get("lora_alpha"), values.get("base_model_name_or_path")
    for key, is_good in (
        ("r", type(rank) is int and rank > 0),
        ("lora_alpha", isinstance(alpha, int | float) and not isinstance(alpha, bool)),
    ):
        if not is_good:
            findings.error(
                FindingCode.BAD_CONFIG,
                f"{CONFIG}: {key}",
                f"is {reprlib.repr(values.get(key))}, and must be a number above 0",
                "Restore the configuration that the adapter was saved with.",
            )
            return None
    assert type(rank) is int and isinstance(alpha, int | float)
    return LoraConfig(
        base_model=base if isinstance(base, str) else "", rank=rank, alpha=float(alpha), module_count=module_count
    )


def _modules(tensors: Iterable[StoredTensor], findings: Findings) -> dict[str, dict[str, StoredTensor]]:
    """The parts `A` and `B` by module; other tensors are findings."""
    modules: dict[str, dict[str, StoredTensor]] = {}
    others = []
    for tensor in tensors:
        if found := _PART.fullmatch(tensor.name):
            modules.setdefault(found["module"], {})[found["part"]] = tensor
        else:
            others.append(tensor)
    if others:
        findings.error(
            FindingCode.UNSUPPORTED_ADAPTER,
            others[0].file,
            f"holds {others[0].name!r}, which is no part A or B of a linear layer{and_more(others)}",
            _PLAIN,
        )
    return modules


def _check_pairs(modules: Mapping[str, Mapping[str, StoredTensor]], rank: int, findings: Findings) -> None:
    if not modules:
        findings.error(FindingCode.MISSING_TENSOR, WEIGHTS, "holds no part A or B of a linear layer", _PLAIN)
    for module, parts in modules.items():
        if absent := sorted({"A", "B"} - set(parts)):
            findings.error(
                FindingCode.MISSING_TENSOR,
                WEIGHTS,
                f"does not hold part {absent[0]} of {module!r}",
                "Copy or download the adapter again.",
            )
            continue
        a, b = parts["A"], parts["B"]
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != rank or b.shape[1] != rank:
            findings.error(
                FindingCode.MISMATCHED_SHAPE,
                a.file,
                f"has the shapes {list(a.shape)} and {list(b.shape)} for {module!r}, which are not of rank {rank}",
                "Use adapter_config.json and weights of the same adapter.",
            )
            return  # all modules are alike
