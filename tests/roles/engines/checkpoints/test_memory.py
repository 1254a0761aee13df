"""Bytes of weights and of keys and values, and sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniflow_roles.engines.checkpoints.memory import LoadDtype, MemoryNeed, parse_size, show_size
from omniflow_roles.engines.checkpoints.tensors import StoredTensor, WeightCount


def tensor(name: str, *shape: int) -> StoredTensor:
    return StoredTensor(name=name, dtype="BF16", shape=shape, size_bytes=0, file="model.safetensors")


def test_int8_holds_only_the_linears_of_the_layers_in_a_byte() -> None:
    weights = WeightCount.of(
        [
            tensor("model.embed_tokens.weight", 100, 10),
            tensor("lm_head.weight", 100, 10),
            tensor("model.layers.0.input_layernorm.weight", 10),
            tensor("model.layers.0.self_attn.q_proj.weight", 20, 10),
            tensor("model.layers.0.mlp.experts.3.up_proj.weight", 5, 10),
            tensor("blk.0.ffn_up.weight", 30, 10),
        ]
    )
    assert weights == WeightCount(total=2560, linear=500, linear_rows=50)
    assert LoadDtype.INT8.bytes_of(weights) == 500 + 4 * 50 + 2 * (2560 - 500)
    assert LoadDtype.FLOAT32.bytes_of(weights) == 4 * 2560
    assert LoadDtype.BFLOAT16.bytes_of(weights) == LoadDtype.FLOAT16.bytes_of(weights) == 2 * 2560


@given(weights=st.integers(0, 1 << 40), token=st.integers(1, 1 << 20), budget=st.integers(0, 1 << 41))
def test_kv_tokens_are_as_many_as_fit_beside_the_weights(weights: int, token: int, budget: int) -> None:
    tokens = MemoryNeed(weight_bytes=weights, kv_bytes_per_token=token).kv_tokens_in(budget)
    if tokens is None:
        assert budget < weights
    else:
        assert weights + tokens * token <= budget < weights + (tokens + 1) * token


def test_kv_tokens_of_what_keeps_none_are_not_counted() -> None:
    assert MemoryNeed(weight_bytes=1, kv_bytes_per_token=0).kv_tokens_in(100) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("8GiB", 8 << 30),
        ("8 gib", 8 << 30),
        ("1.5Gi", 3 << 29),
        ("500MB", 500_000_000),
        ("2k", 2000),
        ("1TiB", 1 << 40),
        ("12B", 12),
    ],
)
def test_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "8 GiB of", "8PiB", "1e9", "8iB", "0x10", "८", "9" * 400])
def test_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size such as"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_size_is_shown_in_the_largest_unit_that_it_reaches(size: int, text: str) -> None:
    assert show_size(size) == text
