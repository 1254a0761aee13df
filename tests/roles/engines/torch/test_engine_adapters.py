"""LoRA adapters in a running engine: each request with its own, batched together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omniflow_core.errors import OmniFlowError, Reason

torch = pytest.importorskip("torch", reason="the engine runs in the assistant environment")

from tests.roles.engines.torch.adapters import EVERY, linears_of, write_adapter  # noqa: E402
from tests.roles.engines.torch.tiny import answers, engine_of, generated, greedy, prompts, tiny_model  # noqa: E402

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(60)]

ROOM: dict[str, Any] = {"page_size": 4, "pool_tokens": 4096, "max_adapters": 2, "max_adapter_rank": 8}


@pytest.mark.parametrize("is_overlapped", [False, True])
async def test_requests_with_adapters_answer_as_models_with_merged_weights(tmp_path: Path, is_overlapped: bool) -> None:
    linears = linears_of(tiny_model("llama"), EVERY)
    a = write_adapter(tmp_path / "a", linears, seed=1)
    b = write_adapter(tmp_path / "b", linears, rank=2, seed=2)
    given = prompts(12)
    models = {"": tiny_model("llama"), "a": a.merge_into(tiny_model("llama")), "b": b.merge_into(tiny_model("llama"))}
    names = [("", "a", "b")[index % 3] for index in range(12)]
    expected = [generated(models[name], prompt, 16) for name, prompt in zip(names, given, strict=True)]
    async with engine_of(tiny_model("llama"), **ROOM, is_overlapped=is_overlapped) as engine:
        await engine.load_adapter("a", a.folder)
        await engine.load_adapter("b", b.folder)
        asked = [greedy(prompt, 16, adapter=name) for name, prompt in zip(names, given, strict=True)]
        assert await answers(engine, asked) == expected
    assert expected[1] != generated(models[""], given[1], 16), "the adapter changes the answer"


async def test_adapter_of_the_same_name_is_not_given_what_the_last_one_computed(tmp_path: Path) -> None:
    linears = linears_of(tiny_model("llama"), EVERY)
    first = write_adapter(tmp_path / "1", linears, seed=1)
    second = write_adapter(tmp_path / "2", linears, seed=2)
    prompt = prompts(1, seed=3)[0] * 3
    async with engine_of(tiny_model("llama"), **ROOM) as engine:
        await engine.load_adapter("x", first.folder)
        (before,) = await answers(engine, [greedy(prompt, 8, adapter="x")])
        await engine.unload_adapter("x")
        await engine.load_adapter("x", second.folder)
        (after,) = await answers(engine, [greedy(prompt, 8, adapter="x")])
    assert before == generated(first.merge_into(tiny_model("llama")), prompt, 8)
    assert after == generated(second.merge_into(tiny_model("llama")), prompt, 8)


async def test_adapter_in_use_is_not_unloaded(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "a", linears_of(tiny_model("llama"), EVERY))
    async with engine_of(tiny_model("llama"), **ROOM) as engine:
        await engine.load_adapter("a", adapter.folder)
        running = engine.generate(greedy(prompts(1)[0], 400, adapter="a"))
        await anext(running)
        with pytest.raises(OmniFlowError) as caught:
            await engine.unload_adapter("a")
        assert caught.value.reason is Reason.CONFLICT
        await running.aclose()  # type: ignore[attr-defined]
        await engine.unload_adapter("a")


async def test_adapter_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with engine_of(tiny_model("llama"), **ROOM) as engine:
        with pytest.raises(OmniFlowError) as caught:
            await answers(engine, [greedy((1, 2), 4, adapter="nobody")])
        assert caught.value.reason is Reason.UNKNOWN_RESOURCE
        assert "nobody" in caught.value.message
        with pytest.raises(OmniFlowError) as broken:
            await engine.load_adapter("a", tmp_path)
        assert broken.value.reason is Reason.INVALID_CONFIG
    async with engine_of(tiny_model("llama"), page_size=4, pool_tokens=512) as engine:
        with pytest.raises(OmniFlowError, match="max_adapters"):
            await answers(engine, [greedy((1, 2), 4, adapter="a")])
