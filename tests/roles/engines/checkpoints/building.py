"""Checkpoints of some kilobytes, made of plain bytes and JSON: data is zeros, for nothing reads it."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omniflow_roles.engines.checkpoints.gguf_header import TYPES
from omniflow_roles.engines.checkpoints.safetensors_header import BITS

Tensors = Mapping[str, tuple[str, Sequence[int]]]
"""Dtype and shape by name."""

LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
QWEN3_MOE: Mapping[str, Any] = {
    **LLAMA,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "head_dim": 16,
    "moe_intermediate_size": 8,
    "num_experts": 4,
}
ADAPTER: Mapping[str, Any] = {
    "peft_type": "LORA",
    "base_model_name_or_path": "org/llama",
    "r": 4,
    "lora_alpha": 8,
    "target_modules": ["q_proj"],
    "bias": "none",
}


def write_json(file: Path, values: Any) -> None:
    file.write_text(json.dumps(values))


def safetensors_bytes(tensors: Tensors, **changed: Mapping[str, Any]) -> bytes:
    """A file; `changed` replaces parts of what its header says of a tensor."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end], **changed.get(name, {})}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(end)


def layer_tensors(config: Mapping[str, Any], layer: int, dtype: str = "BF16") -> dict[str, tuple[str, list[int]]]:
    """One layer of a Llama, or of a Qwen3 MoE."""
    hidden, heads, kv = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim", hidden // heads)
    start = f"model.layers.{layer}"
    found = {
        f"{start}.input_layernorm.weight": (dtype, [hidden]),
        f"{start}.post_attention_layernorm.weight": (dtype, [hidden]),
        f"{start}.self_attn.q_proj.weight": (dtype, [heads * size, hidden]),
        f"{start}.self_attn.k_proj.weight": (dtype, [kv * size, hidden]),
        f"{start}.self_attn.v_proj.weight": (dtype, [kv * size, hidden]),
        f"{start}.self_attn.o_proj.weight": (dtype, [hidden, heads * size]),
    }
    experts = config.get("num_experts")
    inner = config["moe_intermediate_size"] if experts else config["intermediate_size"]
    for mlp in [f"mlp.experts.{index}" for index in range(experts)] if experts else ["mlp"]:
        found[f"{start}.{mlp}.gate_proj.weight"] = (dtype, [inner, hidden])
        found[f"{start}.{mlp}.up_proj.weight"] = (dtype, [inner, hidden])
        found[f"{start}.{mlp}.down_proj.weight"] = (dtype, [hidden, inner])
    if experts:
        found[f"{start}.mlp.gate.weight"] = (dtype, [experts, hidden])
        found[f"{start}.self_attn.q_norm.weight"] = (dtype, [size])
        found[f"{start}.self_attn.k_norm.weight"] = (dtype, [size])
    return found


def model_tensors(config: Mapping[str, Any], dtype: str = "BF16") -> dict[str, tuple[str, list[int]]]:
    """All tensors of a model with an untied head."""
    found: dict[str, tuple[str, list[int]]] = {
        "model.embed_tokens.weight": (dtype, [config["vocab_size"], config["hidden_size"]]),
        "model.norm.weight": (dtype, [config["hidden_size"]]),
        "lm_head.weight": (dtype, [config["vocab_size"], config["hidden_size"]]),
    }
    for layer in range(config["num_hidden_layers"]):
        found |= layer_tensors(config, layer, dtype)
    return found


def parameters_of(tensors: Tensors) -> int:
    return sum(math.prod(shape) for _, shape in tensors.values())


def write_tokenizer(folder: Path) -> None:
    write_json(folder / "tokenizer.json", {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}})
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})


def write_model(folder: Path, config: Mapping[str, Any] = LLAMA, tensors: Tensors | None = None) -> Path:
    """A good checkpoint in one file."""
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", config)
    write_tokenizer(folder)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors or model_tensors(config)))
    return folder


def write_sharded(folder: Path, config: Mapping[str, Any] = LLAMA) -> Path:
    """A good checkpoint in two files and an index."""
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", config)
    write_tokenizer(folder)
    tensors = model_tensors(config)
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in parts.items():
        (folder / file).write_bytes(safetensors_bytes({name: tensors[name] for name in held}))
    weight_map = {name: file for file, held in parts.items() for name in held}
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": 0}, "weight_map": weight_map})
    return folder


def write_adapter(folder: Path, config: Mapping[str, Any] = ADAPTER, tensors: Tensors | None = None) -> Path:
    """A good adapter of the query projections of the Llama above."""
    folder.mkdir(exist_ok=True)
    write_json(folder / "adapter_config.json", config)
    start = "base_model.model.model.layers"
    parts: dict[str, tuple[str, list[int]]] = {}
    for layer in range(2):
        parts[f"{start}.{layer}.self_attn.q_proj.lora_A.weight"] = ("F32", [4, 32])
        parts[f"{start}.{layer}.self_attn.q_proj.lora_B.weight"] = ("F32", [32, 4])
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes(tensors or parts))
    return folder


class GgufBytes:
    """Writes a GGUF file value by value."""

    def __init__(self, *, version: int = 3, alignment: int = 32) -> None:
        self._version, self._alignment = version, alignment
        self._entries: list[bytes] = []
        self._tensors: list[bytes] = []
        self._data_bytes = 0

    def text(self, key: str, value: str) -> GgufBytes:
        self._entries.append(_text(key) + struct.pack("<I", 8) + _text(value))
        return self

    def number(self, key: str, value: int) -> GgufBytes:
        self._entries.append(_text(key) + struct.pack("<II", 4, value))
        return self

    def texts(self, key: str, values: Sequence[str]) -> GgufBytes:
        head = struct.pack("<IIQ", 9, 8, len(values))
        self._entries.append(_text(key) + head + b"".join(map(_text, values)))
        return self

    def numbers(self, key: str, values: Sequence[int]) -> GgufBytes:
        self._entries.append(_text(key) + struct.pack(f"<IIQ{len(values)}I", 9, 4, len(values), *values))
        return self

    def tensor(self, name: str, shape: Sequence[int], kind: int = 0, *, shift: int = 0) -> GgufBytes:
        """`shape` outermost first; `shift` moves it from where it should be."""
        offset = -(-self._data_bytes // self._alignment) * self._alignment
        head = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        self._tensors.append(_text(name) + head + struct.pack("<IQ", kind, offset + shift))
        _, block_elements, block_bytes = TYPES.get(kind, ("", 1, 4))
        self._data_bytes = offset + math.prod(shape) // block_elements * block_bytes
        return self

    def build(self) -> bytes:
        head = b"GGUF" + struct.pack("<IQQ", self._version, len(self._tensors), len(self._entries))
        written = head + b"".join(self._entries) + b"".join(self._tensors)
        return written + bytes(-len(written) % self._alignment) + bytes(self._data_bytes)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def gguf_llama(*, architecture: str = "llama", layers: int = 2, key_rows: int = 16, kind: int = 8) -> GgufBytes:
    """The Llama above, its matrices in Q8_0."""
    gguf = GgufBytes().text("general.architecture", architecture)
    for key, value in {
        "block_count": 2,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "embedding_length": 32,
        "feed_forward_length": 64,
        "context_length": 512,
    }.items():
        gguf.number(f"{architecture}.{key}", value)
    gguf.texts("tokenizer.ggml.tokens", [f"token {index}" for index in range(64)])
    gguf.tensor("token_embd.weight", [64, 32], kind).tensor("output_norm.weight", [32])
    for layer in range(layers):
        gguf.tensor(f"blk.{layer}.attn_norm.weight", [32]).tensor(f"blk.{layer}.attn_q.weight", [32, 32], kind)
        gguf.tensor(f"blk.{layer}.attn_k.weight", [key_rows, 32], kind)
        gguf.tensor(f"blk.{layer}.attn_v.weight", [key_rows, 32], kind)
        gguf.tensor(f"blk.{layer}.attn_output.weight", [32, 32], kind)
    return gguf
