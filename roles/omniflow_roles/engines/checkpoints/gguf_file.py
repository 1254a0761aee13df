"""A model in one GGUF file. The engine runs what transformers makes of it: floats, under the architecture's own class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omniflow_roles.engines.checkpoints.families import GGUF_TYPES
from omniflow_roles.engines.checkpoints.findings import FindingCode, Findings, UnreadableError, and_more
from omniflow_roles.engines.checkpoints.gguf_header import DEQUANTISED, GgufArray, GgufHeader, read_gguf_header
from omniflow_roles.engines.checkpoints.memory import KvShape
from omniflow_roles.engines.checkpoints.model_config import read_model_config
from omniflow_roles.engines.checkpoints.report import ModelConfig, ModelKind, ModelReport
from omniflow_roles.engines.checkpoints.tensors import StoredTensor, WeightCount
from omniflow_roles.engines.checkpoints.weight_files import dtypes_of
from omniflow_roles.engines.checkpoints.weight_shapes import check_layers

_EMBEDDINGS, _HEAD = "token_embd.weight", "output.weight"
_ROPE_TABLES = "rope_"
"""How tensors begin that scale positions and are no parameters."""

_KEYS: Mapping[str, str] = {
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "hidden_size": "embedding_length",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
}
"""Metadata, after `<architecture>.`, by the key of config.json that transformers makes of it."""

_ANOTHER = "Use the model's safetensors."


def inspect_gguf(file: Path) -> ModelReport:
    """The report of a .gguf file."""
    findings = Findings()
    config: ModelConfig | None = None
    weights: tuple[StoredTensor, ...] | None = None
    try:
        header = read_gguf_header(file)
        weights = tuple(tensor for tensor in header.tensors if not tensor.name.startswith(_ROPE_TABLES))
        config = _read_config(header, file, findings)
        _check(header, weights, config.kv, file, findings)
    except UnreadableError as problem:
        findings.unreadable(problem)
    return ModelReport(
        path=str(file),
        kind=ModelKind.GGUF,
        config=config,
        weights=WeightCount.of(weights) if weights is not None else None,
        file_count=1,
        stored_bytes=sum(tensor.size_bytes for tensor in weights or ()),
        dtypes=dtypes_of(weights or ()),
        findings=findings.in_order(),
    )


def _read_config(header: GgufHeader, file: Path, findings: Findings) -> ModelConfig:
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in GGUF_TYPES:
        findings.error(
            FindingCode.UNKNOWN_ARCHITECTURE,
            f"{file.name}: general.architecture",
            f"is {architecture!r}, which is not converted" if architecture else "is missing",
            f"Use the model's safetensors, or a file of one of these: {', '.join(sorted(GGUF_TYPES))}.",
        )
        return ModelConfig(model_type="", architecture=str(architecture or ""))
    values: dict[str, Any] = {
        name: header.metadata[f"{architecture}.{key}"]
        for name, key in _KEYS.items()
        if f"{architecture}.{key}" in header.metadata
    }
    values["model_type"] = GGUF_TYPES[architecture]
    for name, value in tuple(values.items()):
        if isinstance(value, GgufArray):
            findings.error(
                FindingCode.BAD_CONFIG,
                f"{file.name}: {architecture}.{_KEYS[name]}",
                "differs from layer to layer, which the engine's pages do not",
                _ANOTHER,
            )
            del values[name]
    config, _ = read_model_config(values, findings, file=file.name)
    return config


def _check(
    header: GgufHeader, weights: tuple[StoredTensor, ...], kv: KvShape | None, file: Path, findings: Findings
) -> None:
    parts = header.metadata.get("split.count")
    if isinstance(parts, int) and parts > 1:
        findings.error(
            FindingCode.MISSING_SHARD,
            file.name,
            f"is one of {parts} parts of a model",
            "Join them with llama-gguf-split --merge.",
        )
        return
    _check_dtypes(weights, file, findings)
    _check_positions(header, file, findings)
    if not any(tensor.name == _EMBEDDINGS for tensor in weights):
        findings.error(FindingCode.MISSING_TENSOR, file.name, f"does not hold {_EMBEDDINGS!r}", _ANOTHER)
    if kv is not None:
        check_layers(weights, kv.layer_count, file.name, findings)
        _check_keys(weights, kv, file, findings)
    if not isinstance(header.metadata.get("tokenizer.ggml.tokens"), GgufArray):
        findings.warn(
            FindingCode.NO_TOKENIZER,
            f"{file.name}: tokenizer.ggml.tokens",
            "is missing: token ids can be served, text cannot",
            "Convert the model again together with its tokenizer.",
        )


def _check_dtypes(weights: tuple[StoredTensor, ...], file: Path, findings: Findings) -> None:
    wrong = [tensor for tensor in weights if tensor.dtype not in DEQUANTISED]
    if wrong:
        findings.error(
            FindingCode.UNSUPPORTED_DTYPE,
            file.name,
            f"stores {wrong[0].name!r} as {wrong[0].dtype}, which is not turned into floats{and_more(wrong)}",
            "Quantise the model to a common type, such as Q4_K_M or Q8_0.",
        )


def _check_positions(header: GgufHeader, file: Path, findings: Findings) -> None:
    """transformers drops what a file says of scaled positions, and the model would be another one."""
    tables = [tensor.name for tensor in header.tensors if tensor.name.startswith(_ROPE_TABLES)]
    keys = [
        key
        for key, value in header.metadata.items()
        if key.endswith(".rope.scaling.type") and value not in ("", "none")
    ]
    if tables or keys:
        findings.error(
            FindingCode.UNSUPPORTED_ROPE,
            f"{file.name}: {(tables + keys)[0]}",
            "scales positions, which is lost when the file is converted",
            _ANOTHER,
        )


def _check_keys(weights: tuple[StoredTensor, ...], kv: KvShape, file: Path, findings: Findings) -> None:
    expected = kv.head_count * kv.key_size
    wrong = [t for t in weights if t.name.endswith(".attn_k.weight") and t.shape[:1] != (expected,)]
    if wrong:
        findings.error(
            FindingCode.MISMATCHED_SHAPE,
            file.name,
            f"holds {wrong[0].name!r} of shape {list(wrong[0].shape)}; its metadata makes it {expected:,} rows",
            _ANOTHER,
        )
