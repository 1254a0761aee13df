"""Loading: what is good comes as it was saved, what is bad is refused before anything is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.checkpoints.findings import FindingCode
from tests.roles.engines.checkpoints import building as make

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(300)]

HEADS, KV_HEADS, WORDS = 4, 2, ["<s>", "</s>", "a", "b", "ab", "c"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "omniflow" / "checkpoints"


def tiny_llama() -> Any:
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=128,
    )
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def saved_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models  # type: ignore[import-not-found]
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)


def logits_of(model: Any) -> Any:
    import torch

    with torch.inference_mode():
        return model(torch.tensor([[0, 2, 4, 3, 5, 2]]), use_cache=False).logits


def write_gguf(file: Path, model: Any, *, has_tokenizer: bool) -> None:
    """The model as llama.cpp converts it: its own names, and query and key rows in the order of its rotation."""
    import gguf

    writer = gguf.GGUFWriter(file, "llama")
    config = model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(config.hidden_size // HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if has_tokenizer:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(WORDS)
        writer.add_token_types([3, 3, 1, 1, 1, 1])
        writer.add_token_merges(["a b"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        data = tensor.numpy()
        for part, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
            if part in name:
                data = data.reshape(heads, 2, -1, data.shape[1]).swapaxes(1, 2).reshape(data.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), data.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_directory_loads_as_it_was_saved(tmp_path: Path) -> None:
    import torch

    from omniflow_roles.engines.checkpoints.load import load_checkpoint

    model = tiny_llama()
    model.save_pretrained(tmp_path)
    saved_tokenizer(tmp_path)
    loaded = load_checkpoint(tmp_path, dtype=torch.float32)
    assert logits_of(loaded.model).equal(logits_of(model))
    assert not loaded.model.training
    assert loaded.report.weights is not None
    assert loaded.report.weights.total == sum(parameter.numel() for parameter in model.parameters())
    assert loaded.tokenizer is not None
    assert loaded.tokenizer("abc")["input_ids"] == [4, 5]
    assert load_checkpoint(tmp_path, dtype=torch.bfloat16).model.dtype is torch.bfloat16


def test_directory_in_shards_loads_without_a_tokenizer(tmp_path: Path) -> None:
    import torch

    from omniflow_roles.engines.checkpoints.load import load_checkpoint

    model = tiny_llama()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    loaded = load_checkpoint(tmp_path, dtype=torch.float32)
    assert logits_of(loaded.model).equal(logits_of(model))
    assert loaded.tokenizer is None


def test_checkpoint_with_errors_is_refused_with_all_of_them(tmp_path: Path) -> None:
    import torch

    from omniflow_roles.engines.checkpoints.load import load_checkpoint

    make.write_model(tmp_path, {**make.LLAMA, "auto_map": {"AutoModel": "code.Model"}})
    (tmp_path / "code.py").write_text("raise SystemExit('model code was imported')")
    (tmp_path / "model.safetensors").write_bytes(b"short")
    with pytest.raises(OmniFlowError) as caught:
        load_checkpoint(tmp_path, dtype=torch.float32)
    assert caught.value.reason is Reason.INVALID_CONFIG
    assert [violation.description.partition(":")[0] for violation in caught.value.violations] == [
        FindingCode.REMOTE_CODE,
        FindingCode.TRUNCATED,
    ]


def test_weights_that_only_the_model_misses_are_refused(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    from omniflow_roles.engines.checkpoints.inspect import inspect_model
    from omniflow_roles.engines.checkpoints.load import load_checkpoint

    tiny_llama().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    assert inspect_model(tmp_path).is_supported
    with pytest.raises(OmniFlowError, match=r"lacks weights of its model.*layers\.1\.mlp\.up_proj") as caught:
        load_checkpoint(tmp_path, dtype=torch.float32)
    assert caught.value.reason is Reason.INVALID_CONFIG

    tiny_llama().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    make.write_json(tmp_path / "config.json", {**config, "intermediate_size": 48})
    with pytest.raises(OmniFlowError, match="another shape"):
        load_checkpoint(tmp_path, dtype=torch.float32)


def test_adapter_and_other_dtypes_are_none_to_load(tmp_path: Path) -> None:
    import torch

    from omniflow_roles.engines.checkpoints.load import load_checkpoint

    with pytest.raises(OmniFlowError, match="is a LoRA adapter"):
        load_checkpoint(make.write_adapter(tmp_path), dtype=torch.float32)
    with pytest.raises(OmniFlowError, match=r"float32, bfloat16 or float16, not as torch\.int8"):
        load_checkpoint(tmp_path, dtype=torch.int8)


def test_gguf_gives_the_model_that_it_was_converted_from(tmp_path: Path, cache: Path) -> None:
    import torch

    from omniflow_roles.engines.checkpoints.load import load_checkpoint

    model = tiny_llama()
    folder = tmp_path / "model"
    folder.mkdir()
    write_gguf(folder / "Tiny Llama.gguf", model, has_tokenizer=True)
    loaded = load_checkpoint(folder, dtype=torch.float32)
    assert torch.allclose(logits_of(loaded.model), logits_of(model), atol=1e-6)
    assert loaded.report.weights is not None
    assert loaded.report.weights.total == sum(parameter.numel() for parameter in model.parameters())
    assert loaded.tokenizer is not None
    assert loaded.tokenizer("abc", add_special_tokens=False)["input_ids"] == [4, 5]
    [converted] = cache.iterdir()
    assert converted.name.startswith("tiny-llama-")
    assert logits_of(load_checkpoint(folder, dtype=torch.float32).model).equal(logits_of(loaded.model))

    half = load_checkpoint(folder / "Tiny Llama.gguf", dtype=torch.bfloat16)
    assert half.model.dtype is torch.bfloat16
    assert sorted(path.name for path in cache.iterdir()) == [converted.name, f"{converted.name}-bfloat16"]


def test_gguf_without_a_tokenizer_loads_without_one(tmp_path: Path, cache: Path) -> None:
    import torch

    from omniflow_roles.engines.checkpoints.load import load_checkpoint

    write_gguf(tmp_path / "model.gguf", tiny_llama(), has_tokenizer=False)
    for _ in ("converted", "from the cache"):
        assert load_checkpoint(tmp_path / "model.gguf", dtype=torch.float32).tokenizer is None


def test_gguf_loads_where_no_cache_can_be_written(tmp_path: Path, cache: Path) -> None:
    import torch

    from omniflow_roles.engines.checkpoints.load import load_checkpoint

    (tmp_path / "cache").write_text("a file is in the way")
    write_gguf(tmp_path / "model.gguf", tiny_llama(), has_tokenizer=False)
    loaded = load_checkpoint(tmp_path / "model.gguf", dtype=torch.float32)
    assert torch.allclose(logits_of(loaded.model), logits_of(tiny_llama()), atol=1e-6)


def test_conversion_that_fails_half_way_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from omniflow_roles.engines.checkpoints.load import load_checkpoint

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    write_gguf(tmp_path / "model.gguf", tiny_llama(), has_tokenizer=False)
    monkeypatch.setattr(os, "fsync", full)
    load_checkpoint(tmp_path / "model.gguf", dtype=torch.float32)
    assert list(cache.iterdir()) == []
