"""Pipelines between role servers, with the test as their control plane. Over every transport."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from omniflow.interface import Context, Field, Inputs, groups
from omniflow.large_values import ValueFetcher, decode
from omniflow.links.dialing import session
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import ValueType
from omniflow_core.errors import Reason
from omniflow_roles.harness import peers
from omniflow_roles.harness.role_server import RoleServer
from tests.roles.driver import dial, kinds
from tests.roles.harness.pipelines import (
    EXIT,
    TEXT,
    Gate,
    Letters,
    Mark,
    Words,
    entry_command,
    exits,
    pipeline,
    replicas,
    stage,
    texts,
    told,
)
from tests.roles.running import eventually
from tests.support.fault_proxy import FaultProxy

pytestmark = pytest.mark.usefixtures("transport")


def is_still(servers: Sequence[RoleServer]) -> bool:
    loads = [server.host.load() for server in servers]
    return not any(load.running or load.waiting for load in loads)


async def test_yields_go_from_replica_to_replica_and_leave_in_the_order_of_their_paths(tmp_path: Path) -> None:
    async with replicas(tmp_path, [Words()], [Letters()], [Mark()]) as (servers, (a, _, c)):
        way = pipeline(stage(servers[1], "b", "test.letters"), stage(servers[2], "c", "test.mark"))
        await a.send(entry_command(1, "test.words", "ab c", way))
        assert told(await exits(c, 3)) == [(0, (7, 0, 0, 0), "ac"), (1, (7, 0, 1, 0), "bc"), (2, (7, 1, 0, 0), "cc")]
        results = await a.finish(1)
        assert kinds(results) == ["accepted", "completed"]
        end: messages.ActivationCompleted = results[-1].completed
        assert (end.yield_count, end.started_activations) == (3, 5)
        assert (end.usage.input_tokens, end.usage.output_tokens) == (3, 2)
        await eventually(lambda: is_still(servers))
        assert c.pending(EXIT) == 0


@pytest.mark.parametrize("window", [1, 2, 5])
async def test_long_stream_through_small_windows_arrives_whole(tmp_path: Path, window: int) -> None:
    letters = "abcdefghij" * 4
    async with replicas(tmp_path, [Words()], [Letters()], [Mark()]) as (servers, (a, _, c)):
        small = {"yield_window": window, "activation_window": window}
        way = pipeline(
            stage(servers[1], "b", "test.letters", **small),
            stage(servers[2], "c", "test.mark", **small),
            yield_window=window,
        )
        await a.send(entry_command(1, "test.words", f"{letters} _ {letters} {letters}", way, yield_window=window))
        assert texts(await exits(c, 120)) == [f"{letter}c" for letter in letters * 3]
        assert (await a.finish(1))[-1].completed.yield_count == 120


async def test_exit_that_is_not_acknowledged_holds_the_first_node_back(tmp_path: Path) -> None:
    async with replicas(tmp_path, [Words()], [Mark()], acks=False) as (servers, (a, b)):
        way = pipeline(stage(servers[1], "b", "test.mark", activation_window=2), yield_window=3)
        await a.send(entry_command(1, "test.words", "a b c d e f g h i j", way, yield_window=2))
        assert texts(await exits(b, 3)) == ["ab", "bb", "cb"]
        await b.start(2, "test.mark", {"text": "time goes by"})
        await b.finish(2)
        await a.expect(1, "accepted")
        assert (a.pending(1), b.pending(EXIT)) == (0, 0)
        await b.ack(EXIT, 3)
        assert texts(await exits(b, 3)) == ["db", "eb", "fb"]
        await b.ack(EXIT, 6)
        await exits(b, 3)
        await b.ack(EXIT, 9)
        assert told(await exits(b, 1)) == [(9, (7, 9, 0), "jb")]
        assert (await a.finish(1))[-1].completed.yield_count == 10


async def test_several_pipelines_share_the_links_between_replicas(tmp_path: Path) -> None:
    async with replicas(tmp_path, [Words()], [Mark()]) as (servers, (a, b)):
        for handle in range(1, 9):
            way = pipeline(stage(servers[1], "b", "test.mark"), exit_handle=EXIT + handle, path=[handle])
            await a.send(entry_command(handle, "test.words", f"x{handle} y{handle}", way))
        for handle in range(1, 9):
            found = told(await exits(b, 2, handle=EXIT + handle))
            assert found == [(0, (handle, 0, 0), f"x{handle}b"), (1, (handle, 1, 0), f"y{handle}b")]
            await a.finish(handle)
        assert len(servers[0].peers) == 1


async def test_yields_leave_by_the_newest_link_of_the_control_plane(tmp_path: Path) -> None:
    async with replicas(tmp_path, [Words()], [Mark()]) as (servers, (a, older)):
        last = servers[1].identity
        async with dial(last.endpoint, last.incarnation_id) as newer:
            await a.send(entry_command(1, "test.words", "x", pipeline(stage(servers[1], "b", "test.mark"))))
            assert texts(await exits(newer, 1)) == ["xb"]
            assert older.pending(EXIT) == 0
            older.drop()
            await a.send(
                entry_command(2, "test.words", "y", pipeline(stage(servers[1], "b", "test.mark"), exit_handle=9))
            )
            assert texts(await exits(newer, 1, handle=9)) == ["yb"]


async def test_stages_of_one_replica_are_reached_like_those_of_others(tmp_path: Path) -> None:
    async with replicas(tmp_path, [Words(), Mark()], [Letters()]) as (servers, (a, _)):
        way = pipeline(stage(servers[1], "b", "test.letters"), stage(servers[0], "c", "test.mark"))
        await a.send(entry_command(1, "test.words", "ab cd", way))
        assert texts(await exits(a, 4)) == ["ac", "bc", "cc", "dc"]
        assert (await a.finish(1))[-1].completed.started_activations == 6


class Blobs(Words):
    """Its text so often that no frame takes it along."""

    name = "test.blobs"
    inputs = groups(text=TEXT, blob=Field(ValueType.BYTES, is_optional=True))
    outputs: ClassVar = {"text": TEXT, "blob": Field(ValueType.BYTES)}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        blob = bytes(cast("memoryview", inputs.get("blob", b"")))
        for letter in str(inputs["text"]):
            yield {"text": letter, "blob": blob + letter.encode() * 100_000}


BLOBS = (
    messages.PipelineRoute(output_field="text", input_field="text"),
    messages.PipelineRoute(output_field="blob", input_field="blob"),
)


async def test_large_values_are_fetched_from_stage_to_stage_and_kept_while_they_are_needed(tmp_path: Path) -> None:
    async with replicas(tmp_path, [Blobs()], [Blobs()]) as (servers, (a, b)), ValueFetcher() as fetcher:
        way = pipeline(stage(servers[1], "b", "test.blobs", routes=BLOBS), fields=["blob"])
        await a.send(entry_command(1, "test.blobs", "xyz", way, call_id="call"))
        outputs = [getattr(result, "yield") for result in await exits(b, 3)]
        await a.finish(1)
        assert servers[0].store.used_bytes == 0
        assert servers[1].store.used_bytes == 3 * 200_000
        last = await decode(outputs[2].fields["blob"], fetcher)
        assert last == b"z" * 200_000
        await b.stub.ReleaseCall(messages.ReleaseCallRequest(call_ids=["call"]))
        assert servers[1].store.used_bytes == 0


# --- failures -----------------------------------------------------------------------------------------------------------


class Picky(Mark):
    """Cannot bear texts that begin with "bad"."""

    name = "test.picky"

    async def run(self, inputs: Inputs, context: Context) -> Any:
        if str(inputs["text"]).startswith("bad"):
            raise RuntimeError("secret")
        return await super().run(inputs, context)


async def test_failure_of_the_last_node_ends_the_pipeline_with_its_error(tmp_path: Path) -> None:
    async with replicas(tmp_path, [Words()], [Mark()], [Picky()]) as (servers, (a, _, c)):
        way = pipeline(stage(servers[1], "b", "test.mark"), stage(servers[2], "c", "test.picky"))
        await a.send(entry_command(1, "test.words", "x bad y z", way))
        error, is_retryable = await a.error(1)
        assert (error.reason, error.metadata["node"], is_retryable) == (Reason.INTERFACE_FAILED, "c", False)
        assert texts(await exits(c, 1)) == ["xbc"]
        await eventually(lambda: is_still(servers))
        await c.start(2, "test.picky", {"text": "time goes by"})
        await c.finish(2)
        assert c.pending(EXIT) == 0


@contextlib.asynccontextmanager
async def under_way(folder: Path) -> AsyncIterator[tuple[list[RoleServer], list[Any], Gate]]:
    """A pipeline whose last node waits for its gates, all of its activations started."""
    gate = Gate()
    async with replicas(folder, [Words()], [Mark()], [gate]) as (servers, drivers):
        way = pipeline(stage(servers[1], "b", "test.mark"), stage(servers[2], "c", "test.gate"))
        await drivers[0].send(entry_command(1, "test.words", "x y", way, call_id="call"))
        await eventually(lambda: gate.began == ["xb", "yb"])
        yield servers, drivers, gate


async def test_cancel_of_the_first_activation_reaches_the_last(tmp_path: Path) -> None:
    async with under_way(tmp_path) as (servers, (a, _, c), gate):
        await eventually(lambda: not servers[0].host.load().running)  # its activations below run on without it
        await a.cancel(1, "changed my mind")
        error, is_retryable = await a.error(1)
        assert (error.reason, error.message, is_retryable) == (Reason.CALL_CANCELLED, "changed my mind", False)
        await eventually(lambda: sorted(gate.stopped) == ["xb", "yb"])
        await eventually(lambda: is_still(servers))
        assert gate.told == ["call"]
        assert c.pending(EXIT) == 0


async def test_cancel_of_the_call_on_the_independent_path_reaches_the_last(tmp_path: Path) -> None:
    async with under_way(tmp_path) as (_, (a, _, _), gate):
        request = messages.CancelActivationsRequest(call_id="call", reason="user left")
        assert (await a.stub.CancelActivations(request)).cancelled == 1
        assert (await a.error(1))[0].message == "user left"
        await eventually(lambda: sorted(gate.stopped) == ["xb", "yb"])


async def test_lost_control_plane_stops_all_stages(tmp_path: Path) -> None:
    async with under_way(tmp_path) as (servers, (a, _, _), gate):
        a.drop()
        await eventually(lambda: sorted(gate.stopped) == ["xb", "yb"])
        await eventually(lambda: is_still(servers))


async def test_lost_link_of_the_exit_ends_the_pipeline(tmp_path: Path) -> None:
    async with under_way(tmp_path) as (servers, (a, _, c), _):
        c.drop()
        error, _ = await a.error(1)
        assert (error.reason, error.metadata["node"]) == (Reason.REPLICA_LOST, "c")
        await eventually(lambda: is_still(servers))


async def test_cancelled_exit_ends_the_pipeline(tmp_path: Path) -> None:
    async with under_way(tmp_path) as (servers, (a, _, c), _):
        await c.cancel(EXIT, "enough")
        error, _ = await a.error(1)
        assert (error.reason, error.message) == (Reason.CALL_CANCELLED, "enough")
        await eventually(lambda: is_still(servers))


async def test_exit_that_was_cancelled_before_anything_came_takes_nothing(tmp_path: Path) -> None:
    async with replicas(tmp_path, [Words()], [Mark()]) as (servers, (a, b)):
        await b.cancel(EXIT)
        await b.start(2, "test.mark", {"text": "so the cancel is there"})
        await b.finish(2)
        await a.send(entry_command(1, "test.words", "x", pipeline(stage(servers[1], "b", "test.mark"))))
        assert (await a.error(1))[0].reason is Reason.CALL_CANCELLED


@pytest.mark.parametrize("handle", [0, 2])
async def test_exit_with_a_handle_that_cannot_be_is_refused(tmp_path: Path, handle: int) -> None:
    gate = Gate()
    async with replicas(tmp_path, [Words()], [Mark(), gate]) as (servers, (a, b)):
        await b.start(2, "test.gate", {"text": "keeps the handle"})
        await eventually(lambda: gate.began)
        way = pipeline(stage(servers[1], "b", "test.mark"), exit_handle=handle)
        await a.send(entry_command(1, "test.words", "x", way))
        assert (await a.error(1))[0].reason is Reason.PROTOCOL_VIOLATION


async def test_stopped_replica_ends_the_pipeline(tmp_path: Path) -> None:
    async with under_way(tmp_path) as (servers, (a, _, _), gate):
        servers[1].drain(0.0)
        error, is_retryable = await a.error(1)
        assert (error.reason, error.metadata["node"], is_retryable) == (Reason.DRAINING, "b", False)
        await eventually(lambda: sorted(gate.stopped) == ["xb", "yb"])


async def test_earlier_life_of_a_replica_is_lost(tmp_path: Path) -> None:
    async with replicas(tmp_path, [Words()], [Mark()]) as (servers, (a, _)):
        before = replica_pb2.Replica()
        before.CopyFrom(servers[1].identity.message(servers[1].host.state))
        before.incarnation_id = "an earlier life"
        way = pipeline(stage(servers[1], "b", "test.mark", replica=before))
        for handle in (1, 2):
            await a.send(entry_command(handle, "test.words", "x", way))
            error, _ = await a.error(handle)
            assert (error.reason, error.metadata) == (
                Reason.REPLICA_LOST,
                {"node": "b", "replica": "role-1/role-1-0"},
            )
        await eventually(lambda: len(servers[0].peers) == 0)


# --- links that break ---------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def proxied(server: RoleServer) -> AsyncIterator[tuple[replica_pb2.Replica, list[FaultProxy]]]:
    """The replica as it is reached by proxies."""
    replica = replica_pb2.Replica()
    replica.CopyFrom(server.identity.message(server.host.state))
    async with contextlib.AsyncExitStack() as stack:
        found = [await stack.enter_async_context(FaultProxy(replica.endpoint))]
        replica.endpoint = found[0].target
        for lane in replica.lanes:
            found.append(await stack.enter_async_context(FaultProxy(f"unix:{lane.address}")))
            lane.address = found[-1].target.removeprefix("unix:")
        yield replica, found


async def test_broken_transport_between_replicas_loses_and_doubles_nothing(tmp_path: Path) -> None:
    letters = "abcdefghij" * 10
    async with replicas(tmp_path, [Letters()], [Mark()]) as (servers, (a, b)), proxied(servers[1]) as (replica, ways):
        small = {"yield_window": 4, "activation_window": 4}
        way = pipeline(stage(servers[1], "b", "test.mark", replica=replica, **small), yield_window=4)
        await a.send(entry_command(1, "test.letters", letters, way, yield_window=4))
        found = []
        for _ in range(10):
            found += texts_of(await exits(b, 10))
            for proxy in ways:
                proxy.cut()
        assert found == [f"{letter}b" for letter in letters]
        assert (await a.finish(1))[-1].completed.yield_count == 100


def texts_of(results: list[Any]) -> list[str]:
    return [getattr(result, "yield").fields["text"].text for result in results]


async def test_replica_that_cannot_be_reached_any_more_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SILENCE_LIMIT_S", 0.2)
    gate = Gate()
    async with (
        replicas(tmp_path, [Words()], [gate], heartbeat_s=0.05) as (servers, (a, _)),
        proxied(servers[1]) as (replica, ways),
    ):
        second = stage(servers[1], "b", "test.gate", replica=replica)
        await a.send(entry_command(1, "test.words", "x", pipeline(second)))
        await eventually(lambda: gate.began)
        for proxy in ways:
            proxy.is_refusing = True
            proxy.cut()
        error, _ = await a.error(1)
        assert (error.reason, error.metadata["node"]) == (Reason.REPLICA_LOST, "b")
        for proxy in ways:
            proxy.is_refusing = False
        await a.send(entry_command(2, "test.words", "y", pipeline(second, exit_handle=EXIT + 1)))  # by another link
        await eventually(lambda: gate.began == ["x", "y"])


async def test_link_between_replicas_that_is_idle_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "IDLE_S", 0.02)
    async with replicas(tmp_path, [Words()], [Mark()]) as (servers, (a, b)):
        for handle in (1, 2):
            way = pipeline(stage(servers[1], "b", "test.mark"), exit_handle=EXIT + handle)
            await a.send(entry_command(handle, "test.words", "x y", way))
            assert texts(await exits(b, 2, handle=EXIT + handle)) == ["xb", "yb"]
            await a.finish(handle)
            await eventually(lambda: len(servers[0].peers) == 0)
