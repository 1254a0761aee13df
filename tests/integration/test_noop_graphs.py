"""The noop graphs end to end: a control plane and a role process for each stage, also when processes die."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import omniflow
from omniflow import Audio, CallState, Event, Json, OmniFlowError, Output, Reason
from omniflow.dsl import Graph
from omniflow.events import Finished, Progress
from omniflow.values import ValueType
from omniflow_roles.noop import Gather, Repeat, Step
from omniflow_roles.noop.speech import code_of, pcm
from tests.integration.noop_system import (
    LOST_ROLE,
    Made,
    events_of,
    failure_of,
    inspected,
    item,
    items,
    made,
    noop_system,
    process_of,
    settled,
)
from tests.support.denoising import denoised
from tests.support.processes import wait_until
from tests.support.system import System

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SLOW = {"delay_s": 0.05}


def slow(*inputs: str, **options: Any) -> dict[str, Any]:
    """Options of a stage that takes its time, for some of its inputs."""
    return {"by_input": dict.fromkeys(inputs, SLOW), **options} if inputs else {**SLOW, **options}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system() -> AsyncIterator[System]:
    async with noop_system() as made_system:
        yield made_system


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(system: System) -> AsyncIterator[omniflow.Client]:
    async with system.connect() as connected:
        yield connected


# --- what each graph gives ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [{}, {"b": SLOW}])
async def test_chain_gives_its_item(client: omniflow.Client, stages: dict[str, Any]) -> None:
    events = await events_of(client.stream("noop-chain3", item=item(**stages)))
    assert items(events) == [made("x.a0.b0.c0")]


@pytest.mark.parametrize("stages", [{}, {"b": SLOW}, {"c": SLOW}])
async def test_diamond_joins_its_branches(client: omniflow.Client, stages: dict[str, Any]) -> None:
    events = await events_of(client.stream("noop-diamond4", item=item(**stages)))
    assert items(events) == [made("x.a0.j0", a=["x.a0.b0"], b=["x.a0.c0"])]


@pytest.mark.parametrize("stages", [{}, {"img": SLOW}, {"aud": SLOW}])
async def test_fan_joins_its_branches_and_the_short_cut(client: omniflow.Client, stages: dict[str, Any]) -> None:
    events = await events_of(client.stream("noop-fan5", item=item(**stages)))
    inputs = {"a": ["x.pre0.img0"], "b": ["x.pre0.aud0"], "c": ["x.pre0"]}
    assert items(events) == [made("x.pre0.agg0.out0", **inputs)]


@pytest.mark.parametrize("stages", [{}, {"b": slow("a0")}, {"c": slow("a1")}, {"j": slow("a0")}])
async def test_diamond_whose_source_repeats_joins_once_for_each_yield(
    client: omniflow.Client, stages: dict[str, Any]
) -> None:
    events = await events_of(client.stream("noop-source-repeats", item=item(**stages)))
    assert items(events) == [made(f"x.a{i}.j0", a=[f"x.a{i}.b0"], b=[f"x.a{i}.c0"]) for i in range(2)]


@pytest.mark.parametrize("stages", [{"c": {"yields": 3}}, {"b": SLOW, "c": {"yields": 3}}, {"c": slow(yields=3)}])
async def test_diamond_whose_branches_repeat_joins_all_in_one_list(
    client: omniflow.Client, stages: dict[str, Any]
) -> None:
    events = await events_of(client.stream("noop-intermediate-repeats", item=item(**stages)))
    assert items(events) == [made("x.a0.j0", a=["x.a0.b0", "x.a0.b1"], b=["x.a0.c0", "x.a0.c1", "x.a0.c2"])]


@pytest.mark.parametrize("stages", [{}, {"b": slow("a0")}, {"c": slow("a0"), "b": slow("a1")}])
async def test_diamond_in_which_all_repeats_keeps_the_yields_of_its_source_apart(
    client: omniflow.Client, stages: dict[str, Any]
) -> None:
    events = await events_of(client.stream("noop-both-repeat", item=item(**stages)))
    assert items(events) == [
        made(f"x.a{i}.j0", a=[f"x.a{i}.b0", f"x.a{i}.b1"], b=[f"x.a{i}.c0", f"x.a{i}.c1"]) for i in range(2)
    ]


def figure5(name: str = "x") -> list[Made]:
    """What figure 5 gives: D yields twice under C0, once under C1."""
    return [
        made(
            f"{name}.a0.c0.j0",
            a=[f"{name}.a0.c0.d0.h0", f"{name}.a0.c0.d1.h0"],
            b=[f"{name}.a0.c0.k0"],
        ),
        made(f"{name}.a0.c1.j0", a=[f"{name}.a0.c1.d0.h0"], b=[f"{name}.a0.c1.k0"]),
    ]


D_ONCE = {"by_input": {"c1": {"yields": 1}}}


@pytest.mark.parametrize(
    "stages",
    [{}, {"h": slow("d0")}, {"k": SLOW}, {"k": slow("c0"), "h": slow("d1")}, {"j": slow("c0")}],
    ids=["at_once", "h1_before_h0", "k_last", "c1_before_c0", "j1_before_j0"],
)
async def test_figure5_joins_once_for_each_yield_of_c(client: omniflow.Client, stages: dict[str, Any]) -> None:
    events = await events_of(client.stream("noop-figure5", item=item(**stages, d=D_ONCE)))
    assert items(events) == figure5()


async def test_64_concurrent_calls_of_figure5_mix_no_tags(client: omniflow.Client) -> None:
    async def call(i: int) -> list[Made]:
        stages = {"h": slow("d0"), "k": SLOW} if i % 2 else {}
        return items(await events_of(client.stream("noop-figure5", item=item(f"tag{i}", **stages, d=D_ONCE))))

    given = await asyncio.gather(*(call(i) for i in range(64)))
    assert given == [figure5(f"tag{i}") for i in range(64)]


def texts(events: list[Event]) -> list[object]:
    return [event.value for event in events if isinstance(event, Output) and event.field == "text"]


@pytest.mark.parametrize("session", [None, "figure4"])
@pytest.mark.parametrize(
    "stages",
    [{}, {"embed": SLOW}, {"vit": slow("parser1")}, {"vae": slow("parser1"), "vit": slow("parser2")}],
    ids=["at_once", "text_last", "image2_before_image1", "crossed"],
)
async def test_figure4_generates_in_the_order_of_frames_and_diffuses_once(
    client: omniflow.Client, stages: dict[str, Any], session: str | None
) -> None:
    frames = Json(["text", "image", "image", "text"])
    events = await events_of(client.stream("noop-figure4", item=item(**stages), frames=frames, session=session))
    sources = ["x.parser0.embed0", "x.parser1", "x.parser2", "x.parser3.embed0"]
    assert texts(events) == [f"{source}.llm{i}" for source in sources for i in range(2)]
    conditions = {node: [f"x.parser{i}.{node}0" for i in (1, 2)] for node in ("vit", "vae")}
    assert items(events, "image") == [made("x.diffusion0.decoder0", done=["x.parser3.embed0.llm2"], **conditions)]


async def test_figure4_without_an_image_diffuses_from_nothing_but_the_signal(client: omniflow.Client) -> None:
    events = await events_of(client.stream("noop-figure4", item=item(), frames=Json(["text"])))
    assert texts(events) == ["x.parser0.embed0.llm0", "x.parser0.embed0.llm1"]
    done = "x.parser0.embed0.llm2"
    assert items(events, "image") == [made(f"{done}.diffusion0.decoder0", done=[done], vit=[], vae=[])]


@pytest.mark.parametrize("stages", [{}, {"tool": SLOW}, {"llm": {"yields": 0}}])
async def test_agent_calls_its_tool_and_answers_once(client: omniflow.Client, stages: dict[str, Any]) -> None:
    events = await events_of(client.stream("noop-tools", item=item(**stages)))
    turns = 0 if "llm" in stages else 2
    steps = ["x" + ".llm1.tool0" * turn for turn in range(turns + 1)]
    assert texts(events) == [f"{step}.llm0" for step in steps]
    assert items(events, "answer") == [made(f"{steps[-1]}.llm1")]


async def test_agent_that_never_answers_fails_at_the_bound_of_its_loop(client: omniflow.Client) -> None:
    events, error = await failure_of(client.stream("noop-tools", item=item(llm={"yields": 20})))
    assert (error.reason, error.info.metadata["node"]) == (Reason.LOOP_BOUND_EXCEEDED, "llm")
    assert len(texts(events)) == 8


@pytest.mark.parametrize("stages", [{}, {"codes": slow("text0")}, {"wav": SLOW}, {"codes": {"yields": 6}}])
async def test_sound_of_chunks_is_the_sound_of_the_whole_in_the_order_of_texts(
    client: omniflow.Client, stages: dict[str, Any]
) -> None:
    count = stages.get("codes", {}).get("yields", 7)
    events = await events_of(client.stream("noop-speech", item=item(**stages)))
    pieces = [bytes(e.value.data) for e in events if isinstance(e, Output) and isinstance(e.value, Audio)]
    said = [[code_of(f"x.text{i}.codes{j}") for j in range(count)] for i in range(2)]
    assert b"".join(pieces) == b"".join(map(pcm, said))
    assert [len(piece) // 2 for piece in pieces] == ([3, 3, 1] if count == 7 else [3, 3]) * 2


async def test_denoising_loop_goes_round_as_often_as_asked_for(client: omniflow.Client) -> None:
    events = await events_of(client.stream("noop-denoise", parameters=Json({"steps": 7, "size_bytes": 100})))
    (digest,) = [event.value for event in events if isinstance(event, Output)]
    sha256 = hashlib.sha256(denoised(steps=7, size_bytes=100)).hexdigest()
    assert digest == Json({"size_bytes": 100, "sha256": sha256})
    (finished,) = [event for event in events if isinstance(event, Finished)]
    assert finished.usage.activations == 1 + 7 * 5 + 1


async def test_denoising_loop_that_goes_round_too_often_fails_naming_its_head(client: omniflow.Client) -> None:
    parameters = Json({"steps": 1001, "size_bytes": 16})
    events, error = await failure_of(client.stream("noop-denoise", parameters=parameters))
    assert (error.reason, error.info.metadata["node"]) == (Reason.LOOP_BOUND_EXCEEDED, "begin")
    assert not [event for event in events if isinstance(event, Output)]


# --- inputs that cannot come -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("branch", "field"), [("b", "a"), ("c", "b")])
async def test_branch_that_yields_nothing_ends_the_call_naming_what_is_missing(
    client: omniflow.Client, branch: str, field: str
) -> None:
    stages: dict[str, Any] = {branch: {"yields": 0}}
    events, error = await failure_of(client.stream("noop-intermediate-repeats", item=item(**stages)))
    assert items(events) == []
    assert error.reason is Reason.IMPOSSIBLE_INPUT
    assert {key: error.info.metadata[key] for key in ("node", "group", "missing")} == {
        "node": "j",
        "group": "main",
        "missing": field,
    }


async def test_diamond_whose_branches_both_yield_nothing_joins_nothing(client: omniflow.Client) -> None:
    nothing = {"yields": 0}
    events = await events_of(client.stream("noop-intermediate-repeats", item=item(b=nothing, c=nothing)))
    assert [event for event in events if isinstance(event, Output)] == []


# --- cancel ------------------------------------------------------------------------------------------------------------


async def held(stream: omniflow.EventStream) -> Progress:
    """Reads until a stage says that it holds."""
    async for event in stream:
        if isinstance(event, Progress):
            return event
    raise AssertionError("no stage held")


async def test_cancel_in_the_middle_of_a_join_leaves_nothing(system: System, client: omniflow.Client) -> None:
    stream = client.stream("noop-figure5", item=item(h={"by_input": {"d1": {"hold_at": 0}}}))
    await held(stream)

    async def waiting() -> object:
        return (await inspected(system, stream.call_id)).buckets

    await wait_until(waiting, what="a bucket of j")
    during = await inspected(system, stream.call_id)
    assert {(bucket.node, bucket.input_group) for bucket in during.buckets} == {("j", "main")}
    assert any(activation.node == "h" for activation in during.activations)
    assert await client.cancel(request_id=stream.request_id, reason="enough")
    _, error = await failure_of(stream)
    assert error.reason is Reason.CALL_CANCELLED
    status = await settled(client, stream.call_id)
    assert (status.state, status.active_activations) == (CallState.FAILED, 0)
    after = await inspected(system, stream.call_id)
    assert (len(after.activations), len(after.buckets), after.stored_bytes) == (0, 0, 0)
    assert items(await events_of(client.stream("noop-figure5", item=item(d=D_ONCE)))) == figure5()


async def test_cancel_lets_the_next_call_of_the_session_generate(system: System, client: omniflow.Client) -> None:
    frames = Json(["image", "text"])
    first = client.stream("noop-figure4", item=item(llm={"hold_at": 1}), frames=frames, session="cancelled")
    await held(first)
    (gate,) = (await inspected(system, first.call_id)).gates
    assert (gate.node, gate.running > 0) == ("llm", True)
    second = client.stream("noop-figure4", item=item(), frames=frames, session="cancelled", supersede=True)
    assert len(texts(await events_of(second))) == 4
    _, error = await failure_of(first)
    assert error.reason is Reason.CALL_SUPERSEDED


# --- replicas that die -------------------------------------------------------------------------------------------------


def replayed(name: str, *, role: str = LOST_ROLE, **options: Any) -> Graph:
    """a -> b -> c with a generator in the middle, whose replica is lost."""
    graph = Graph(f"replay-{name}")
    a, c = graph.node("a", Step, role="stage1"), graph.node("c", Step, role="stage4")
    b = graph.node("b", Repeat, role=role, **options)
    graph.input("item", ValueType.JSON) >> a.item
    a.item >> b.item
    b.item >> c.item
    c.item >> graph.output("item", ValueType.JSON)
    return graph


async def killed(
    system: System, client: omniflow.Client, graph: Graph, *, after: int, diverges: bool = False
) -> tuple[list[Made], OmniFlowError | None]:
    """Runs a graph whose b gives four items, and kills its replica after some of them; what came, and the error."""
    await client.apply(graph)
    options = {"yields": 4, "hold_at": after, "diverges": diverges}
    stream = client.stream(graph.name, item=item(b=options))
    events: list[Event] = []
    lost = None
    try:
        async for event in stream:
            events.append(event)
            if isinstance(event, Progress):
                lost = process_of(system, int(event.message))
                lost.restart()
    except OmniFlowError as error:
        failure: OmniFlowError | None = error
    else:
        failure = None
    assert lost is not None
    await settled(client, stream.call_id)
    return items(events), failure


def chain(*names: str) -> list[Made]:
    """What comes of items that b gave."""
    return [made(f"x.a0.{name}.c0") for name in names]


async def test_replica_lost_without_replay_fails_the_call_and_names_it(system: System, client: omniflow.Client) -> None:
    given, error = await killed(system, client, replayed("none"), after=2)
    assert given == chain("b0", "b1")[: len(given)]
    assert error is not None
    assert (error.reason, error.info.metadata["node"]) == (Reason.REPLICA_LOST, "b")
    assert error.info.metadata["replica"].startswith(f"{LOST_ROLE}/{LOST_ROLE}-")


async def test_replica_lost_before_it_gave_anything_is_run_again(system: System, client: omniflow.Client) -> None:
    given, error = await killed(system, client, replayed("restart", replay="restart"), after=0, diverges=True)
    assert error is None
    assert given == chain("b0!2", "b1!2", "b2!2", "b3!2")


async def test_replica_lost_after_it_gave_something_is_not_run_again(system: System, client: omniflow.Client) -> None:
    _, error = await killed(system, client, replayed("restart", replay="restart"), after=1)
    assert error is not None
    assert error.reason is Reason.REPLICA_LOST


async def test_deterministic_node_is_run_again_and_gives_nothing_twice(system: System, client: omniflow.Client) -> None:
    graph = replayed("deterministic", replay="restart", deterministic=True)
    given, error = await killed(system, client, graph, after=2)
    assert error is None
    assert given == chain("b0", "b1", "b2", "b3")


async def test_node_that_is_not_as_deterministic_as_it_says_fails_the_call(
    system: System, client: omniflow.Client
) -> None:
    graph = replayed("deterministic", replay="restart", deterministic=True)
    given, error = await killed(system, client, graph, after=2, diverges=True)
    assert given == chain("b0", "b1")[: len(given)]
    assert error is not None
    assert (error.reason, error.info.metadata["node"]) == (Reason.REPLAY_DIVERGED, "b")


async def test_replica_lost_in_the_middle_is_continued_by_another(system: System, client: omniflow.Client) -> None:
    graph = replayed("continue", replay="continue")
    given, error = await killed(system, client, graph, after=2, diverges=True)
    assert error is None
    assert given == chain("b0", "b1", "b2!2", "b3!2")


async def test_only_replica_that_is_lost_goes_on_in_its_next_life(system: System, client: omniflow.Client) -> None:
    graph = replayed("alone", role="stage3", replay="continue")
    given, error = await killed(system, client, graph, after=2, diverges=True)
    assert error is None
    assert given == chain("b0", "b1", "b2!2", "b3!2")


async def test_join_takes_what_a_branch_gave_before_and_after_its_replica_was_lost(
    system: System, client: omniflow.Client
) -> None:
    graph = Graph("replay-join")
    a, c, j = (
        graph.node("a", Step, role="stage1"),
        graph.node("c", Step, role="stage3"),
        graph.node("j", Gather, role="stage4"),
    )
    b = graph.node("b", Repeat, role=LOST_ROLE, replay="continue")
    graph.input("item", ValueType.JSON) >> a.item
    a.item >> [b.item, c.item]
    b.item >> j.a
    c.item >> j.b
    j.item >> graph.output("item", ValueType.JSON)
    given, error = await killed(system, client, graph, after=2, diverges=True)
    assert error is None
    assert given == [made("x.a0.j0", a=["x.a0.b0", "x.a0.b1", "x.a0.b2!2", "x.a0.b3!2"], b=["x.a0.c0"])]
