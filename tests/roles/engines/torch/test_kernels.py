"""The Triton kernels against what they replace, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the kernels run in the assistant environment")
pytest.importorskip("triton")

from omniflow_roles.engines.torch import fusions, triton_store  # noqa: E402
from omniflow_roles.engines.torch.attention import (  # noqa: E402
    AttentionOptions,
    GatheredDecode,
    GatheredPrefill,
    Segment,
    SpanDecode,
)
from omniflow_roles.engines.torch.kv import KvTensors, LayerShape  # noqa: E402
from omniflow_roles.engines.torch.triton_decode import TritonDecode  # noqa: E402
from omniflow_roles.engines.torch.triton_prefill import TritonPrefill, blocks_of  # noqa: E402
from tests.roles.engines.torch.tiny import tiny_model  # noqa: E402

pytestmark = [
    pytest.mark.assistant,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),  # rows that are not stored
]

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PAGE = 16
SHAPES = {"grouped": (4, 2, 16, 16), "odd groups": (9, 3, 32, 32), "latent": (4, 4, 24, 16)}
OPTIONS = {"full": (None, None), "window": (7, None), "softcap": (None, 5.0)}


def pool(kv_heads: int, key_size: int, value_size: int) -> KvTensors:
    """60 pages of random keys and values."""
    torch.manual_seed(0)
    shape = LayerShape(kv_heads=kv_heads, key_size=key_size, value_size=value_size)
    kv = KvTensors.allocate([shape], page_count=60, page_size=PAGE, dtype=torch.float32, device=DEVICE)
    for tensor in (*kv.keys, *kv.values):
        tensor.normal_()
    return kv


def tables(rows: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Page tables in no order, and the slots that they stand for."""
    pages = torch.stack([torch.randperm(60)[:width] for _ in range(rows)]).to(DEVICE)
    return pages, (pages[:, :, None] * PAGE + torch.arange(PAGE, device=DEVICE)).view(rows, -1)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_decode_kernel_attends_as_the_gathered_one(shape: str, option: str) -> None:
    heads, kv_heads, key_size, value_size = SHAPES[shape]
    kv = pool(kv_heads, key_size, value_size)
    pages, slots = tables(4, 13)
    lengths = torch.tensor([1, 17, 130, 200], device=DEVICE)
    query = torch.randn(4, heads, key_size, device=DEVICE)
    options = AttentionOptions(scale=key_size**-0.5, window=OPTIONS[option][0], softcap=OPTIONS[option][1])
    expected = GatheredDecode(row_count=4, slots=slots, lengths=lengths).attend(kv, 0, query, options)
    found = TritonDecode(row_count=4, tables=pages, lengths=lengths, splits=6).attend(kv, 0, query, options)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_row_in_pages_that_follow_one_another_attends_as_the_gathered_one(shape: str, option: str) -> None:
    heads, kv_heads, key_size, value_size = SHAPES[shape]
    kv = pool(kv_heads, key_size, value_size)
    query = torch.randn(1, heads, key_size, device=DEVICE)
    options = AttentionOptions(scale=key_size**-0.5, window=OPTIONS[option][0], softcap=OPTIONS[option][1])
    slots = torch.arange(5 * PAGE, 9 * PAGE, device=DEVICE)[None]
    for length in (1, 6, 7, 50):
        lengths = torch.tensor([length], device=DEVICE)
        expected = GatheredDecode(row_count=1, slots=slots, lengths=lengths).attend(kv, 0, query, options)
        found = SpanDecode(begin=5 * PAGE, length=length).attend(kv, 0, query, options)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_prefill_kernel_attends_as_the_gathered_one(shape: str, option: str) -> None:
    heads, kv_heads, key_size, value_size = SHAPES[shape]
    kv = pool(kv_heads, key_size, value_size)
    pages, slots = tables(3, 13)
    chunks = [(3, 93, 0), (93, 98, 130), (98, 168, 33)]
    query = torch.randn(168, heads, key_size, device=DEVICE).transpose(0, 1)
    options = AttentionOptions(scale=key_size**-0.5, window=OPTIONS[option][0], softcap=OPTIONS[option][1])
    segments = tuple(
        Segment(begin=begin, end=end, prefix=prefix, slots=slots[row, : prefix + end - begin])
        for row, (begin, end, prefix) in enumerate(chunks)
    )
    expected = GatheredPrefill(segments=segments).attend(kv, 0, query, options)
    blocks = torch.from_numpy(blocks_of(chunks)).to(DEVICE)
    found = TritonPrefill(first_token=3, blocks=blocks, tables=pages).attend(kv, 0, query, options)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_store_kernel_writes_slots_and_nothing_else(shape: str) -> None:
    _, kv_heads, key_size, value_size = SHAPES[shape]
    kv, plain = pool(kv_heads, key_size, value_size), pool(kv_heads, key_size, value_size)
    slots = torch.randperm(60 * PAGE)[:7].to(DEVICE)
    keys = torch.randn(kv_heads, 7, key_size, device=DEVICE).transpose(0, 1)
    values = torch.randn(kv_heads, 7, value_size, device=DEVICE).transpose(0, 1)
    triton_store.store(kv.keys[0], kv.values[0], slots, keys, values)
    plain.keys[0][slots] = keys
    plain.values[0][slots] = values
    assert torch.equal(kv.keys[0], plain.keys[0])
    assert torch.equal(kv.values[0], plain.values[0])


@pytest.mark.parametrize(("kind", "norms", "rotations"), [("llama", 5, 1), ("qwen3", 9, 1), ("gemma2", 0, 1)])
def test_fused_model_gives_the_same_logits(
    kind: str, norms: int, rotations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma's norms scale by 1 + weight: they are tried, found to differ, and left as they are."""
    import importlib

    home = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    monkeypatch.setattr(home, "apply_rotary_pos_emb", home.apply_rotary_pos_emb)  # restored afterwards
    model = tiny_model(kind).to(DEVICE)
    ids = torch.randint(0, 290, (1, 9), device=DEVICE)
    with torch.inference_mode():
        before = model(ids).logits
        assert fusions.fuse(model) == (norms, rotations)
        torch.testing.assert_close(model(ids).logits, before, rtol=1e-4, atol=1e-4)


def test_rotation_kernel_turns_as_the_model_does() -> None:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    q = torch.randn(1, 7, 5, 24, device=DEVICE).transpose(1, 2)
    k = torch.randn(1, 7, 2, 24, device=DEVICE).transpose(1, 2)
    angles = torch.randn(1, 7, 12, device=DEVICE)
    cos, sin = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()
    for found, expected in zip(fusions.rotate(q, k, cos, sin), apply_rotary_pos_emb(q, k, cos, sin), strict=True):
        torch.testing.assert_close(found, expected)
