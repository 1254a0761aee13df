"""The table of families against the installed transformers: what their code does, on a tiny model of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omniflow_roles.engines.checkpoints.families import FAMILIES, GGUF_TYPES
from omniflow_roles.engines.checkpoints.findings import FindingCode
from omniflow_roles.engines.checkpoints.inspect import inspect_model

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(300)]

LAYERS, HEADS, KV_HEADS, SIZE, WINDOW = 4, 4, 2, 8, 5
TINY = {
    "vocab_size": 64,
    "hidden_size": HEADS * SIZE,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": SIZE,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "sliding_window": WINDOW,
    "use_sliding_window": True,
    "max_window_layers": 1,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
CHANGED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {
        "num_key_value_heads": HEADS,
        "head_dim": 4,
        "kv_lora_rank": 16,
        "q_lora_rank": None,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 4,
        "v_head_dim": 10,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
    },
    "qwen2_moe": {"use_sliding_window": False},
}
NAME = "test_windowed"


class Recorder:
    """An attention function that knows nothing but its arguments, and what it was given."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[int, int, int, int | None]] = {}
        """KV heads, key size, value size, window."""
        self.marks: set[object] = set()
        self.softcaps: set[float | None] = set()

    def attend(
        self,
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any,
        scaling: float | None = None,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        softcap: float | None = None,
        **kwargs: Any,
    ) -> tuple[Any, None]:
        import torch

        assert attention_mask is None
        assert scaling is not None
        assert module.is_causal
        assert kwargs.get("s_aux") is None
        assert module.layer_idx not in self.layers
        self.layers[module.layer_idx] = (key.shape[1], key.shape[3], value.shape[3], sliding_window)
        self.marks.add(kwargs.get("mark"))
        self.softcaps.add(softcap)
        repeats = query.shape[1] // key.shape[1]
        scores = query @ key.repeat_interleave(repeats, 1).transpose(-1, -2) * scaling
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if sliding_window is not None:
            allowed = allowed.triu(1 - sliding_window)
        weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
        return (weights @ value.repeat_interleave(repeats, 1)).transpose(1, 2).contiguous(), None


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    from transformers import AttentionInterface, AttentionMaskInterface

    recorder = Recorder()
    AttentionInterface.register(NAME, recorder.attend)
    AttentionMaskInterface.register(NAME, lambda *_, **__: None)
    yield recorder
    del AttentionInterface._global_mapping[NAME], AttentionMaskInterface._global_mapping[NAME]


def tiny_model(model_type: str) -> Any:
    """Random weights, far from zero so that a wrong mask or scale shows."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    torch.manual_seed(0)
    config = CONFIG_MAPPING[model_type](**{**TINY, **CHANGED.get(model_type, {})})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
    return model


@pytest.mark.parametrize("model_type", FAMILIES)
def test_family_has_its_class_and_the_defaults_of_its_config(model_type: str) -> None:
    import transformers
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    family = FAMILIES[model_type]
    assert MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type] == family.causal_class
    assert getattr(transformers, family.causal_class)._supports_attention_backend
    config = CONFIG_MAPPING[model_type]()
    assert config.max_position_embeddings == family.context_size
    assert config.tie_word_embeddings == family.is_tied
    if not family.is_latent:
        assert config.num_key_value_heads == (family.kv_heads or config.num_attention_heads)
        size = config.hidden_size // config.num_attention_heads
        assert (getattr(config, "head_dim", None) or size) == (family.head_dim or size)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_family_attends_through_the_interface_and_by_its_arguments_alone(model_type: str, recorder: Recorder) -> None:
    import torch

    model = tiny_model(model_type)
    ids = torch.randint(1, 64, (1, 17))
    with torch.inference_mode():
        expected = model(ids, use_cache=False).logits
        model.set_attn_implementation(NAME)
        logits = model(ids, use_cache=False, mark="kwargs come through").logits
    assert torch.allclose(logits, expected, atol=1e-4), (logits - expected).abs().max()
    assert sorted(recorder.layers) == list(range(LAYERS))
    assert recorder.marks == {"kwargs come through"}
    assert (recorder.softcaps != {None}) is FAMILIES[model_type].has_softcap


@pytest.mark.parametrize("model_type", FAMILIES)
def test_report_of_a_saved_model_says_what_it_does(model_type: str, recorder: Recorder, tmp_path: Path) -> None:
    import torch

    model = tiny_model(model_type)
    model.save_pretrained(tmp_path)
    model.set_attn_implementation(NAME)
    with torch.inference_mode():
        model(torch.randint(1, 64, (1, 9)), use_cache=False)

    report = inspect_model(tmp_path)
    assert [finding.code for finding in report.findings] == [FindingCode.NO_TOKENIZER], report.findings
    assert report.weights is not None
    assert report.weights.total == sum(parameter.numel() for parameter in model.parameters())
    config = report.config
    assert config is not None
    assert config.kv is not None
    sliding = dict.fromkeys(config.window.layers, config.window.size) if config.window else {}
    shape = (config.kv.head_count, config.kv.key_size, config.kv.value_size)
    assert {layer: (*shape, sliding.get(layer)) for layer in range(config.kv.layer_count)} == recorder.layers


def test_window_that_qwen2_moe_does_not_pass_on_is_the_reason_to_refuse_it(recorder: Recorder) -> None:
    import torch
    from transformers import AutoModelForCausalLM, Qwen2MoeConfig

    model = AutoModelForCausalLM.from_config(Qwen2MoeConfig(**TINY), attn_implementation=NAME).eval()
    with torch.inference_mode():
        model(torch.randint(1, 64, (1, 9)), use_cache=False)
    assert "sliding_attention" in model.config.layer_types
    assert {window for _, _, _, window in recorder.layers.values()} == {None}
    assert not FAMILIES["qwen2_moe"].passes_window


def test_refused_sinks_are_what_gpt_oss_passes() -> None:
    from transformers.models.gpt_oss import modeling_gpt_oss

    assert "s_aux=" in Path(modeling_gpt_oss.__file__).read_text()


def test_gguf_architectures_are_those_that_transformers_converts() -> None:
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    renamed = {"qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe"}
    assert {renamed.get(name, name) for name in GGUF_TYPES} <= set(GGUF_SUPPORTED_ARCHITECTURES)
    assert set(GGUF_TYPES.values()) <= set(FAMILIES)
