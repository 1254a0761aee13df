"""A role in Go beside one in Python under one control plane: clients/go/cmd/splitter, built here and run as a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

import omniflow
from omniflow import Event, Json, Output, Reason
from omniflow.dsl import Graph
from omniflow.flow import RolePlan
from omniflow.graph.v1 import inspection_pb2
from omniflow.interface import Field, Interface, groups
from omniflow.internal_rpc import internal_channel
from omniflow.role.v1 import (
    replica_pb2,
    role_execution_service_pb2,
    role_execution_service_pb2_grpc,
    role_registry_service_pb2,
    role_registry_service_pb2_grpc,
)
from omniflow.values import ValueType
from omniflow_roles.noop import Echo
from tests.clients.tcp_proxy import TcpProxy
from tests.integration.noop_system import events_of, failure_of, inspected, settled
from tests.support.processes import Process, free_port, wait_until
from tests.support.system import ROOT, System, running_system

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),  # the first build of the module compiles gRPC
]

TEXT, JSON = ValueType.TEXT, ValueType.JSON
GO, PYTHON, FAR, LATE = "splitter", "python", "far", "late"
"""Roles. Nobody serves the last two but a test that starts them: whatever is given to them waits."""
REPLICA = f"{GO}-0"
WINDOW = 4
LOG_SIZE_BYTES = 100_000
SMALL_BUFFERS = {"grpc.http2.lookahead_bytes": 65_536, "grpc.http2.bdp_probe": 0}
"""Of a client that does not take in megabytes before anybody reads them."""


class SplitWords(Interface):
    """What graphs need to know of the interface that the role in Go serves; there is nothing to run here."""

    name = "text.split_words"
    inputs = groups(text=Field(TEXT), options=Field(JSON, is_optional=True))
    outputs = {"word": Field(TEXT), "index": Field(JSON)}

    @classmethod
    def is_streaming(cls) -> bool:
        return True


# --- the system --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def splitter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built."""
    go = shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent))))
    if go is None:
        pytest.skip("there is no Go compiler: neither on PATH nor beside the interpreter")
    program = tmp_path_factory.mktemp("go") / "splitter"
    command = (go, "build", "-buildvcs=false", "-o", program, "./cmd/splitter")
    subprocess.run(command, cwd=ROOT / "clients" / "go", check=True)
    return program


@contextlib.contextmanager
def go_role(system: System, program: Path, *options: str, role: str = GO) -> Iterator[Process]:
    """A process of a role in Go that registers with the control plane; left, it is killed."""
    name = f"{role}-0"
    arguments = ("--role", role, "--replica-id", name, "--registry", system.internal_target)
    command = (str(program), *arguments, "--drain-grace", "60", "--log-level", "DEBUG", *options)
    env = {"OMNIFLOW_RUNTIME_DIR": str(system.folder)}
    with Process(name, command, folder=system.folder, env=env) as process:
        yield process


@contextlib.asynccontextmanager
async def late_role(system: System) -> AsyncIterator[None]:
    """A Python process of the role that nobody serves before; left, it leaves in order, and nobody serves it again."""
    command = (sys.executable, "-m", "omniflow_roles", "serve", "--role", LATE, "--replica-id", f"{LATE}-0")
    options = ("--interfaces", Echo.name, "--registry", system.internal_target)
    env = {"OMNIFLOW_RUNTIME_DIR": str(system.folder)}
    with Process(f"{LATE}-0", (*command, *options), folder=system.folder, env=env) as process:
        yield
        await asyncio.to_thread(process.terminate)
        assert await registered(system, LATE) == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(splitter: Path) -> AsyncIterator[System]:
    # The role in Go speaks gRPC alone; the one in Python takes the lane of its defaults. What there is to assert of lanes
    # belongs beside `test_registry_and_replica_describe_the_role`.
    async with running_system(
        settings={"interfaces": (SplitWords.name, Echo.name), "event_log_size_bytes": LOG_SIZE_BYTES},
        roles=(RolePlan(name=PYTHON, interfaces=(Echo.name,)),),
        wait=False,
    ) as made:
        with go_role(made, splitter) as process:
            made.roles[process.name] = process
            async with made.connect() as client:
                await client.wait_ready()
                for graph in graphs():
                    await client.apply(graph)
            await made.wait_ready(graph="graphs/go-through")
            yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(system: System) -> AsyncIterator[omniflow.Client]:
    async with system.connect() as connected:
        yield connected


# --- graphs ------------------------------------------------------------------------------------------------------------


def go_then(role: str, name: str, *, go: str = GO, yield_window: int = 0) -> Graph:
    """text, options -> split in Go -> echo, once for each word -> word, index."""
    graph = Graph(name)
    split = graph.node("split", SplitWords, role=go, yield_window=yield_window)
    last = graph.node("last", Echo, role=role)
    graph.input("text", TEXT) >> split.inputs.text
    graph.input("options", JSON, optional=True) >> split.inputs.options
    split.word >> last.text
    last.text >> graph.output("word", TEXT)
    split.index >> graph.output("index", JSON)
    return graph


def go_through() -> Graph:
    """text -> echo in Python -> split in Go -> echo in Python, once for each word -> word."""
    graph = Graph("go-through")
    first, split = graph.node("first", Echo, role=PYTHON), graph.node("split", SplitWords, role=GO)
    last = graph.node("last", Echo, role=PYTHON)
    graph.input("text", TEXT) >> first.text
    first.text >> split.inputs.text
    split.word >> last.text
    last.text >> graph.output("word", TEXT)
    return graph


def go_alone() -> Graph:
    """text -> split in Go -> word, index."""
    graph = Graph("go-alone")
    split = graph.node("split", SplitWords, role=GO)
    graph.input("text", TEXT) >> split.inputs.text
    split.word >> graph.output("word", TEXT)
    split.index >> graph.output("index", JSON)
    return graph


def graphs() -> tuple[Graph, ...]:
    return (go_then(PYTHON, "go-first"), go_through(), go_alone(), go_then(LATE, "go-held", yield_window=WINDOW))


def words(events: list[Event]) -> list[object]:
    return [event.value for event in events if isinstance(event, Output) and event.field == "word"]


def indices(events: list[Event]) -> list[object]:
    return [event.value.value for event in events if isinstance(event, Output) and event.field == "index"]  # type: ignore[union-attr]


def numbered(count: int, name: str = "w") -> list[str]:
    return [f"{name}{index}" for index in range(count)]


# --- what the role gives -----------------------------------------------------------------------------------------------


async def test_words_of_go_pass_python_once_each_in_order(client: omniflow.Client) -> None:
    sent = numbered(1_000)
    events = await events_of(client.stream("go-first", text="  ".join(sent)))
    assert words(events) == sent
    assert indices(events) == list(range(1_000))


async def test_text_passes_python_go_and_python(client: omniflow.Client) -> None:
    sent = numbered(200, "ä")
    assert words(await events_of(client.stream("go-through", text="\n".join(sent)))) == sent


async def test_optional_input_reaches_go(client: omniflow.Client) -> None:
    events = await events_of(client.stream("go-first", text="one two,three;;four", options=Json({"separators": ",;"})))
    assert words(events) == ["one two", "three", "four"]


async def test_text_without_words_gives_nothing(client: omniflow.Client) -> None:
    assert words(await events_of(client.stream("go-first", text=" \t "))) == []


async def test_interleaved_calls_each_get_their_own(client: omniflow.Client) -> None:
    async def call(i: int) -> None:
        sent = numbered(50, f"call{i}x")
        graph = "go-through" if i % 2 else "go-first"
        assert words(await events_of(client.stream(graph, text=" ".join(sent)))) == sent

    await asyncio.gather(*(call(i) for i in range(32)))


# --- failures ----------------------------------------------------------------------------------------------------------


async def test_failure_in_go_names_node_and_reason(client: omniflow.Client) -> None:
    events, error = await failure_of(client.stream("go-first", text="a b", options=Json({"separators": 7})))
    assert words(events) == []
    assert (error.reason, error.is_stated) == (Reason.INVALID_FIELD, True)
    assert error.info.metadata["node"] == "split"
    assert error.message == "options.separators: a text is wanted"
    assert [violation.field for violation in error.violations] == ["options.separators"]
    assert words(await events_of(client.stream("go-first", text="a b"))) == ["a", "b"]


# --- flow control and cancel -------------------------------------------------------------------------------------------


async def held_at_window(system: System, call_id: str) -> inspection_pb2.ActivationInspection:
    """The activation in Go, once its window is full: nobody takes what it has given."""
    found: list[inspection_pb2.ActivationInspection] = []

    async def is_held() -> bool:
        snapshot = await inspected(system, call_id)
        found[:] = [activation for activation in snapshot.activations if activation.node == "split"]
        return bool(found) and found[0].undelivered == WINDOW

    await wait_until(is_held, what="a full window")
    return found[0]


async def begun(stream: omniflow.EventStream) -> None:
    """Returns when the call has been accepted, so that its identifier is known."""
    await anext(stream)


async def test_producer_in_go_stops_at_its_window_until_receivers_take_its_words(
    system: System, client: omniflow.Client
) -> None:
    sent = numbered(100)
    stream = client.stream("go-held", text=" ".join(sent))
    await begun(stream)
    held = await held_at_window(system, stream.call_id)
    assert (held.yields, held.phase) == (WINDOW, inspection_pb2.ACTIVATION_PHASE_RUNNING)
    async with late_role(system):
        assert words(await events_of(stream)) == sent


async def test_slow_reader_holds_go_back_and_gets_everything(system: System) -> None:
    sent = numbered(30_000, "a-word-that-is-long-")
    async with system.connect(channel_options=SMALL_BUFFERS) as reader:
        stream = reader.stream("go-alone", text=" ".join(sent))
        await begun(stream)
        seen = [0]

        async def has_stopped() -> bool:
            """Looks ten times in a row that find nothing new."""
            snapshot = await inspected(system, stream.call_id)
            seen.append(sum(activation.yields for activation in snapshot.activations))
            return seen[-1] > 0 and len(seen) > 10 and len({*seen[-10:]}) == 1

        await wait_until(has_stopped, 30.0, what="a producer that waits", interval_s=0.01)
        assert seen[-1] < len(sent) / 2
        events = await events_of(stream)
    assert words(events) == sent
    assert indices(events) == list(range(len(sent)))


async def test_cancel_ends_the_context_in_go(system: System, client: omniflow.Client) -> None:
    stream = client.stream("go-held", text=" ".join(numbered(100)))
    await begun(stream)
    await held_at_window(system, stream.call_id)
    assert await client.cancel(request_id=stream.request_id, reason="enough of it")
    _, error = await failure_of(stream)
    assert error.reason is Reason.CALL_CANCELLED
    assert (await settled(client, stream.call_id)).active_activations == 0
    returned = await logged(system.role(REPLICA), "activation has returned", stream.call_id)
    assert "enough of it" in returned
    assert words(await events_of(client.stream("go-first", text="still there"))) == ["still", "there"]


async def logged(process: Process, message: str, call_id: str) -> str:
    """The line of the log with a message about a call."""

    def lines() -> list[str]:
        return [line for line in process.log().splitlines() if message in line and call_id in line]

    await wait_until(lines, what=f"{message!r} about call {call_id}")
    return lines()[0]


# --- its life ----------------------------------------------------------------------------------------------------------


async def registered(system: System, role: str = GO) -> list[replica_pb2.Replica]:
    """What the registry lists."""
    async with internal_channel(system.internal_target) as channel:
        stub = role_registry_service_pb2_grpc.RoleRegistryServiceStub(channel)
        response = await stub.ListReplicas(role_registry_service_pb2.ListReplicasRequest(role=role))
        return list(response.replicas)


async def described(replica: replica_pb2.Replica) -> role_execution_service_pb2.DescribeRoleResponse:
    """What the replica says of itself."""
    async with internal_channel(replica.endpoint) as channel:
        stub = role_execution_service_pb2_grpc.RoleExecutionServiceStub(channel)
        response: role_execution_service_pb2.DescribeRoleResponse = await stub.DescribeRole(
            role_execution_service_pb2.DescribeRoleRequest()
        )
        return response


async def test_registry_and_replica_describe_the_role(system: System) -> None:
    (replica,) = await registered(system)
    assert (replica.role, replica.replica_id, replica.state) == (GO, REPLICA, replica_pb2.REPLICA_STATE_READY)
    assert list(replica.interfaces) == [SplitWords.name]
    assert replica.process_id == system.role(REPLICA).pid
    assert not replica.runs_segments
    description = await described(replica)
    assert description.replica == replica
    (interface,) = description.interfaces
    # What graphs were told, so that a declaration in Python and the program in Go cannot drift apart.
    node = go_alone().spec().nodes[0]
    assert (interface.name, interface.is_streaming) == (node.interface, node.is_streaming)
    assert list(interface.input_groups) == list(node.input_groups)
    assert list(interface.outputs) == list(node.outputs)


async def test_killed_role_fails_its_call_and_its_next_life_serves(system: System, client: omniflow.Client) -> None:
    process = system.role(REPLICA)
    (before,) = await registered(system)
    stream = client.stream("go-held", text=" ".join(numbered(100)))
    await begun(stream)
    await held_at_window(system, stream.call_id)
    process.kill()
    _, error = await failure_of(stream)
    assert (error.reason, error.code.name) == (Reason.REPLICA_LOST, "UNAVAILABLE")
    assert error.info.metadata == {"node": "split", "replica": f"{GO}/{REPLICA}"}
    process.start()
    assert words(await events_of(client.stream("go-first", text="back again"))) == ["back", "again"]
    (after,) = await registered(system)
    assert (after.endpoint, after.replica_id) == (before.endpoint, before.replica_id)
    assert after.incarnation_id != before.incarnation_id


async def test_connection_that_breaks_loses_what_ran_and_the_next_call_is_served(
    system: System, client: omniflow.Client, splitter: Path
) -> None:
    """The process lives, but its links do not outlive their streams; the control plane is told so, and does not wait."""
    await client.apply(go_then(LATE, "far-held", go=FAR, yield_window=WINDOW))
    await client.apply(go_then(PYTHON, "far-first", go=FAR))
    port = free_port()
    async with TcpProxy(port) as proxy:
        options = ("--listen", f"127.0.0.1:{port}", "--advertise", proxy.target)
        with go_role(system, splitter, *options, role=FAR) as process:
            stream = client.stream("far-held", text=" ".join(numbered(100)))
            await begun(stream)
            await held_at_window(system, stream.call_id)
            proxy.cut()
            _, error = await failure_of(stream)
            assert error.reason is Reason.REPLICA_LOST
            assert error.info.metadata == {"node": "split", "replica": f"{FAR}/{FAR}-0"}
            await logged(process, "activation has returned", stream.call_id)
            assert words(await events_of(client.stream("far-first", text="not for long"))) == ["not", "for", "long"]
            assert process.is_running


async def drained(system: System) -> None:
    """Asks the role in Go to end; returns when the registry knows that it takes nothing any more."""
    os.kill(system.role(REPLICA).pid, signal.SIGTERM)

    async def is_draining() -> bool:
        return [replica.state for replica in await registered(system)] == [replica_pb2.REPLICA_STATE_DRAINING]

    await wait_until(is_draining, what="a replica that drains")


async def test_terminated_role_ends_its_work_then_leaves(system: System, client: omniflow.Client) -> None:
    process, sent = system.role(REPLICA), numbered(100)
    stream = client.stream("go-held", text=" ".join(sent))
    await begun(stream)
    await held_at_window(system, stream.call_id)
    await drained(system)
    async with late_role(system):
        assert words(await events_of(stream)) == sent
    assert await asyncio.to_thread(process.wait, 30.0) == 0
    assert await registered(system) == []
    process.start()
    assert words(await events_of(client.stream("go-first", text="and again"))) == ["and", "again"]


async def test_second_signal_ends_the_role_at_once(system: System, client: omniflow.Client) -> None:
    process = system.role(REPLICA)
    stream = client.stream("go-held", text=" ".join(numbered(100)))
    await begun(stream)
    await held_at_window(system, stream.call_id)
    await drained(system)
    os.kill(process.pid, signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 30.0) == 130
    _, error = await failure_of(stream)
    assert error.reason is Reason.REPLICA_LOST
    process.start()
    assert words(await events_of(client.stream("go-first", text="once more"))) == ["once", "more"]
