"""Models whose linears are int8: what is replaced, what is left, and that the model still says the same."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest

from omniflow_core.errors import OmniFlowError, Reason

torch = pytest.importorskip("torch", reason="the engine runs in the assistant environment")

from torch import nn  # noqa: E402

from omniflow_roles.engines.torch.int8 import Route  # noqa: E402
from omniflow_roles.engines.torch.linears import Int8Linear, quantise_linears  # noqa: E402
from omniflow_roles.engines.torch.siblings import Sibling  # noqa: E402
from tests.roles.engines.torch.tiny import CONFIGS, VOCABULARY, tiny_model  # noqa: E402

pytestmark = pytest.mark.assistant

IDS = torch.arange(3, 40)[None]
CHILDREN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=IDS, use_cache=False).logits[0].float()


def put_back(model: Any, quantised: Any) -> None:
    """Gives a float model the weights that the int8 one multiplies by."""
    for name, module in quantised.named_modules():
        if isinstance(module, Sibling):
            weights = module.joint.dequantised().split(module._product._sizes)
            model.get_submodule(name).weight = nn.Parameter(weights[module._index])
        elif isinstance(module, Int8Linear) and not name.endswith(".joint"):
            model.get_submodule(name).weight = nn.Parameter(module.dequantised())


@pytest.mark.parametrize("kind", CONFIGS)
def test_quantised_model_multiplies_by_its_dequantised_weights(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omniflow_roles.engines.torch.int8.choose_route", lambda device, in_features: Route.DEQUANTISED)
    model = tiny_model(kind)
    quantised = copy.deepcopy(model)
    assert quantise_linears(quantised).modules > 8
    put_back(model, quantised)
    torch.testing.assert_close(logits(quantised), logits(model), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3_moe"])
def test_quantised_model_says_nearly_the_same(kind: str, dtype: torch.dtype) -> None:
    model = tiny_model(kind, dtype=dtype)
    before = logits(model).log_softmax(-1)
    quantise_linears(model)
    after = logits(model).log_softmax(-1)
    assert float((before.exp() * (before - after)).sum(-1).mean()) < 0.05
    assert model(input_ids=IDS, use_cache=False).logits.dtype == dtype


def test_quantised_model_shares_products_between_siblings() -> None:
    model = tiny_model("qwen2")
    biases = [model.model.layers[0].self_attn.q_proj.bias, model.model.layers[0].self_attn.v_proj.bias]
    quantise_linears(model)
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
    assert attention.q_proj.joint is attention.k_proj.joint is attention.v_proj.joint
    assert mlp.gate_proj.joint is mlp.up_proj.joint
    assert isinstance(attention.o_proj, Int8Linear)
    assert isinstance(mlp.down_proj, Int8Linear)
    assert attention.q_proj.joint.bias[:64].equal(biases[0])
    assert attention.q_proj.joint.bias[-32:].equal(biases[1])


def test_quantised_head_leaves_the_tied_embedding_as_it_is() -> None:
    model = tiny_model("llama")
    model.config.tie_word_embeddings = True
    model.lm_head.weight = model.model.embed_tokens.weight
    embedding = model.model.embed_tokens.weight
    before = embedding.detach().clone()
    report = quantise_linears(model, skip=CHILDREN)
    assert isinstance(model.lm_head, Int8Linear)
    assert model.model.embed_tokens.weight is embedding
    assert embedding.equal(before)
    assert (report.modules, report.weights) == (1, VOCABULARY * 64)
    assert report.freed_bytes == -(VOCABULARY * 64 + VOCABULARY * 4)


def test_quantised_weights_free_the_floats() -> None:
    model = tiny_model("llama")
    watched = [weakref.ref(module.weight) for module in model.modules() if type(module) is nn.Linear]
    before = sum(p.numel() * p.element_size() for p in model.parameters())
    report = quantise_linears(model)
    gc.collect()
    assert [reference() for reference in watched] == [None] * len(watched)
    after = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
    buffers = sum(t.numel() * t.element_size() for name, t in model.named_buffers() if "rotary" in name)
    assert report.freed_bytes == before + buffers - after > 0


def test_quantised_report_counts_experts_among_the_floats() -> None:
    model = tiny_model("qwen3_moe")
    experts = {name: p for name, p in model.named_parameters() if p.dim() == 3}
    total = sum(p.numel() for p in model.parameters())
    before = {name: p.detach().clone() for name, p in experts.items()}
    report = quantise_linears(model)
    assert experts
    assert all(p.equal(before[name]) for name, p in model.named_parameters() if name in experts)
    assert report.weights + report.other_weights == total
    assert report.share == report.weights / total
    assert sum(p.numel() for p in experts.values()) < report.other_weights


def test_quantised_model_keeps_what_is_skipped() -> None:
    model = tiny_model("llama")
    whole = "model.layers.1.mlp.down_proj"
    quantise_linears(model, skip={"k_proj", whole, "lm_head"})
    assert type(model.lm_head) is nn.Linear
    assert type(model.get_submodule(whole)) is nn.Linear
    assert type(model.model.layers[0].mlp.down_proj) is Int8Linear
    attention = model.model.layers[0].self_attn
    assert [type(child) for child in (attention.q_proj, attention.k_proj, attention.v_proj)] == [
        Int8Linear,
        nn.Linear,
        Int8Linear,
    ]


@pytest.mark.parametrize(
    ("options", "message"), [({"bits": 4}, "8 bits, not to 4"), ({"skip": {"lm_hed"}}, "'lm_hed' is no linear")]
)
def test_quantise_refuses_what_it_cannot_do_and_changes_nothing(options: dict[str, Any], message: str) -> None:
    model = tiny_model("llama")
    with pytest.raises(OmniFlowError, match=message) as caught:
        quantise_linears(model, **options)
    assert caught.value.reason is Reason.INVALID_CONFIG
    assert not any(isinstance(module, Int8Linear | Sibling) for module in model.modules())
