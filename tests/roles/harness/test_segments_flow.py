"""Flow control inside segments: windows, credits, places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from omniflow.dsl import Graph
from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import Action, Audio, ElementType, Json, Signal, Tensor, Tokens, Value, ValueType
from omniflow_core.control.segments import SegmentCommand, SegmentRun
from omniflow_core.errors import Reason
from omniflow_roles.harness import segment
from omniflow_roles.noop import CountBlocking, Echo, Repeat, Step
from tests.roles.driver import Driver, Result, kinds
from tests.roles.running import driving, eventually
from tests.roles.segments import Holds, chain, inner_events, item, segment_command, story, yields_of

Counted = tuple[int, int, int, int]
"""Inner id, ordinal, bytes, stored bytes."""


def tensor(size_bytes: int) -> Tensor:
    return Tensor(ElementType.UINT8, (size_bytes,), bytes(size_bytes))


class Gives(Interface):
    """One value of each type, some of them too large for a frame."""

    name = "test.gives"
    inputs = groups(item=Field(ValueType.JSON))
    outputs = {
        "text": Field(ValueType.TEXT),
        "tokens": Field(ValueType.TOKENS),
        "small": Field(ValueType.TENSOR),
        "large": Field(ValueType.TENSOR),
        "audio": Field(ValueType.AUDIO),
        "action": Field(ValueType.ACTION),
        "blob": Field(ValueType.BYTES),
        "json": Field(ValueType.JSON),
        "signal": Field(ValueType.SIGNAL),
    }
    given: dict[str, Value] = {
        "text": "éé",
        "tokens": Tokens((1, 2, 3), "abc"),
        "small": tensor(65_536),
        "large": tensor(65_537),
        "audio": Audio(bytes(10), "audio/wav"),
        "action": Action("joints", tensor(20)),
        "blob": bytes(30),
        "json": Json({"a": [1, 2]}),
        "signal": Signal(),
    }
    weights = {
        "text": (2, 0),
        "tokens": (64, 0),
        "small": (65_536, 0),
        "large": (64, 65_537),
        "audio": (10, 0),
        "action": (20, 0),
        "blob": (30, 0),
        "json": (64, 0),
        "signal": (64, 0),
    }
    """What a value counts for that stays inside."""

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return self.given


class GivesInTurn(Gives):
    """The same as a generator, twice."""

    name = "test.gives_in_turn"

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:  # type: ignore[override]
        for _ in range(2):
            yield self.given


class Wants(Interface):
    """Takes whatever there is of what `Gives` gives."""

    name = "test.wants"
    inputs = groups(("main", {name: Field(field.type, is_optional=True) for name, field in Gives.outputs.items()}))
    outputs = {"text": Field(ValueType.TEXT)}

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"text": " ".join(inputs)}


def counted_by_run(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    """What the replica's run of a segment is told of yields."""
    counted: list[Counted] = []

    class Spy(SegmentRun):
        def yielded(self, inner_id: int, ordinal: int, fields: Any, size: int, stored: int) -> list[SegmentCommand]:
            counted.append((inner_id, ordinal, size, stored))
            return super().yielded(inner_id, ordinal, fields, size, stored)

        def finished(
            self, inner_id: int, count: int, last: Any = None, size: int = 0, stored: int = 0
        ) -> list[SegmentCommand]:
            if last is not None:
                counted.append((inner_id, count - 1, size, stored))
            return super().finished(inner_id, count, last, size, stored)

    monkeypatch.setattr(segment, "SegmentRun", Spy)
    return counted


def counted_by_peer(results: list[Result]) -> list[Counted]:
    """The same as the control plane counts it, by the messages alone."""
    found = []
    for inner_id, given in yields_of(results):
        stored = sum(value.tensor.payload.remote.size_bytes for value in given.fields.values())
        size, stored = given.ByteSize() + given.inside_bytes, stored + given.inside_stored_bytes
        found.append((inner_id, given.ordinal, size, stored))
    return found


@pytest.mark.parametrize("leaving", [(), ("large", "json"), tuple(Gives.outputs)])
@pytest.mark.parametrize("kind", [Gives, GivesInTurn])
async def test_both_sides_count_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Gives], leaving: tuple[str, ...]
) -> None:
    graph = Graph("test-weights")
    gives, wants = graph.node("gives", kind, role="test"), graph.node("wants", Wants, role="test")
    graph.input("item", ValueType.JSON) >> gives.item
    for name, field in Gives.outputs.items():
        getattr(gives, name) >> getattr(wants, name)
        if name in leaving:
            getattr(gives, name) >> graph.output(name, field.type)
    wants.text >> graph.output("told", ValueType.TEXT)
    counted = counted_by_run(monkeypatch)
    async with driving(tmp_path, kind(), Wants()) as (_, driver):
        await driver.send(segment_command(1, graph, "gives", item()))
        results = await driver.finish(1)
    assert kinds(results)[-1] == "completed"
    assert counted == counted_by_peer(results)
    given = yields_of(results)[0][1]
    inside = set(Gives.outputs) - set(leaving)
    assert set(given.inside_fields) == inside
    assert given.inside_bytes == sum(Gives.weights[name][0] for name in inside)
    assert given.inside_stored_bytes == sum(Gives.weights[name][1] for name in inside)


async def yields_until_still(driver: Driver, handle: int, count: int) -> list[tuple[int, int]]:
    """Inner ids and ordinals of the next yields; fails if more come before everything the replica does has been done."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        given = yields_of([await driver.next(handle)])
        found += [(inner_id, message.ordinal) for inner_id, message in given]
    await driver.start(1000 + count, "noop.echo", {"text": "what was due before this has come"})
    await driver.finish(1000 + count)
    while driver.pending(handle):
        assert not yields_of([await driver.next(handle)])
    return found


async def test_producer_inside_stops_at_its_window_until_the_control_plane_acknowledges(tmp_path: Path) -> None:
    async with driving(tmp_path, Step(), Repeat(), Echo(), acks=False, heartbeat_s=60) as (_, driver):
        graph = chain(Step, Repeat, b={"yield_window": 4})
        await driver.send(segment_command(1, graph, "a", item(b={"yields": 10})))
        assert await yields_until_still(driver, 1, 5) == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)]
        await driver.ack(1, 1)  # the entry has ended: nobody hears it
        await driver.ack(1, 2, inner=7)  # there is none
        await driver.ack(1, 2, inner=1)
        assert await yields_until_still(driver, 1, 2) == [(1, 4), (1, 5)]
        await driver.ack(1, 6, inner=1)
        await driver.ack(1, 10, inner=1)
        results = await driver.finish(1)
        assert inner_events(results)[-1].completed.yield_count == 10
        assert kinds(results)[-1] == "completed"


async def test_entry_waits_for_the_control_plane_too(tmp_path: Path) -> None:
    """What it gives leaves and stays: the receivers inside are quick, the one outside is not."""
    graph = chain(Repeat, Step)
    async with driving(tmp_path, Repeat(), Step(), Echo(), acks=False) as (_, driver):
        command = segment_command(1, graph, "a", item(a={"yields": 6}), yield_window=2)
        command.start.segment.exits.add(node="a", fields=["item"])
        await driver.send(command)
        given = await yields_until_still(driver, 1, 4)
        assert [(inner_id, ordinal) for inner_id, ordinal in given if inner_id == 0] == [(0, 0), (0, 1)]
        await driver.ack(1, 2)
        given = await yields_until_still(driver, 1, 4)
        assert [(inner_id, ordinal) for inner_id, ordinal in given if inner_id == 0] == [(0, 2), (0, 3)]
        await driver.ack(1, 6)
        assert kinds(await driver.finish(1))[-1] == "completed"


async def test_byte_credit_holds_inside(tmp_path: Path) -> None:
    class Bulky(Interface):
        """Ten tensors of which one is as much as may be undelivered."""

        name = "test.bulky"
        inputs = groups(item=Field(ValueType.JSON))
        outputs = {"tensor": Field(ValueType.TENSOR)}

        async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
            for _ in range(10):
                yield {"tensor": tensor(200_000)}

    graph = Graph("test-bulky")
    bulky = graph.node("bulky", Bulky, role="test")
    graph.input("item", ValueType.JSON) >> bulky.item
    bulky.tensor >> graph.output("tensor", ValueType.TENSOR)
    async with driving(tmp_path, Bulky(), Echo(), acks=False) as (_, driver):
        await driver.send(segment_command(1, graph, "bulky", item(), byte_credit=100_000))
        assert await yields_until_still(driver, 1, 1) == [(0, 0)]
        await driver.ack(1, 1)
        assert await yields_until_still(driver, 1, 1) == [(0, 1)]


async def test_producers_inside_need_no_acknowledgement_from_outside(tmp_path: Path) -> None:
    """Nothing of what they give leaves."""
    graph = chain(Repeat, Step, Step)
    async with driving(tmp_path, Repeat(), Step(), acks=False) as (_, driver):
        await driver.send(segment_command(1, graph, "a", item(a={"yields": 500}), yield_window=2))
        results = await driver.finish(1)
    assert kinds(results)[-1] == "completed"
    assert [given.ordinal for inner_id, given in yields_of(results) if inner_id == 0] == list(range(500))


class Words(Interface):
    """What becomes of texts, in a thread."""

    name = "test.words"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 2

    def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"text": str(inputs["text"]) + "!"}


class Letters(Interface):
    """The same a letter at a time, by a generator in a thread."""

    name = "test.letters"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 2

    def run(self, inputs: Inputs, context: Context) -> Iterator[Outputs]:
        for letter in str(inputs["text"]):
            yield {"text": letter}


@pytest.mark.parametrize("acks", [True, False])
async def test_threads_run_inside(tmp_path: Path, acks: bool) -> None:
    graph = Graph("test-threads")
    count, words, letters, echo = (
        graph.node(name, kind, role="test", yield_window=3)
        for name, kind in (("count", CountBlocking), ("words", Words), ("letters", Letters), ("echo", Echo))
    )
    graph.input("parameters", ValueType.JSON) >> count.parameters
    count.text >> words.text
    words.text >> letters.text
    letters.text >> echo.text
    echo.text >> graph.output("text", ValueType.TEXT)
    interfaces = (CountBlocking(), Words(), Letters(), Echo())
    async with driving(tmp_path, *interfaces, acks=acks) as (_, driver):
        await driver.send(segment_command(1, graph, "count", {"parameters": Json({"count": 200})}))
        results = await driver.finish(1)
    assert kinds(results)[-1] == "completed"
    texts = [given.fields["text"].text for _, given in yields_of(results) if given.fields]
    assert sorted(texts) == sorted("".join(f"{number}!" for number in range(200)))


async def test_no_more_than_so_many_of_a_node_wait_and_the_rest_follows(tmp_path: Path) -> None:
    class Narrow(Holds):
        name = "test.narrow"
        max_concurrency = 3

    narrow, limit = Narrow(), segment.MAX_PER_NODE
    async with driving(tmp_path, Repeat(), narrow, Echo()) as (server, driver):
        graph = chain(Repeat, Narrow, a={"yield_window": 8})
        await driver.send(segment_command(1, graph, "a", item(a={"yields": 300})))
        await eventually(lambda: server.host.load().waiting == limit - narrow.max_concurrency)
        await driver.start(2, "noop.echo", {"text": "what was due before this has come"})
        await driver.finish(2)
        load = server.host.load()
        assert (load.running, load.waiting) == (1 + narrow.max_concurrency, limit - narrow.max_concurrency)
        narrow.gates["b"].set()
        results = await driver.finish(1)
    started = [event for event in inner_events(results) if event.WhichOneof("event") == "started"]
    assert len(started) == 300
    assert kinds(results)[-1] == "completed"


async def test_loop_that_fans_out_does_not_wait_for_itself(tmp_path: Path) -> None:
    """As many as may run of other nodes give two more each, at the same time, and none ends before the first has a place."""
    limit = segment.MAX_PER_NODE
    all_run = asyncio.Barrier(limit)

    class Splits(Interface):
        name = "test.splits"
        inputs = groups(("first", {"depth": Field(ValueType.JSON)}), ("next", {"depth": Field(ValueType.JSON)}))
        outputs = {"depth": Field(ValueType.JSON)}
        max_concurrency = 1000

        async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
            depth = inputs["depth"]
            assert isinstance(depth, Json)
            if depth.value == 1:
                await all_run.wait()
            for _ in range((0, 2, limit)[depth.value]):
                yield {"depth": Json(depth.value - 1)}

    graph = Graph("test-splits")
    splits = graph.node("splits", Splits, role="test", loop_bound=1000, yield_window=1)
    graph.input("depth", ValueType.JSON) >> splits.inputs.first.depth
    splits.depth >> splits.inputs.next.depth
    async with driving(tmp_path, Splits(), acks=False) as (_, driver):
        await driver.send(segment_command(1, graph, "splits", {"depth": Json(2)}, yield_window=1))
        results = await driver.finish(1)
    assert kinds(results)[-1] == "completed"
    assert sum(event.WhichOneof("event") == "completed" for event in inner_events(results)) == 1 + 3 * limit


async def test_segment_counts_as_one_activation_of_the_replica(tmp_path: Path) -> None:
    holds = Holds()
    async with driving(tmp_path, Step(), holds, max_activations=1) as (_, driver):
        await driver.send(segment_command(1, chain(Step, Step, Holds), "a", item()))
        await eventually(lambda: holds.held)
        await driver.start(2, "noop.step", item())  # the entry has ended long ago
        error, is_retryable = await driver.error(2)
        assert (error.reason, is_retryable) == (Reason.TOO_MANY_CALLS, True)
        holds.gates["c"].set()
        assert kinds(await driver.finish(1))[-1] == "completed"
        await driver.start(3, "noop.step", item())
        assert kinds(await driver.finish(3))[-1] == "completed"


async def test_activations_inside_share_their_seat_with_everybody(tmp_path: Path) -> None:
    class One(Holds):
        name = "test.one"
        max_concurrency = 1

    one = One()
    async with driving(tmp_path, Step(), one) as (server, driver):
        await driver.start(1, "test.one", item())
        await driver.send(segment_command(2, chain(Step, One), "a", item()))
        await eventually(lambda: server.host.load().waiting == 1)
        assert one.held == ["test_one"]
        one.gates["b"].set()
        one.gates["test_one"].set()
        assert kinds(await driver.finish(2))[-1] == "completed"
    assert one.held == ["test_one", "b"]


async def test_entries_of_a_session_run_in_order_and_what_follows_them_does_not_wait(tmp_path: Path) -> None:
    class First(Holds):
        name = "test.first"
        max_concurrency = 8

    first, holds = First(), Holds()
    async with driving(tmp_path, first, holds) as (_, driver):
        for handle, ordinal in ((1, 1), (2, 2)):
            command = segment_command(handle, chain(First, Holds), "a", item(), session="s", session_ordinal=ordinal)
            await driver.send(command)
            await driver.expect(handle, "accepted")
        await eventually(lambda: first.held)
        assert first.held == ["a"]
        first.gates["a"].set()
        await eventually(lambda: holds.held == ["b", "b"])  # the first is still inside when the second entry has run
        holds.gates["b"].set()
        for handle in (1, 2):
            assert kinds(await driver.finish(handle))[-1] == "completed"


async def test_two_segments_of_a_call_run_side_by_side(tmp_path: Path) -> None:
    holds = Holds()
    graph = chain(Step, Holds, Step)
    async with driving(tmp_path, Step(), holds) as (_, driver):
        for handle, name in ((1, "x"), (2, "y")):
            await driver.send(segment_command(handle, graph, "a", item(name), call_id="c"))
        await eventually(lambda: holds.held == ["b", "b"])
        await driver.cancel(1)
        assert (await driver.error(1))[0].reason is Reason.CALL_CANCELLED
        holds.gates["b"].set()
        results = await driver.finish(2)
        assert kinds(results)[-1] == "completed"
        assert story(results)[-1] == "!c2"
        assert not driver.pending(1)
