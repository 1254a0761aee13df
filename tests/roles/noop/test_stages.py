"""Stages of the noop graphs: what they make of what they are given."""

from __future__ import annotations

import re
from typing import Any

import pytest

from omniflow.interface import Context, Inputs, Interface
from omniflow.testing import InterfaceRun, run_interface
from omniflow.values import Audio, Json, Tokens, Value
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.noop import Agent, Codes, Diffuse, Gather, Generate, Parse, Repeat, Step, Vocoder
from omniflow_roles.noop.items import Item
from omniflow_roles.noop.speech import PCM, code_of, pcm


def item(name: str, **stages: Any) -> Json:
    """An item; stages are options by interface: a node of `run_interface` has the name of its interface."""
    return Json({"name": name, "stages": {f"noop.{node}": options for node, options in stages.items()}})


def body(value: Value) -> dict[str, Any]:
    assert isinstance(value, Json)
    assert isinstance(value.value, dict)
    return value.value


def names(run: InterfaceRun, field: str = "item") -> list[str]:
    """Names of the items that an output gave, without the node that gave them."""
    given = [outputs[field] for outputs in run.yields if field in outputs]
    return [
        re.sub(r"noop\.\w+?(?=\d)", "", value if isinstance(value, str) else body(value)["name"]) for value in given
    ]


async def test_step_gives_one_item_for_each() -> None:
    run = await run_interface(Step, item=item("x", step={"yields": 3}, other={"delay_s": 1}))
    assert names(run) == ["x.0"]
    assert body(run.yields[0]["item"])["stages"] == {"noop.step": {"yields": 3}, "noop.other": {"delay_s": 1}}


@pytest.mark.parametrize(
    ("options", "made"),
    [
        ({}, ["x.a1.0", "x.a1.1"]),
        ({"yields": 0}, []),
        ({"yields": 3.0}, ["x.a1.0", "x.a1.1", "x.a1.2"]),
        ({"yields": 3, "by_input": {"a1": {"yields": 1}, "a0": {"yields": 2}}}, ["x.a1.0"]),
    ],
)
async def test_repeat_gives_as_many_as_asked_for(options: dict[str, Any], made: list[str]) -> None:
    assert names(await run_interface(Repeat, item=item("x.a1", repeat=options))) == made


async def collect(interface: Interface, value: Json, **context: Any) -> list[str]:
    """Names that an activation with this context gives."""
    known = Context(**{"call_id": "c", "activation_id": 1, "node": "n", **context})
    return [body(outputs["item"])["name"] async for outputs in interface.run(Inputs("main", {"item": (value,)}), known)]


async def test_repeat_goes_on_after_what_was_delivered() -> None:
    value = Json({"name": "x", "stages": {"n": {"yields": 3}}})
    assert await collect(Repeat(), value, attempt=2, delivered=({}, {})) == ["x.n2"]


async def test_only_later_attempts_give_other_values_where_they_are_to_diverge() -> None:
    value = Json({"name": "x", "stages": {"n": {"yields": 1, "diverges": True}}})
    assert await collect(Repeat(), value, attempt=1) == ["x.n0"]
    assert await collect(Repeat(), value, attempt=2) == ["x.n0!2"]


async def test_gather_tells_its_inputs_and_goes_on_from_what_they_have_in_common() -> None:
    run = await run_interface(Gather, a=(item("x.c10.h0"), item("x.c10.h1")), b=item("x.c10.k0"))
    assert names(run) == ["x.c10.0"]
    assert body(run.yields[0]["item"])["inputs"] == {"a": ["x.c10.h0", "x.c10.h1"], "b": ["x.c10.k0"]}
    assert names(await run_interface(Gather, a=item("x.c1"), b=item("x.c10"))) == ["x.0"]


async def test_parser_puts_each_frame_on_the_output_of_its_kind_and_counts_images() -> None:
    run = await run_interface(Parse, item=item("x"), frames=Json(["text", "image", "image"]))
    assert names(run, "text") == ["x.0"]
    assert names(run, "image") == ["x.1", "x.2"]
    assert [body(outputs["image"])["is_last"] for outputs in run.yields if "image" in outputs] == [False, True]
    assert run.yields[3:] == ({"vit_count": Json(2), "vae_count": Json(2)},)


@pytest.mark.parametrize("is_last", [False, True])
async def test_generation_says_that_it_is_done_after_the_last_frame_only(is_last: bool) -> None:
    vit, vae = (Item(name=f"x.p1.{node}0", is_last=is_last).value() for node in ("vit", "vae"))
    run = await run_interface(Generate, vit=vit, vae=vae)
    assert names(run, "text") == ["x.p1.0", "x.p1.1"]
    assert names(run, "done") == (["x.p1.2"] if is_last else [])


async def test_diffusion_takes_a_request_without_images() -> None:
    run = await run_interface(Diffuse, done=item("x.p0.llm2"), vit=(), vae=(), vit_count=Json(0.0), vae_count=Json(0.0))
    assert body(run.yields[0]["item"])["inputs"] == {"done": ["x.p0.llm2"], "vit": [], "vae": []}


async def test_agent_calls_a_tool_before_it_answers() -> None:
    run = await run_interface(Agent, group="prompt", item=item("x"))
    assert [list(outputs) for outputs in run.yields] == [["text"], ["call"]]


async def test_agent_answers_after_the_calls_that_were_asked_for() -> None:
    given = Context(call_id="c", activation_id=1, node="llm")
    value = Json({"name": "x.llm1.tool0.llm1.tool0", "stages": {}})
    yields = [outputs async for outputs in Agent().run(Inputs("result", {"item": (value,)}), given)]
    assert [list(outputs) for outputs in yields] == [["text"], ["answer"]]


async def test_sound_of_chunks_with_left_context_is_the_sound_of_the_whole() -> None:
    run = await run_interface(Codes, item=item("x"))
    codes = [outputs["codes"] for outputs in run.yields]
    assert len(codes) == 7
    ids = [code for value in codes if isinstance(value, Tokens) for code in value.ids]
    assert ids == [code_of(f"x.noop.codes{ordinal}") for ordinal in range(7)]
    sound = b""
    for start in range(0, 7, 3):
        said = 1 if start else 0
        chunk = Inputs("main", {"codes": tuple(codes[start - said : start + 3])}, context={"codes": said})
        outputs = await Vocoder().run(chunk, Context(call_id="c", activation_id=1, node="wav"))
        audio = outputs["wav"]
        assert isinstance(audio, Audio)
        assert audio.mime_type == PCM
        sound += bytes(audio.data)
    assert sound == pcm(ids)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (Json("x"), "item"),
        (Json({"name": 1}), "item"),
        (Json({"name": "x", "stages": []}), "item.stages"),
        (Json({"name": "x", "stages": {"noop.step": 1}}), "item.stages"),
        (item("x", step={"delay": 1}), "item.stages.noop.step"),
    ],
)
async def test_what_is_no_item_is_refused_and_named(given: Json, path: str) -> None:
    with pytest.raises(OmniFlowError) as caught:
        await run_interface(Step, item=given)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in caught.value.info.violations] == [path]
