"""A directory as transformers saves a model: config.json, safetensors, a tokenizer."""

from __future__ import annotations

from pathlib import Path

from omniflow_roles.engines.checkpoints.families import Family
from omniflow_roles.engines.checkpoints.findings import FindingCode, Findings, UnreadableError
from omniflow_roles.engines.checkpoints.json_files import read_object
from omniflow_roles.engines.checkpoints.model_config import FILE, is_tied, read_model_config
from omniflow_roles.engines.checkpoints.report import ModelConfig, ModelKind, ModelReport
from omniflow_roles.engines.checkpoints.tensors import WeightCount
from omniflow_roles.engines.checkpoints.tokenizer_files import check_tokenizer
from omniflow_roles.engines.checkpoints.weight_files import StoredWeights, read_weights
from omniflow_roles.engines.checkpoints.weight_shapes import HEAD, check_weights


def inspect_directory(folder: Path) -> ModelReport:
    """The report of a directory that has a config.json."""
    findings = Findings()
    config: ModelConfig | None = None
    family: Family | None = None
    values = {}
    try:
        values = read_object(folder / FILE, FindingCode.BAD_CONFIG)
        config, family = read_model_config(values, findings)
    except UnreadableError as problem:
        findings.unreadable(problem)
    weights = read_weights(folder, findings)
    if family is not None and config is not None and config.kv is not None and weights.are_readable:
        check_weights(weights.tensors, values, family, config.kv, findings)
    check_tokenizer(folder, findings)
    return ModelReport(
        path=str(folder),
        kind=ModelKind.HUGGING_FACE,
        config=config,
        weights=_count(weights, is_head_tied=family is not None and is_tied(values, family)),
        file_count=weights.file_count,
        stored_bytes=sum(tensor.size_bytes for tensor in weights.tensors),
        dtypes=weights.dtypes,
        findings=findings.in_order(),
    )


def _count(weights: StoredWeights, *, is_head_tied: bool) -> WeightCount | None:
    if not weights.are_readable:
        return None
    # A head that is stored though it is tied is the embeddings once more, and takes no memory.
    return WeightCount.of(t for t in weights.tensors if not (is_head_tied and t.name.endswith(HEAD)))
