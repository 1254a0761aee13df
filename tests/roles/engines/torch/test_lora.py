"""Adapters of a running model against the mathematics: weights with the adapter merged into them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from omniflow_core.errors import OmniFlowError, Reason

torch = pytest.importorskip("torch", reason="the engine runs in the assistant environment")

from omniflow_roles.engines.torch.linears import quantise_linears  # noqa: E402
from omniflow_roles.engines.torch.lora import LoraAdapters, LoraLinear  # noqa: E402
from omniflow_roles.engines.torch.lora_tokens import NO_ADAPTER, GroupedTokens, StackedTokens  # noqa: E402
from tests.roles.engines.torch.adapters import ATTENTION, EVERY, Adapter, linears_of, write_adapter  # noqa: E402
from tests.roles.engines.torch.tiny import tiny_model  # noqa: E402

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(60)]

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
PROMPTS = ([5, 6, 7, 8, 9], [100, 101, 102], [20, 21, 22, 23, 24, 25, 26])


def ragged(model: Any, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits [tokens, vocabulary] of prompts in one row, each attending to itself only."""
    owner = torch.cat([torch.full((len(prompt),), index) for index, prompt in enumerate(prompts)])
    positions = torch.cat([torch.arange(len(prompt)) for prompt in prompts])
    is_seen = (owner[:, None] == owner) & (positions[:, None] >= positions)
    mask = torch.zeros(is_seen.shape).masked_fill_(~is_seen, -torch.inf)
    ids = torch.tensor([[token for prompt in prompts for token in prompt]])
    with torch.inference_mode():
        return model(
            input_ids=ids, position_ids=positions[None], attention_mask=mask[None, None], use_cache=False
        ).logits[0]


def scaled_model(kind: str) -> Any:
    """With weights of the usual size, so that logits are near 1 and a tolerance means something."""
    model = tiny_model(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(0.5)
    return model


@pytest.fixture
def a(tmp_path: Path) -> Adapter:
    return write_adapter(tmp_path / "a", linears_of(tiny_model("llama"), EVERY), rank=4, seed=1)


@pytest.fixture
def b(tmp_path: Path) -> Adapter:
    """Other linears, another rank and scale, and PEFT's rank-stabilised form."""
    linears = linears_of(tiny_model("llama"), ("q_proj", "down_proj"))
    return write_adapter(tmp_path / "b", linears, rank=2, alpha=3.0, seed=2, use_rslora=True)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_adapter_is_what_merging_it_gives(kind: str, a: Adapter) -> None:
    model = scaled_model(kind)
    plain = ragged(model, PROMPTS[:1])
    adapters = LoraAdapters(model, max_adapters=2, max_rank=8)
    index = adapters.load("a", a.folder)
    adapters.context.tokens = GroupedTokens.of([len(PROMPTS[0])], [index])
    merged = ragged(a.merge_into(scaled_model(kind)), PROMPTS[:1])
    assert float((merged - plain).abs().max()) > 0.05
    torch.testing.assert_close(ragged(model, PROMPTS[:1]), merged, **CLOSE)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_requests_with_different_adapters_in_one_batch_are_as_alone(kind: str, a: Adapter, b: Adapter) -> None:
    model = scaled_model(kind)
    adapters = LoraAdapters(model, max_adapters=3, max_rank=8)
    adapters.load("a", a.folder)
    adapters.load("b", b.folder)
    indices = [adapters.index("a"), NO_ADAPTER, adapters.index("b")]
    models = (a.merge_into(scaled_model(kind)), scaled_model(kind), b.merge_into(scaled_model(kind)))
    expected = torch.cat([ragged(own, [prompt]) for own, prompt in zip(models, PROMPTS, strict=True)])

    adapters.context.tokens = GroupedTokens.of([len(prompt) for prompt in PROMPTS], indices)
    torch.testing.assert_close(ragged(model, PROMPTS), expected, **CLOSE)

    places = [adapters.max_adapters if index == NO_ADAPTER else index for index in indices]
    lengths = torch.tensor([len(prompt) for prompt in PROMPTS])
    adapters.context.tokens = StackedTokens(places=torch.tensor(places).repeat_interleave(lengths))
    torch.testing.assert_close(ragged(model, PROMPTS), expected, **CLOSE)

    adapters.context.tokens = None
    torch.testing.assert_close(ragged(model, PROMPTS[1:2]), expected[5:8], **CLOSE)


def test_adapter_of_one_prompt_split_among_others_is_as_alone(a: Adapter) -> None:
    """Two requests of one adapter that are not next to each other: rows are indices, not a slice."""
    model = scaled_model("llama")
    adapters = LoraAdapters(model, max_adapters=1, max_rank=4)
    index = adapters.load("a", a.folder)
    adapters.context.tokens = GroupedTokens.of([len(prompt) for prompt in PROMPTS], [index, NO_ADAPTER, index])
    merged = a.merge_into(scaled_model("llama"))
    models = (merged, scaled_model("llama"), merged)
    expected = torch.cat([ragged(own, [prompt]) for own, prompt in zip(models, PROMPTS, strict=True)])
    torch.testing.assert_close(ragged(model, PROMPTS), expected, **CLOSE)


def test_patterns_of_ranks_and_alphas_are_what_merging_them_gives(tmp_path: Path) -> None:
    model = scaled_model("llama")
    linears = linears_of(model, ATTENTION)
    low = [name for name in linears if name.endswith("v_proj")]
    adapter = write_adapter(
        tmp_path / "p",
        linears,
        rank=4,
        ranks=dict.fromkeys(low, 2),
        alphas=dict.fromkeys(low, 5.0),
        rank_pattern={"v_proj": 2},
        alpha_pattern={r".*\.v_proj": 5.0},
        target_modules=r".*self_attn\.[qkvo]_proj",
    )
    adapters = LoraAdapters(model, max_adapters=1, max_rank=4)
    adapters.context.tokens = GroupedTokens.of([len(PROMPTS[0])], [adapters.load("p", adapter.folder)])
    expected = ragged(adapter.merge_into(scaled_model("llama")), PROMPTS[:1])
    torch.testing.assert_close(ragged(model, PROMPTS[:1]), expected, **CLOSE)


def test_all_linear_is_every_linear_but_the_head(tmp_path: Path) -> None:
    model = scaled_model("llama")
    adapter = write_adapter(tmp_path / "every", linears_of(model, EVERY), target_modules="all-linear")
    adapters = LoraAdapters(model, max_adapters=1, max_rank=4)
    adapters.load("every", adapter.folder)
    wrapped = {name for name, module in model.named_modules() if isinstance(module, LoraLinear)}
    assert wrapped == set(adapter.matrices)
    assert type(model.lm_head) is torch.nn.Linear


def test_adapter_adds_to_int8_linears(a: Adapter) -> None:
    """To what the quantised model gives, siblings that share a product included."""
    model = scaled_model("qwen2")
    quantise_linears(model)
    layer = model.model.layers[0].self_attn
    hidden = torch.randn(1, 4, 64)
    with torch.inference_mode():
        before = layer.q_proj(hidden).clone(), layer.k_proj(hidden).clone(), layer.v_proj(hidden).clone()
    adapters = LoraAdapters(model, max_adapters=2, max_rank=4)
    adapters.context.tokens = GroupedTokens.of([3, 1], [adapters.load("a", a.folder), NO_ADAPTER])
    with torch.inference_mode():
        after = layer.q_proj(hidden), layer.k_proj(hidden), layer.v_proj(hidden)
    for name, old, new in zip(("q_proj", "k_proj", "v_proj"), before, after, strict=True):
        down, up = a.matrices[f"model.layers.0.self_attn.{name}"]
        delta = hidden @ down.T @ up.T * a.scales[f"model.layers.0.self_attn.{name}"]
        delta[0, 3] = 0
        torch.testing.assert_close(new, old + delta, **CLOSE)
    assert ragged(model, [PROMPTS[0][:4]]).isfinite().all()


def test_bfloat16_adapters_have_the_models_dtype(a: Adapter) -> None:
    model = tiny_model("llama", dtype=torch.bfloat16)
    adapters = LoraAdapters(model, max_adapters=1, max_rank=4)
    adapters.context.tokens = GroupedTokens.of([3], [adapters.load("a", a.folder)])
    assert ragged_dtype(model) == torch.bfloat16
    assert adapters.size_bytes == sum(2 * 2 * 4 * (down.shape[1] + up.shape[0]) for down, up in a.matrices.values())


def ragged_dtype(model: Any) -> torch.dtype:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([PROMPTS[1]]), use_cache=False).logits.dtype


def test_unloaded_adapter_leaves_its_place_to_another(a: Adapter, b: Adapter) -> None:
    model = scaled_model("llama")
    plain = ragged(model, PROMPTS[:1])
    adapters = LoraAdapters(model, max_adapters=1, max_rank=4)
    place = adapters.load("a", a.folder)
    memory, version = adapters.size_bytes, adapters.layout_version
    adapters.unload("a")
    adapters.context.tokens = StackedTokens(places=torch.full((len(PROMPTS[0]),), place))
    torch.testing.assert_close(ragged(model, PROMPTS[:1]), plain, **CLOSE)

    assert adapters.load("b", b.folder) == place
    expected = ragged(b.merge_into(scaled_model("llama")), PROMPTS[:1])
    torch.testing.assert_close(ragged(model, PROMPTS[:1]), expected, **CLOSE)
    adapters.context.tokens = GroupedTokens.of([len(PROMPTS[0])], [place])
    torch.testing.assert_close(ragged(model, PROMPTS[:1]), expected, **CLOSE)
    assert (adapters.size_bytes, adapters.layout_version) == (memory, version)
    assert adapters.names == {"b": place}


def test_layout_version_grows_when_linears_are_wrapped(a: Adapter, b: Adapter) -> None:
    adapters = LoraAdapters(scaled_model("llama"), max_adapters=2, max_rank=4)
    assert adapters.layout_version == 0
    adapters.load("b", b.folder)
    assert adapters.layout_version == 1
    adapters.load("a", a.folder)  # targets more
    assert adapters.layout_version == 2


def test_model_without_adapters_is_not_wrapped() -> None:
    model = scaled_model("llama")
    LoraAdapters(model, max_adapters=2, max_rank=4)
    assert not any(isinstance(module, LoraLinear) for module in model.modules())


def test_load_that_is_refused_changes_nothing(a: Adapter, b: Adapter) -> None:
    model = scaled_model("llama")
    adapters = LoraAdapters(model, max_adapters=1, max_rank=2)
    with pytest.raises(OmniFlowError, match="rank 4") as caught:
        adapters.load("a", a.folder)
    assert caught.value.reason is Reason.INVALID_CONFIG
    assert not any(isinstance(module, LoraLinear) for module in model.modules())

    adapters.load("b", b.folder)
    for name, folder, reason in (
        ("b", b.folder, Reason.INVALID_FIELD),
        ("", b.folder, Reason.INVALID_FIELD),
        ("c", b.folder, Reason.POOL_EXHAUSTED),
    ):
        with pytest.raises(OmniFlowError) as caught:
            adapters.load(name, folder)
        assert caught.value.reason is reason
    assert adapters.names == {"b": 0}


def test_adapter_that_is_not_loaded_is_unknown(a: Adapter) -> None:
    adapters = LoraAdapters(scaled_model("llama"), max_adapters=1, max_rank=4)
    adapters.load("a", a.folder)
    for call in (adapters.index, adapters.unload):
        with pytest.raises(OmniFlowError, match="'french'") as caught:
            call("french")
        assert caught.value.reason is Reason.UNKNOWN_RESOURCE


@pytest.mark.parametrize("linear", ["lm_head", "model.layers.0.mlp.experts.0"])
def test_linears_that_are_not_given_all_tokens_take_no_adapter(tmp_path: Path, linear: str) -> None:
    """The head is given those that are drawn from, an expert those that are routed to it."""
    model = scaled_model("llama")
    model.model.layers[0].mlp.experts = torch.nn.ModuleList([torch.nn.Linear(64, 300)])
    adapter = write_adapter(tmp_path / "adapter", {linear: (64, 300)})
    adapters = LoraAdapters(model, max_adapters=1, max_rank=4)
    with pytest.raises(OmniFlowError, match="names no linear of this model that adapters can change"):
        adapters.load("x", adapter.folder)
