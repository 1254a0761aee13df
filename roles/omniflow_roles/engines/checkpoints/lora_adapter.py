"""A PEFT adapter directory: adapter_config.json and adapter_model.safetensors.

    base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight   [rank, inputs]
    base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight   [outputs, rank]
                     └──────── name in the model ───┘

The configuration is read as the engine reads it to load the adapter, by `lora_config`. What only the model can tell is left
to the loading: whether it has these linears, in these sizes, and no other that the configuration targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from omniflow_core.errors import OmniFlowError
from omniflow_roles.engines.checkpoints.findings import FindingCode, Findings, UnreadableError, and_more
from omniflow_roles.engines.checkpoints.json_files import read_object
from omniflow_roles.engines.checkpoints.report import LoraConfig, ModelKind, ModelReport
from omniflow_roles.engines.checkpoints.tensors import StoredTensor, WeightCount
from omniflow_roles.engines.checkpoints.weight_files import LOADED_DTYPES, read_weights
from omniflow_roles.engines.torch.lora_config import CONFIG, AdapterConfig, read_adapter_config

WEIGHTS = "adapter_model.safetensors"
INDEX = "adapter_model.safetensors.index.json"

PART = re.compile(r"base_model\.model\.(?P<linear>.+)\.lora_(?P<part>[AB])\.weight")
"""The name of a tensor."""
DTYPES = ("F32", "F16", "BF16")
"""Of the tensors, as safetensors calls them."""

_PLAIN = "Train or export the adapter as plain LoRA of linear layers, without it."
_SAME = "Use adapter_config.json and weights of the same adapter."
_RESTORE = "Restore the configuration that the adapter was saved with."

_FOLLOWED = (
    "alpha_pattern",
    "exclude_modules",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "r",
    "rank_pattern",
    "target_modules",
)
"""Keys that any plain adapter may set, so that only a value can be wrong with them."""

_FIXES: Mapping[str, str] = {
    **dict.fromkeys(_FOLLOWED, _RESTORE),
    "init_lora_weights": "Save it with PEFT's path_initial_model_for_weight_conversion, which makes it fit the unchanged "
    "model; train it again where PEFT does not convert its kind.",
}


def inspect_adapter(folder: Path) -> ModelReport:
    """The report of a directory that has an adapter_config.json."""
    findings = Findings()
    weights = read_weights(folder, findings, single=WEIGHTS, index=INDEX)
    _check_files(folder, weights.tensors, findings)
    lora: LoraConfig | None = None
    try:
        base = read_object(folder / CONFIG, FindingCode.BAD_CONFIG).get("base_model_name_or_path")
        linears = _linears(weights.tensors, findings)
        config = _read_config(folder, findings)
        if config is not None:
            lora = LoraConfig(
                base_model=base if isinstance(base, str) else "",
                rank=config.rank,
                alpha=config.alpha,
                module_count=len(linears),
            )
            if weights.are_readable:
                _check_pairs(linears, config, findings)
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


def _read_config(folder: Path, findings: Findings) -> AdapterConfig | None:
    try:
        return read_adapter_config(folder)
    except OmniFlowError as problem:
        for violation in problem.info.violations:
            where = violation.field.replace(str(folder / CONFIG), CONFIG, 1)
            key = where.removeprefix(f"{CONFIG}: ").partition(":")[0]
            findings.error(
                FindingCode.BAD_CONFIG if key in _FOLLOWED else FindingCode.UNSUPPORTED_ADAPTER,
                where,
                violation.description,
                _FIXES.get(key, _PLAIN),
            )
        return None


def _check_files(folder: Path, tensors: Iterable[StoredTensor], findings: Findings) -> None:
    if (folder / INDEX).is_file() and not (folder / WEIGHTS).is_file():
        findings.error(
            FindingCode.UNSUPPORTED_ADAPTER,
            INDEX,
            "splits the adapter into several files",
            f"Save it as one {WEIGHTS}, as PEFT does.",
        )
    # What no weights at all are stored as has been reported where they were read.
    wrong = [tensor for tensor in tensors if tensor.dtype in LOADED_DTYPES and tensor.dtype not in DTYPES]
    if wrong:
        findings.error(
            FindingCode.UNSUPPORTED_DTYPE,
            wrong[0].file,
            f"stores {wrong[0].name!r} as {wrong[0].dtype}; adapters are {', '.join(DTYPES)}{and_more(wrong)}",
            "Save the adapter in one of these.",
        )


def _linears(tensors: Iterable[StoredTensor], findings: Findings) -> dict[str, dict[str, StoredTensor]]:
    """The parts `A` and `B` by the linear's name in the model; other tensors are findings."""
    linears: dict[str, dict[str, StoredTensor]] = {}
    others = []
    for tensor in tensors:
        if found := PART.fullmatch(tensor.name):
            linears.setdefault(found["linear"], {})[found["part"]] = tensor
        else:
            others.append(tensor)
    if others:
        findings.error(
            FindingCode.UNSUPPORTED_ADAPTER,
            others[0].file,
            f"holds {others[0].name!r}, which is no part A or B of a linear layer{and_more(others)}",
            _PLAIN,
        )
    return linears


def _check_pairs(linears: Mapping[str, Mapping[str, StoredTensor]], config: AdapterConfig, findings: Findings) -> None:
    if not linears:
        findings.error(FindingCode.MISSING_TENSOR, WEIGHTS, "holds no part A or B of a linear layer", _PLAIN)
    targeted = set(config.targeted(linears))
    if others := [linear for linear in linears if linear not in targeted]:
        findings.error(
            FindingCode.UNUSED_TENSOR,
            WEIGHTS,
            f"holds {others[0]!r}, which is none of the target_modules of {CONFIG}{and_more(others)}",
            _SAME,
        )
    for linear, parts in linears.items():
        if absent := sorted({"A", "B"} - set(parts)):
            findings.error(
                FindingCode.MISSING_TENSOR,
                WEIGHTS,
                f"does not hold part {absent[0]} of {linear!r}",
                "Copy or download the adapter again.",
            )
            continue
        a, b = parts["A"], parts["B"]
        rank = config.rank_of(linear)
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != rank or b.shape[1] != rank:
            findings.error(
                FindingCode.MISMATCHED_SHAPE,
                a.file,
                f"has the shapes {list(a.shape)} and {list(b.shape)} for {linear!r}, which are not of rank {rank}",
                _SAME,
            )
            return  # the others are likely to be as wrong
