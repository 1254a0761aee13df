"""Bytes of weights and of keys and values, and sizes as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniflow_roles.engines.checkpoints.memory import LoadDtype, MemoryNeed, parse_size, show_size
from omniflow_roles.engines.checkpoints.tensors import StoredTensor, WeightCount


def tensor(name: str, *shape: int) -> StoredTensor:
    return StoredTensor(name=name, dtype="BF16", shape=shape, size_bytes=0, file="model.safetensors")


NAMES = {
    "safetensors": ("model.embed_tokens.weight", "lm_head.weight", "model.layers.0.self_attn.q_proj.weight"),
    "GGUF": ("token_embd.weight", "output.weight", "blk.0.attn_output.weight"),
}


@pytest.mark.parametrize("kind", NAMES)
def test_int8_holds_linears_and_the_head_in_a_byte(kind: str) -> None:
    embeddings, head, linear = NAMES[kind]
    weights = WeightCount.of([tensor(embeddings, 100, 10), tensor(head, 100, 10), tensor(linear, 20, 10)])
    assert weights == WeightCount(total=2200, linear=1200, linear_rows=120, others=1000)
    assert LoadDtype.INT8.bytes_of(weights) == 1200 + 4 * 120 + 2 * 1000
    assert LoadDtype.INT8_CPU.bytes_of(weights) == 1200 + 4 * 120 + 4 * 1000
    assert LoadDtype.FLOAT32.bytes_of(weights) == 4 * 2200
    assert LoadDtype.BFLOAT16.bytes_of(weights) == LoadDtype.FLOAT16.bytes_of(weights) == 2 * 2200


@pytest.mark.parametrize("kind", NAMES)
def test_int8_gives_a_tied_head_a_copy_of_its_own_beside_the_embeddings(kind: str) -> None:
    embeddings, _, linear = NAMES[kind]
    weights = WeightCount.of([tensor(embeddings, 100, 10), tensor(linear, 20, 10)])
    assert weights == WeightCount(total=1200, linear=1200, linear_rows=120, others=1000)
    assert LoadDtype.INT8.bytes_of(weights) == 1200 + 4 * 120 + 2 * 1000
    assert LoadDtype.BFLOAT16.bytes_of(weights) == 2 * 1200


@pytest.mark.parametrize(
    ("name", "shape", "is_linear"),
    [
        ("model.layers.0.mlp.up_proj.weight", (5, 10), True),
        ("model.layers.0.mlp.shared_experts.up_proj.weight", (5, 10), True),
        ("model.layers.0.mlp.shared_expert_gate.weight", (1, 10), True),
        ("blk.0.ffn_up_shexp.weight", (5, 10), True),
        ("model.layers.0.mlp.experts.3.up_proj.weight", (5, 10), False),
        ("model.layers.0.mlp.gate.weight", (4, 10), False),
        ("blk.0.ffn_gate_inp.weight", (4, 10), False),
        ("blk.0.ffn_up_exps.weight", (4, 5, 10), False),
        ("model.layers.0.input_layernorm.weight", (10,), False),
        ("model.layers.0.self_attn.q_proj.bias", (10,), False),
    ],
)
def test_int8_leaves_experts_and_their_router_and_vectors_floats(
    name: str, shape: tuple[int, ...], is_linear: bool
) -> None:
    count = math.prod(shape)
    weights = WeightCount.of([tensor(name, *shape)])
    assert (weights.total, weights.linear, weights.others) == ((count, count, 0) if is_linear else (count, 0, count))


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
