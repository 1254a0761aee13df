"""Whether the weights are those of the model that the configuration describes.

transformers fills a weight that a checkpoint lacks with random numbers and warns; here it is an error. Looked at is what
says most for the least: that every layer is there, the embeddings and the head, and the sizes of the keys and values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omniflow_roles.engines.checkpoints.families import Family
from omniflow_roles.engines.checkpoints.findings import FindingCode, Findings, and_more
from omniflow_roles.engines.checkpoints.memory import KvShape
from omniflow_roles.engines.checkpoints.model_config import is_tied
from omniflow_roles.engines.checkpoints.tensors import StoredTensor

_EMBEDDINGS = "embed_tokens.weight"
HEAD = "lm_head.weight"

_FIX = "Use config.json and weights of the same checkpoint."


def check_layers(tensors: Iterable[StoredTensor], layer_count: int, where: str, findings: Findings) -> None:
    """Layers 0 to `layer_count` - 1 have weights, and no other."""
    held = {tensor.layer for tensor in tensors} - {None}
    absent = sorted(set(range(layer_count)) - held)
    if absent:
        findings.error(
            FindingCode.MISSING_TENSOR,
            where,
            f"has no weights of layer {absent[0]}{and_more(absent)}; the configuration asks for {layer_count} layers",
            _FIX,
        )
    beyond = sorted(layer for layer in held if layer is not None and layer >= layer_count)
    if beyond:
        findings.warn(
            FindingCode.UNUSED_TENSOR,
            where,
            f"has weights of layer {beyond[0]}{and_more(beyond)}, which the configuration does not ask for",
            "Nothing has to be done where they are heads for speculative decoding.",
        )


def check_weights(
    tensors: Sequence[StoredTensor],
    values: Mapping[str, Any],
    family: Family,
    kv: KvShape,
    findings: Findings,
) -> None:
    """The tensors of a Hugging Face checkpoint against its `config.json`."""
    where = tensors[0].file if tensors else _EMBEDDINGS
    check_layers(tensors, kv.layer_count, where, findings)
    required = (_EMBEDDINGS,) if is_tied(values, family) else (_EMBEDDINGS, HEAD)
    for name in required:
        if not any(tensor.name.endswith(name) for tensor in tensors):
            findings.error(FindingCode.MISSING_TENSOR, where, f"does not hold {name!r}", _FIX)
    rows = _expected_rows(values, family, kv)
    for tensor in tensors:
        module = tensor.name.removesuffix(".weight").rpartition(".")[2]
        expected = rows.get(module) if tensor.name.endswith(".weight") else None
        if expected is not None and tensor.shape[:1] != (expected,):
            findings.error(
                FindingCode.MISMATCHED_SHAPE,
                tensor.file,
                f"holds {tensor.name!r} of shape {list(tensor.shape)}; the configuration makes it {expected:,} rows",
                _FIX,
            )
            return  # all layers are alike


def _expected_rows(values: Mapping[str, Any], family: Family, kv: KvShape) -> Mapping[str, int]:
    """Rows by the last name of a weight's module."""
    rows: dict[str, int] = {}
    if type(vocabulary := values.get("vocab_size")) is int:
        rows["embed_tokens"] = vocabulary
    if family.is_latent:
        # Values and the part of the keys without positions come from one matrix.
        without_positions = kv.key_size - int(values.get("qk_rope_head_dim", 64))
        rows["kv_b_proj"] = kv.head_count * (without_positions + kv.value_size)
    elif family.fuses_projections:
        heads = int(values["num_attention_heads"])
        rows["qkv_proj"] = (heads + 2 * kv.head_count) * kv.key_size
    else:
        rows["k_proj"] = kv.head_count * kv.key_size
        rows["v_proj"] = kv.head_count * kv.value_size
    return rows
