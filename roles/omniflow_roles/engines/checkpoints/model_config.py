"""What a `config.json` says, in the engine's terms, and what in it the engine cannot do."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omniflow_roles.engines.checkpoints.families import FAMILIES, REFUSED, Family, WindowRule
from omniflow_roles.engines.checkpoints.findings import FindingCode, Findings
from omniflow_roles.engines.checkpoints.memory import KvShape
from omniflow_roles.engines.checkpoints.report import ModelConfig, SlidingWindow

FILE = "config.json"

_MOST = (1 << 31) - 1
_MOST_LAYERS = 10_000
"""Far beyond any model: layers are counted one by one."""

_BATCH_DEPENDENT_ROPE = "dynamic"
_TWO_RANGE_ROPE = "longrope"


@dataclass(slots=True)
class ConfigReader:
    """Values of a config with the right types; what is not becomes a finding."""

    values: Mapping[str, Any]
    findings: Findings
    file: str = FILE

    def size(self, key: str, default: int | None = None, *, most: int = _MOST) -> int | None:
        """A whole number from 1 to `most`; the default where the key is absent or null. None, with a finding, for
        anything else."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if type(value) is int and 0 < value <= most:
            return value
        what = "is missing" if value is None else f"is {reprlib.repr(value)}"
        self.error(
            FindingCode.BAD_CONFIG,
            key,
            f"{what}, and must be a whole number from 1 to {most:,}",
            "Restore the configuration that the model was saved with.",
        )
        return None

    def error(self, code: FindingCode, key: str, message: str, fix: str) -> None:
        """What a key says cannot be used."""
        self.findings.error(code, f"{self.file}: {key}", message, fix)

    def flag(self, key: str) -> bool:
        """Whether it is set and true."""
        return self.values.get(key) is True


def read_model_config(
    values: Mapping[str, Any], findings: Findings, *, file: str = FILE
) -> tuple[ModelConfig, Family | None]:
    """What the engine takes from a config, and its family when there is one; mistakes go into `findings`. `file` is where
    the values are from."""
    model_type = values.get("model_type")
    model_type = model_type if isinstance(model_type, str) else ""
    family = FAMILIES.get(model_type)
    named = values.get("architectures")
    architecture = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
    reader = ConfigReader(values, findings, file)
    _check_code(reader)
    _check_quantization(reader)
    if family is None:
        _refuse_type(reader, model_type, architecture)
        return ModelConfig(model_type=model_type, architecture=architecture or model_type), None
    if architecture not in ("", family.causal_class):
        reader.error(
            FindingCode.NOT_GENERATIVE,
            "architectures",
            f"is {architecture}, which draws no tokens",
            f"Use a checkpoint of {family.causal_class}.",
        )
    kv = _kv_shape(reader, family)
    window = _window(reader, family, kv.layer_count) if kv is not None else None
    _check_attention(reader, family, window)
    config = ModelConfig(
        model_type=model_type,
        architecture=family.causal_class,
        kv=kv,
        window=window,
        context_size=_context_size(reader, family),
    )
    return config, family


def is_tied(values: Mapping[str, Any], family: Family) -> bool:
    """Whether the language-model head is the matrix of the embeddings."""
    stated = values.get("tie_word_embeddings")
    return stated if isinstance(stated, bool) else family.is_tied


def _check_code(reader: ConfigReader) -> None:
    if reader.values.get("auto_map"):
        reader.error(
            FindingCode.REMOTE_CODE,
            "auto_map",
            "asks for Python code that comes with the model, which is never run",
            "Use a checkpoint in the format of transformers' own classes, without auto_map.",
        )


def _check_quantization(reader: ConfigReader) -> None:
    quantization = reader.values.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        reader.error(
            FindingCode.QUANTIZED,
            "quantization_config",
            f"says that the weights are quantised ({method or 'by an unnamed method'}); only float weights are loaded",
            "Use the unquantised checkpoint, with --dtype int8 to save memory, or a GGUF file.",
        )


def _refuse_type(reader: ConfigReader, model_type: str, architecture: str) -> None:
    if reason := REFUSED.get(model_type):
        message = f"{model_type} is not supported: {reason}"
    elif model_type:
        message = f"{model_type} ({architecture or 'no architectures'}) is no architecture that the engine runs"
    else:
        message = "names no model type"
    close = difflib.get_close_matches(model_type, FAMILIES, n=1)
    hint = f"Did you mean {close[0]}? " if close and not reason else ""
    reader.error(
        FindingCode.UNKNOWN_ARCHITECTURE,
        "model_type",
        message,
        f"{hint}Use a model of one of these types: {', '.join(sorted(FAMILIES))}.",
    )


def _kv_shape(reader: ConfigReader, family: Family) -> KvShape | None:
    layers = reader.size("num_hidden_layers", most=_MOST_LAYERS)
    heads = reader.size("num_attention_heads")
    hidden = reader.size("hidden_size")
    if layers is None or heads is None or hidden is None:
        return None
    if family.is_latent:
        nope, rope = reader.size("qk_nope_head_dim", 128), reader.size("qk_rope_head_dim", 64)
        value = reader.size("v_head_dim", 128)
        if nope is None or rope is None or value is None:
            return None
        return KvShape(layer_count=layers, head_count=heads, key_size=nope + rope, value_size=value)
    # A config that says null means as many as attention heads, one that says nothing means the family's default.
    has_key = "num_key_value_heads" in reader.values
    kv_heads = reader.size("num_key_value_heads", heads if has_key else (family.kv_heads or heads))
    size = reader.size("head_dim", _head_size(reader, family, hidden, heads))
    if kv_heads is None or size is None:
        return None
    if heads % kv_heads:
        reader.error(
            FindingCode.BAD_CONFIG,
            "num_key_value_heads",
            f"is {kv_heads}, by which the {heads} attention heads cannot be divided",
            "Restore the configuration that the model was saved with.",
        )
    return KvShape(layer_count=layers, head_count=kv_heads, key_size=size, value_size=size)


def _head_size(reader: ConfigReader, family: Family, hidden: int, heads: int) -> int:
    if family.head_dim is not None and "head_dim" not in reader.values:
        return family.head_dim
    return max(1, hidden // heads)


def _window(reader: ConfigReader, family: Family, layers: int) -> SlidingWindow | None:
    if family.window is WindowRule.NONE or (family.has_window_switch and not reader.flag("use_sliding_window")):
        return None
    stated = reader.values.get("sliding_window", family.window_size)
    if not stated:
        return None
    size = reader.size("sliding_window", family.window_size)
    sliding = tuple(layer for layer in range(layers) if _is_sliding(reader, family, layer))
    return SlidingWindow(size=size, layers=sliding) if size is not None and sliding else None


def _is_sliding(reader: ConfigReader, family: Family, layer: int) -> bool:
    types = reader.values.get("layer_types")
    if family.window is WindowRule.EVERY_LAYER:
        return True
    if isinstance(types, list):
        return layer < len(types) and types[layer] == "sliding_attention"
    if family.window is WindowRule.FROM_LAYER:
        first = reader.values.get("max_window_layers", 28)
        return isinstance(first, int) and layer >= first
    pattern = reader.size("sliding_window_pattern", family.window_pattern) or family.window_pattern
    is_nth = (layer + 1) % pattern == 0
    return is_nth is (family.window is WindowRule.EACH_NTH)


def _check_attention(reader: ConfigReader, family: Family, window: SlidingWindow | None) -> None:
    if family.can_be_bidirectional and reader.values.get("use_bidirectional_attention"):
        reader.error(
            FindingCode.NOT_CAUSAL,
            "use_bidirectional_attention",
            "makes every token see those after it, so that nothing can be generated",
            "Use a checkpoint for text generation.",
        )
    if window is not None and not family.passes_window:
        reader.error(
            FindingCode.WINDOW_NOT_APPLIED,
            "use_sliding_window",
            "is on, and this architecture does not tell the attention of its window",
            "Use a checkpoint without a sliding window.",
        )


def _context_size(reader: ConfigReader, family: Family) -> int | None:
    """Also checks how positions are scaled: the engine needs them independent of what else is in a batch."""
    size = reader.size("max_position_embeddings", family.context_size)
    # An old file says rope_scaling, a newer one rope_parameters, which may hold one set for each type of layer.
    rope = reader.values.get("rope_parameters") or reader.values.get("rope_scaling") or {}
    sets = [entry for entry in (rope, *rope.values()) if isinstance(entry, dict)] if isinstance(rope, dict) else []
    kinds = [entry.get("rope_type", entry.get("type")) for entry in sets]
    if _BATCH_DEPENDENT_ROPE in kinds:
        reader.error(
            FindingCode.UNSUPPORTED_ROPE,
            "rope_parameters",
            "scales positions by the longest sequence of a batch (dynamic), so that answers would depend on each other",
            "Use a checkpoint with another kind of scaling, such as yarn or llama3.",
        )
    if _TWO_RANGE_ROPE not in kinds or size is None:
        return size
    stated = [entry.get("original_max_position_embeddings") for entry in (reader.values, *sets)]
    original = next((value for value in stated if type(value) is int and value > 0), size)
    if original < size:
        reader.findings.warn(
            FindingCode.CONTEXT_CUT,
            f"{reader.file}: rope_parameters",
            f"switches all sequences of a batch to other frequencies when one is longer than {original:,} tokens",
            f"Sequences are kept to {original:,} tokens instead of {size:,}.",
        )
    return min(original, size)
