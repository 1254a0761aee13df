"""What a configuration says: keys and values, windows, context, and what the engine cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omniflow_roles.engines.checkpoints.families import FAMILIES, GGUF_TYPES
from omniflow_roles.engines.checkpoints.findings import Finding, FindingCode, Findings
from omniflow_roles.engines.checkpoints.gguf_file import inspect_gguf
from omniflow_roles.engines.checkpoints.memory import KvShape, LoadDtype
from omniflow_roles.engines.checkpoints.model_config import read_model_config
from omniflow_roles.engines.checkpoints.report import ModelConfig, SlidingWindow
from tests.roles.engines.checkpoints import building as make

BASE: Mapping[str, Any] = {"num_hidden_layers": 6, "num_attention_heads": 8, "hidden_size": 512}


def read(model_type: str, **values: Any) -> tuple[ModelConfig, tuple[Finding, ...]]:
    findings = Findings()
    config, _ = read_model_config({**BASE, "model_type": model_type, **values}, findings)
    return config, findings.in_order()


def kv_of(model_type: str, **values: Any) -> tuple[int, int, int]:
    """Heads, key size, value size."""
    config, findings = read(model_type, **values)
    assert findings == ()
    assert config.kv is not None
    assert config.kv.layer_count == 6
    return config.kv.head_count, config.kv.key_size, config.kv.value_size


def window_of(model_type: str, **values: Any) -> tuple[int, tuple[int, ...]] | None:
    window = read(model_type, **values)[0].window
    return (window.size, window.layers) if window else None


def test_kv_is_shared_among_query_heads() -> None:
    assert kv_of("llama", num_key_value_heads=2) == (2, 64, 64)


def test_kv_heads_are_the_attention_heads_where_the_config_has_none() -> None:
    assert kv_of("llama") == (8, 64, 64)
    assert kv_of("mistral", num_attention_heads=16, num_key_value_heads=None) == (16, 32, 32)


def test_kv_takes_the_defaults_of_its_family() -> None:
    assert kv_of("mistral") == (8, 64, 64)
    assert kv_of("glm4") == (2, 128, 128)
    assert kv_of("glm4", head_dim=96) == (2, 96, 96)
    assert kv_of("ernie4_5", head_dim=None) == (2, 64, 64)


def test_kv_of_latent_attention_is_expanded_to_all_heads() -> None:
    assert kv_of("deepseek_v2", qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=24) == (8, 24, 24)
    assert kv_of("deepseek_v2", num_key_value_heads=1) == (8, 192, 128)


def test_kv_bytes_per_token_count_all_layers() -> None:
    shape = KvShape(layer_count=30, head_count=3, key_size=192, value_size=128)
    assert shape.bytes_per_token(LoadDtype.BFLOAT16) == 30 * 3 * (192 + 128) * 2
    assert shape.bytes_per_token(LoadDtype.INT8) == shape.bytes_per_token(LoadDtype.BFLOAT16)
    assert shape.bytes_per_token(LoadDtype.INT8_CPU) == shape.bytes_per_token(LoadDtype.FLOAT32)
    assert shape.bytes_per_token(LoadDtype.FLOAT32) == 2 * shape.bytes_per_token(LoadDtype.BFLOAT16)


@pytest.mark.parametrize(
    ("model_type", "values", "window"),
    [
        ("llama", {"sliding_window": 9}, None),
        ("mistral", {}, (4096, (0, 1, 2, 3, 4, 5))),
        ("mistral", {"sliding_window": None}, None),
        ("mixtral", {}, None),
        ("phi3", {"sliding_window": 2047}, (2047, (0, 1, 2, 3, 4, 5))),
        ("qwen2", {"sliding_window": 64}, None),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": True}, None),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 4}, (64, (4, 5))),
        ("qwen3", {"use_sliding_window": True, "layer_types": ["sliding_attention"] * 2}, (4096, (0, 1))),
        ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 7}, (7, (0, 1, 2, 3, 4, 5))),
        ("gemma2", {}, (4096, (0, 2, 4))),
        ("gemma3_text", {"sliding_window": 512}, (512, (0, 1, 2, 3, 4))),
        ("gemma3_text", {"sliding_window_pattern": 2}, (4096, (0, 2, 4))),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 16}, (16, (3,))),
        ("smollm3", {"sliding_window": 16}, None),
    ],
)
def test_window_is_that_of_the_family(
    model_type: str, values: dict[str, Any], window: tuple[int, tuple[int, ...]] | None
) -> None:
    assert window_of(model_type, **values) == window


def test_window_that_the_model_does_not_pass_on_is_refused() -> None:
    config, findings = read("qwen2_moe", num_key_value_heads=8, use_sliding_window=True, sliding_window=32)
    assert config.window == SlidingWindow(size=32, layers=(0, 2, 4))
    assert [finding.code for finding in findings] == [FindingCode.WINDOW_NOT_APPLIED]
    assert read("qwen2_moe", num_key_value_heads=8, sliding_window=32)[1] == ()


def test_context_is_that_of_the_config_or_the_default_of_the_family() -> None:
    assert read("llama", max_position_embeddings=777)[0].context_size == 777
    assert read("granite")[0].context_size == 2048


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_rope_that_switches_with_the_longest_sequence_cuts_the_context(key: str) -> None:
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 4096}
    config, findings = read("phi3", max_position_embeddings=131_072, **{key: rope})
    assert config.context_size == 4096
    assert [finding.code for finding in findings] == [FindingCode.CONTEXT_CUT]


def test_rope_that_depends_on_the_batch_is_refused() -> None:
    for rope in ({"rope_type": "dynamic", "factor": 2.0}, {"full_attention": {"type": "dynamic"}}):
        _, findings = read("llama", rope_parameters=rope)
        assert [finding.code for finding in findings] == [FindingCode.UNSUPPORTED_ROPE]
    assert read("llama", rope_scaling={"rope_type": "llama3", "factor": 8.0})[1] == ()


@pytest.mark.parametrize("model_type", ["gemma", "gemma2", "gemma3_text"])
def test_attention_to_what_follows_is_refused(model_type: str) -> None:
    _, findings = read(model_type, num_key_value_heads=8, use_bidirectional_attention=True)
    assert [finding.code for finding in findings] == [FindingCode.NOT_CAUSAL]


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True, [], 1 << 41])
@pytest.mark.parametrize("key", ["num_hidden_layers", "num_attention_heads", "hidden_size", "head_dim"])
def test_sizes_must_be_whole_numbers_above_0(key: str, value: object) -> None:
    _, findings = read("llama", **{key: value})
    assert (FindingCode.BAD_CONFIG, f"config.json: {key}") in [(finding.code, finding.where) for finding in findings]


def test_heads_must_share_out_evenly() -> None:
    _, findings = read("llama", num_key_value_heads=3)
    assert [finding.where for finding in findings] == ["config.json: num_key_value_heads"]


def test_unknown_type_is_refused_with_the_nearest() -> None:
    [finding] = read("qwen_3")[1]
    assert finding.code is FindingCode.UNKNOWN_ARCHITECTURE
    assert "Did you mean qwen3?" in finding.fix
    [finding] = read("mamba")[1]
    assert "no keys and values" in finding.message
    [finding] = read("")[1]
    assert finding.message == "names no model type"


KEYS = (
    "architectures",
    "auto_map",
    "head_dim",
    "hidden_size",
    "layer_types",
    "max_position_embeddings",
    "max_window_layers",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "original_max_position_embeddings",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "quantization_config",
    "rope_parameters",
    "rope_scaling",
    "rope_type",
    "sliding_window",
    "sliding_window_pattern",
    "use_bidirectional_attention",
    "use_sliding_window",
    "v_head_dim",
)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("longrope"))
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
)


@example(model_type="llama", values={"rope_parameters": {"rope_type": []}})
@given(model_type=st.sampled_from(sorted(FAMILIES)), values=st.dictionaries(st.sampled_from(KEYS), anything))
def test_config_of_any_values_is_read_or_refused(model_type: str, values: dict[str, Any]) -> None:
    config, findings = read(model_type, **{key: value for key, value in values.items() if key != "model_type"})
    assert config.kv is not None or findings
    assert all(finding.message and finding.fix for finding in findings)


def inspected(folder: Path, written: make.GgufBytes) -> tuple[ModelConfig | None, list[FindingCode]]:
    file = folder / "model.gguf"
    file.write_bytes(written.build())
    report = inspect_gguf(file)
    return report.config, [finding.code for finding in report.findings]


@pytest.mark.parametrize("architecture", GGUF_TYPES)
def test_gguf_metadata_says_what_a_config_would(architecture: str, tmp_path: Path) -> None:
    config, codes = inspected(tmp_path, make.gguf_llama(architecture=architecture).number("other", 1))
    family = FAMILIES[GGUF_TYPES[architecture]]
    assert config is not None
    assert config.architecture == family.causal_class
    assert config.context_size == 512
    assert config.kv is not None
    assert (config.kv.layer_count, config.kv.head_count) == (2, 2)
    assert codes == ([] if config.kv.key_size == 8 else [FindingCode.MISMATCHED_SHAPE])


@pytest.mark.parametrize(
    ("written", "code"),
    [
        (make.gguf_llama(architecture="clip"), FindingCode.UNKNOWN_ARCHITECTURE),
        (make.gguf_llama(layers=1), FindingCode.MISSING_TENSOR),
        (make.gguf_llama(key_rows=24), FindingCode.MISMATCHED_SHAPE),
        (make.gguf_llama().tensor("rope_freqs.weight", [4]), FindingCode.UNSUPPORTED_ROPE),
        (make.gguf_llama().text("llama.rope.scaling.type", "yarn"), FindingCode.UNSUPPORTED_ROPE),
        (make.gguf_llama().number("split.count", 3), FindingCode.MISSING_SHARD),
        (make.gguf_llama(kind=24), FindingCode.UNSUPPORTED_DTYPE),
        (make.gguf_llama().tensor("blk.0.attn_k.bias", [16]).numbers("llama.attention.key_length", [8, 8]), None),
    ],
)
def test_gguf_that_cannot_be_converted_is_refused(
    written: make.GgufBytes, code: FindingCode | None, tmp_path: Path
) -> None:
    _, codes = inspected(tmp_path, written)
    assert codes == [code or FindingCode.BAD_CONFIG]


def test_gguf_without_a_tokenizer_is_warned_of(tmp_path: Path) -> None:
    written = make.gguf_llama().build().replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz")
    (tmp_path / "model.gguf").write_bytes(written)
    report = inspect_gguf(tmp_path / "model.gguf")
    assert report.is_supported
    assert [finding.code for finding in report.findings] == [FindingCode.NO_TOKENIZER]
