"""A role's models: loaded and unloaded while it answers, with checkpoints made in the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from omniflow.interface import Sampling
from omniflow.testing import InterfaceRun, run_interface
from omniflow.values import Json, Tokens
from omniflow_core.errors import OmniFlowError, Reason

torch = pytest.importorskip("torch", reason="models run in the assistant environment")

from omniflow_roles.models.text.interfaces import MODELS_VARIABLE, ROOT_VARIABLE, Generate, Models  # noqa: E402
from tests.roles.engines.torch.adapters import EVERY, linears_of, write_adapter  # noqa: E402
from tests.roles.engines.torch.tiny import generated, prompts, tiny_model, tiny_tokenizer  # noqa: E402

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(120)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with two models, an adapter of the first, and a folder that is no model."""
    for name, kind in (("one", "llama"), ("two", "qwen3")):
        tiny_model(kind).save_pretrained(tmp_path / name)
        tiny_tokenizer().save_pretrained(tmp_path / name)
    write_adapter(tmp_path / "tuned", linears_of(tiny_model("llama"), EVERY), seed=1)
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.fixture
async def role(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Generate, Models]]:
    """Both interfaces of one process; nothing is loaded."""
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    monkeypatch.delenv(MODELS_VARIABLE, raising=False)
    generate, models = Generate(), Models()
    await generate.setup()
    await models.setup()
    yield generate, models
    await generate.teardown()


async def manage(models: Models, **request: Any) -> list[dict[str, Any]]:
    run = await run_interface(models, request=Json(request))
    answer = run.yields[0]["answer"]
    assert isinstance(answer, Json)
    found: list[dict[str, Any]] = answer.value["models"]
    return found


async def generate_with(generate: Generate, max_tokens: int = 8, **request: Any) -> InterfaceRun:
    return await run_interface(
        generate, request=Json(request), sampling=Sampling(temperature=0.0, max_tokens=max_tokens)
    )


def ids(run: InterfaceRun) -> list[int]:
    return [token for outputs in run.yields if isinstance(t := outputs["tokens"], Tokens) for token in t.ids]


async def test_models_are_loaded_used_and_unloaded_while_the_role_runs(role: tuple[Generate, Models]) -> None:
    generate, models = role
    prompt = list(prompts(1)[0])
    assert [m["name"] for m in await manage(models, load="one", dtype="float32")] == ["one"]
    assert [m["name"] for m in await manage(models, load="two", dtype="float32")] == ["one", "two"]
    one, two = await asyncio.gather(
        generate_with(generate, tokens=prompt, model="one"), generate_with(generate, tokens=prompt, model="two")
    )
    assert ids(one) == generated(tiny_model("llama"), prompt, 8)
    assert ids(two) == generated(tiny_model("qwen3"), prompt, 8)
    assert one.usage.input_tokens == len(prompt)
    assert [m["name"] for m in await manage(models, unload="one")] == ["two"]
    with pytest.raises(OmniFlowError) as caught:
        await generate_with(generate, tokens=prompt, model="one")
    assert caught.value.reason is Reason.UNKNOWN_RESOURCE
    assert ids(await generate_with(generate, tokens=prompt)) == ids(two), "the only one needs no name"


async def test_unloading_waits_for_what_is_under_way(role: tuple[Generate, Models]) -> None:
    generate, models = role
    await manage(models, load="one", dtype="float32")
    running = asyncio.ensure_future(generate_with(generate, max_tokens=300, tokens=[1, 2, 3]))
    while not generate._host.models[0].user_count:
        await asyncio.sleep(0)
    assert await manage(models, unload="one") == []
    assert (await running).finish_reason in ("stop", "length"), "it was not cut off"


async def test_adapter_is_loaded_onto_a_running_model(role: tuple[Generate, Models], root: Path) -> None:
    generate, models = role
    prompt = list(prompts(1, seed=4)[0])
    await manage(models, load="one", dtype="float32")
    (summary,) = await manage(models, load_adapter="tuned", model="one")
    assert summary["adapters"] == ["tuned"]
    plain = await generate_with(generate, tokens=prompt)
    tuned = await generate_with(generate, tokens=prompt, adapter="tuned")
    assert ids(plain) == generated(tiny_model("llama"), prompt, 8) != ids(tuned)
    (summary,) = await manage(models, unload_adapter="tuned", model="one")
    assert summary["adapters"] == []


async def test_int8_is_what_a_cpu_loads_by_itself(role: tuple[Generate, Models]) -> None:
    generate, models = role
    if torch.cuda.is_available():
        pytest.skip("a GPU loads bfloat16")
    (summary,) = await manage(models, load="one")
    assert summary["dtype"] == "int8"
    assert ids(await generate_with(generate, prompt="<5><6><7>"))


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"load": "../one"}, Reason.INVALID_FIELD),
        ({"load": "nobody"}, Reason.UNKNOWN_RESOURCE),
        ({"load": "empty"}, Reason.INVALID_CONFIG),
        ({"load": "one", "dtype": "int3"}, Reason.INVALID_FIELD),
        ({"unload": "one"}, Reason.UNKNOWN_RESOURCE),
        ({"load": "one", "unload": "one"}, Reason.INVALID_FIELD),
        ({"lode": "one"}, Reason.INVALID_FIELD),
    ],
)
async def test_requests_that_cannot_be_carried_out_are_refused_by_name(
    role: tuple[Generate, Models], request_: dict[str, str], reason: Reason
) -> None:
    with pytest.raises(OmniFlowError) as caught:
        await manage(role[1], **request_)
    assert caught.value.reason is reason
    assert await manage(role[1]) == []


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({}, "call.inputs[request]"),
        ({"prompt": "a", "tokens": [1]}, "call.inputs[request]"),
        ({"tokens": ["a"]}, "call.inputs[request].tokens"),
        ({"messages": [{"role": "user"}]}, "call.inputs[request].messages[0]"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "call.inputs[request].messages"),
        ({"prompt": 7}, "call.inputs[request].prompt"),
    ],
)
async def test_prompts_that_are_none_are_refused_with_their_field(
    role: tuple[Generate, Models], request_: dict[str, Any], field: str
) -> None:
    generate, models = role
    await manage(models, load="one", dtype="float32")
    with pytest.raises(OmniFlowError) as caught:
        await generate_with(generate, **request_)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.violations[0].field == field


async def test_role_without_a_root_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    with pytest.raises(OmniFlowError, match=ROOT_VARIABLE):
        await Generate().setup()
