"""How segments end before their time: cancel, failure, deadline, drain, a lost stream."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from omniflow.codec.error import status_from_proto
from omniflow.dsl import Graph
from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import Json, ValueType
from omniflow_core.errors import Reason
from omniflow_roles.harness.replica import State
from omniflow_roles.harness.role_server import RoleServer
from omniflow_roles.noop import BeginStep, Block, Echo, Gather, Guide, PredictNoise, PrepareLatents, Repeat, Step
from omniflow_roles.noop.graphs import denoise
from tests.roles.driver import Driver, dial, kinds
from tests.roles.running import driving, eventually, running
from tests.roles.segments import Holds, chain, inner_events, item, segment_command, story

pytestmark = pytest.mark.usefixtures("transport")


class Predicts(PredictNoise):
    """Counts what it has run, and what it was told of cancelled calls."""

    def __init__(self) -> None:
        self.count = 0
        self.told: list[str] = []

    def on_cancel(self, call_id: str) -> None:
        self.told.append(call_id)

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        self.count += 1
        return await super().run(inputs, context)


def endless(handle: int = 1, **options: Any) -> messages.ExecuteCommand:
    """A loop that would take a while."""
    parameters = Json({"steps": 900, "size_bytes": 16, "delay_s": 0.001})
    return segment_command(handle, denoise.graph, "prepare", {"parameters": parameters}, outside={"vae"}, **options)


def denoiser(predicts: Predicts) -> tuple[Interface, ...]:
    return PrepareLatents(), BeginStep(), predicts, Guide(), Echo()


def is_still(server: RoleServer) -> bool:
    load = server.host.load()
    return not (load.running or load.waiting)


async def stays_ended(driver: Driver, server: RoleServer, predicts: Predicts, handle: int = 1) -> None:
    """Nothing of the loop runs on, and nothing more is said of it."""
    await eventually(lambda: is_still(server))
    count = predicts.count
    for round_trip in range(3):
        await driver.start(100 + round_trip, "noop.echo", {"text": "time goes by"})
        await driver.finish(100 + round_trip)
    assert predicts.count == count
    assert driver.pending(handle) == 0


async def test_cancel_stops_the_loop_and_is_reported_once(tmp_path: Path) -> None:
    predicts = Predicts()
    async with driving(tmp_path, *denoiser(predicts)) as (server, driver):
        await driver.send(endless())
        await eventually(lambda: predicts.count > 10)
        await driver.cancel(1, "changed my mind")
        error, is_retryable = await driver.error(1)
        assert (error.reason, error.message, is_retryable) == (Reason.CALL_CANCELLED, "changed my mind", False)
        assert predicts.told == ["call-1"]
        await driver.cancel(1)
        await stays_ended(driver, server, predicts)


async def test_cancel_of_the_call_stops_the_loop_on_the_independent_path(tmp_path: Path) -> None:
    predicts = Predicts()
    async with driving(tmp_path, *denoiser(predicts)) as (server, driver):
        await driver.send(endless(call_id="c"))
        await eventually(lambda: predicts.count > 10)
        request = messages.CancelActivationsRequest(call_id="c", reason="user left")
        assert (await driver.stub.CancelActivations(request)).cancelled == 1
        assert (await driver.stub.CancelActivations(request)).cancelled == 0
        error, _ = await driver.error(1)
        assert (error.reason, error.message) == (Reason.CALL_CANCELLED, "user left")
        assert predicts.told == ["c"]
        await stays_ended(driver, server, predicts)


async def test_cancel_before_the_entry_has_a_place_starts_nothing(tmp_path: Path) -> None:
    class One(Holds):
        name = "test.one"
        max_concurrency = 1

    one = One()
    async with driving(tmp_path, one, Step()) as (server, driver):
        await driver.start(1, "test.one", item())
        await driver.send(segment_command(2, chain(One, Step), "a", item()))
        await driver.expect(2, "accepted")
        await driver.cancel(2)
        assert kinds(await driver.finish(2)) == ["failed"]
        one.gates["test_one"].set()
        await driver.finish(1)
        await eventually(lambda: is_still(server))
        await server.host.wait_idle()
    assert one.held == ["test_one"]


async def test_cancel_takes_back_what_waits_for_a_place_inside(tmp_path: Path) -> None:
    class One(Holds):
        name = "test.one"
        max_concurrency = 1

    one = One()
    async with driving(tmp_path, Repeat(), one) as (server, driver):
        await driver.send(segment_command(1, chain(Repeat, One), "a", item(a={"yields": 200})))
        await eventually(lambda: server.host.load().waiting == 63)
        await driver.cancel(1)
        assert (await driver.error(1))[0].reason is Reason.CALL_CANCELLED
        await eventually(lambda: is_still(server))
        await server.host.wait_idle()
    assert one.held == ["b"]


async def test_cancel_stops_a_thread_inside(tmp_path: Path) -> None:
    graph = Graph("test-thread")
    echo, block = graph.node("echo", Feeds, role="test"), graph.node("block", Block, role="test")
    graph.input("parameters", ValueType.JSON) >> echo.parameters
    echo.parameters >> block.parameters
    block.text >> graph.output("text", ValueType.TEXT)
    async with driving(tmp_path, Feeds(), Block()) as (server, driver):
        await driver.send(segment_command(1, graph, "echo", {"parameters": Json({"seconds": 0.5})}))
        await eventually(lambda: server.host.load().running == 1)
        await driver.cancel(1)
        assert (await driver.error(1))[0].reason is Reason.CALL_CANCELLED
        await eventually(lambda: is_still(server))
        assert driver.pending(1) == 0


class Feeds(Interface):
    """Hands parameters on."""

    name = "test.feeds"
    inputs = groups(parameters=Field(ValueType.JSON))
    outputs = {"parameters": Field(ValueType.JSON)}

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return dict(inputs)


class Breaks(Step):
    """Fails for items of the names that it was given."""

    name = "test.breaks"

    def __init__(self, *names: str) -> None:
        self._names = names

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        given = inputs["item"]
        assert isinstance(given, Json)
        if given.value["name"] in self._names:
            raise RuntimeError("a secret")
        return await super().run(inputs, context)


def forked(**options: Any) -> Graph:
    """a -> {b, c}: one branch holds, the other breaks."""
    graph = Graph("test-forked")
    a, b = graph.node("a", Step, role="test"), graph.node("b", Holds, role="test")
    c = graph.node("c", Breaks, role="test", **options)
    graph.input("item", ValueType.JSON) >> a.item
    a.item >> [b.item, c.item]
    b.item >> graph.output("held", ValueType.JSON)
    c.item >> graph.output("broken", ValueType.JSON)
    return graph


async def test_failure_inside_ends_the_segment_with_its_error_and_its_node(tmp_path: Path) -> None:
    holds = Holds()
    async with driving(tmp_path, Step(), holds, Breaks("x.a0")) as (server, driver):
        await driver.send(segment_command(1, forked(), "a", item()))
        results = await driver.finish(1)
        assert story(results)[-1] == "*c2"
        failed, last = inner_events(results)[-1].failed, results[-1].failed
        error = status_from_proto(last.status)
        assert (error.reason, error.metadata["node"]) == (Reason.INTERFACE_FAILED, "c")
        assert "secret" not in str(results)
        assert failed.status == last.status
        await eventually(lambda: is_still(server))
        assert driver.pending(1) == 0


async def test_failure_of_the_entry_ends_the_segment(tmp_path: Path) -> None:
    async with driving(tmp_path, Step(), Breaks("x")) as (_, driver):
        await driver.send(segment_command(1, chain(Breaks, Step), "a", item()))
        results = await driver.finish(1)
    assert kinds(results) == ["accepted", "segment_step", "failed"]
    assert story(results) == ["*entry"]
    assert status_from_proto(results[-1].failed.status).metadata["node"] == "a"


async def test_failure_of_a_node_that_may_be_skipped_ends_itself_alone(tmp_path: Path) -> None:
    holds = Holds()
    async with driving(tmp_path, Step(), holds, Breaks("x.a0")) as (_, driver):
        await driver.send(segment_command(1, forked(on_failure="skip"), "a", item()))
        await eventually(lambda: holds.held)
        holds.gates["b"].set()
        results = await driver.finish(1)
    assert kinds(results)[-1] == "completed"
    assert story(results)[-3:] == ["*c2", "b1.0 item", "!b1"]


async def test_join_without_a_skipped_branch_is_impossible_inside(tmp_path: Path) -> None:
    graph = Graph("test-impossible")
    a, j = graph.node("a", Step, role="test"), graph.node("j", Gather, role="test")
    b, c = graph.node("b", Step, role="test"), graph.node("c", Breaks, role="test", on_failure="skip")
    graph.input("item", ValueType.JSON) >> a.item
    a.item >> [b.item, c.item]
    b.item >> j.a
    c.item >> j.b
    j.item >> graph.output("item", ValueType.JSON)
    async with driving(tmp_path, Step(), Gather(), Breaks("x.a0")) as (_, driver):
        await driver.send(segment_command(1, graph, "a", item()))
        error, is_retryable = await driver.error(1)
    assert (error.reason, is_retryable) == (Reason.IMPOSSIBLE_INPUT, False)
    assert error.metadata["node"] == "j"


async def test_loop_that_runs_too_often_is_ended(tmp_path: Path) -> None:
    predicts = Predicts()
    async with driving(tmp_path, *denoiser(predicts)) as (server, driver):
        command = endless()
        next(node for node in command.start.segment.nodes if node.name == "begin").loop_bound = 5
        await driver.send(command)
        error, is_retryable = await driver.error(1)
        assert (error.reason, is_retryable) == (Reason.LOOP_BOUND_EXCEEDED, False)
        assert error.metadata["node"] == "begin"
        assert predicts.count == 15
        await stays_ended(driver, server, predicts)


async def test_value_that_cannot_be_sent_ends_its_segment_and_not_the_stream(tmp_path: Path) -> None:
    class Wordy(Interface):
        name = "test.wordy"
        inputs = groups(item=Field(ValueType.JSON))
        outputs = {"text": Field(ValueType.TEXT)}

        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            return {"text": "x" * 1_100_000}

    graph = Graph("test-wordy")
    a, wordy = graph.node("a", Step, role="test"), graph.node("wordy", Wordy, role="test")
    graph.input("item", ValueType.JSON) >> a.item
    a.item >> wordy.item
    wordy.text >> graph.output("text", ValueType.TEXT)
    async with driving(tmp_path, Step(), Wordy(), Echo()) as (_, driver):
        await driver.send(segment_command(1, graph, "a", item()))
        results = await driver.finish(1)
        error = status_from_proto(results[-1].failed.status)
        assert (error.reason, error.metadata) == (Reason.INVALID_OUTPUT, {"node": "wordy", "output": "text"})
        assert story(results)[-2:] == ["+wordy1 below entry.0", "*wordy1"]  # and no yield
        await driver.start(2, "noop.echo", {"text": "still here"})
        await driver.finish(2)


async def test_deadline_ends_what_runs_inside_after_the_entry(tmp_path: Path) -> None:
    holds = Holds()
    async with driving(tmp_path, Step(), holds) as (server, driver):
        command = segment_command(1, chain(Step, Holds), "a", item())
        command.start.deadline.FromNanoseconds(int((time.time() + 0.5) * 1e9))
        await driver.send(command)
        error, _ = await driver.error(1)
        assert error.reason is Reason.DEADLINE_EXCEEDED
        assert holds.held == ["b"]
        await eventually(lambda: is_still(server))


async def test_drain_lets_a_segment_go_on_within_its_grace(tmp_path: Path) -> None:
    holds = Holds()
    async with driving(tmp_path, Step(), holds, acks=False) as (server, driver):
        await driver.send(segment_command(1, chain(Step, Holds, Step), "a", item()))
        await eventually(lambda: holds.held)
        server.drain(30.0)
        await eventually(lambda: server.host.state is State.DRAINING)
        await driver.start(2, "noop.step", item())
        assert (await driver.error(2))[0].reason is Reason.DRAINING
        holds.gates["b"].set()
        results = await driver.finish(1)
        assert kinds(results)[-1] == "completed"
        assert story(results)[-1] == "!c2"


async def test_drain_without_grace_ends_a_segment_that_another_replica_may_run(tmp_path: Path) -> None:
    predicts = Predicts()
    async with driving(tmp_path, *denoiser(predicts)) as (server, driver):
        await driver.send(endless())
        await eventually(lambda: predicts.count > 10)
        server.drain(0.0)
        error, is_retryable = await driver.error(1)
        assert (error.reason, is_retryable) == (Reason.DRAINING, True)


@pytest.mark.parametrize("end", ["drop", "half_close"])
async def test_end_of_the_stream_stops_everything_inside(tmp_path: Path, end: str) -> None:
    predicts = Predicts()
    async with running(tmp_path, *denoiser(predicts), heartbeat_s=0.05) as server:
        async with dial(server.identity.endpoint, server.identity.incarnation_id, acks=False) as leaving:
            await leaving.send(endless())
            await eventually(lambda: predicts.count > 10)
            result: Any = getattr(leaving, end)()
            if result is not None:
                await result
            await eventually(lambda: is_still(server))
        async with dial(server.identity.endpoint, server.identity.incarnation_id) as staying:
            await stays_ended(staying, server, predicts)
        await server.host.wait_idle()


async def test_released_call_leaves_no_loop_running(tmp_path: Path) -> None:
    predicts = Predicts()
    async with driving(tmp_path, *denoiser(predicts)) as (server, driver):
        await driver.send(endless(call_id="c"))
        await eventually(lambda: predicts.count > 10)
        await driver.stub.ReleaseCall(messages.ReleaseCallRequest(call_ids=["c"]))
        await driver.finish(1)
        await stays_ended(driver, server, predicts)


async def test_coroutine_inside_that_cleans_up_for_long_gives_its_place_away(tmp_path: Path) -> None:
    class Stubborn(Holds):
        name = "test.stubborn"
        max_concurrency = 1

        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            try:
                return await super().run(inputs, context)
            except asyncio.CancelledError:
                await self.gates["cleanup"].wait()
                raise

    stubborn = Stubborn()
    async with driving(tmp_path, Step(), stubborn, cleanup_grace_s=0.01) as (server, driver):
        await driver.send(segment_command(1, chain(Step, Stubborn), "a", item()))
        await eventually(lambda: stubborn.held)
        await driver.cancel(1)
        assert (await driver.error(1))[0].reason is Reason.CALL_CANCELLED
        stubborn.gates["test_stubborn"].set()
        await driver.start(2, "test.stubborn", item())
        assert kinds(await driver.finish(2))[-1] == "completed"
        await server.host.wait_idle()
        stubborn.gates["cleanup"].set()


async def test_progress_inside_is_told_on_the_handle(tmp_path: Path) -> None:
    class Reports(Step):
        name = "test.reports"

        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            context.progress(1, 2, "half of it")
            return await super().run(inputs, context)

    async with driving(tmp_path, Step(), Reports()) as (_, driver):
        await driver.send(segment_command(1, chain(Step, Reports), "a", item()))
        results = await driver.finish(1)
    (report,) = [result.progress for result in results if result.WhichOneof("result") == "progress"]
    assert (report.completed, report.total, report.message) == (1, 2, "half of it")
