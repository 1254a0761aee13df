"""Links that a replica opens to others, against a replica that does what the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from omniflow.codec.error import status_to_proto
from omniflow.graph.v1 import graph_event_pb2
from omniflow.links.port import LaneKind
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_roles.harness import peers
from omniflow_roles.harness.peers import PeerLinks
from omniflow_roles.harness.replica import ReplicaIdentity
from tests.roles.running import eventually
from tests.support.pipes import Pipe, listen_on_lane

OWN = ReplicaIdentity(
    role="own",
    replica_id="own-0",
    incarnation_id="own-life",
    endpoint="unix:/own.sock",
    interfaces=(),
    max_activations=0,
    process_id=1,
    node="here",
)


class Heard:
    """What was told of one activation."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def accepted(self) -> None:
        self.told.append("accepted")

    def progress(self, message: graph_event_pb2.Progress) -> None:
        self.told.append(message)

    def completed(self, message: messages.ActivationCompleted) -> None:
        self.told.append(message)

    def failed(self, error: ErrorInfo) -> None:
        self.told.append(error)

    def lost(self, replica: str) -> None:
        self.told.append(replica)


class FakeReplica:
    """Answers hellos when it is let, and keeps what comes."""

    def __init__(self, folder: Path) -> None:
        self.address = f"{folder}/lane.sock"
        self.answers = asyncio.Event()
        self.hellos: list[messages.ControlHello] = []
        self.commands: list[messages.ExecuteCommand] = []
        self.pipes: list[Pipe] = []
        self.has_left = False

    @property
    def message(self) -> replica_pb2.Replica:
        return replica_pb2.Replica(
            role="next",
            replica_id="next-0",
            incarnation_id="next-life",
            endpoint="unix:/nobody-listens-here.sock",
            lanes=[replica_pb2.LaneOffer(kind="unix-frames", address=self.address)],
        )

    async def serve(self, pipe: Pipe) -> None:
        self.pipes.append(pipe)
        while (message := await pipe.read()) is not None:
            for command in messages.ExecuteRequest.FromString(message).commands:
                if command.HasField("hello"):
                    self.hellos.append(command.hello)
                    await self.answers.wait()
                    await self.say(messages.ExecuteResult(hello=messages.ReplicaHello()))
                else:
                    self.commands.append(command)
        self.has_left = True

    async def say(self, *results: messages.ExecuteResult) -> None:
        await self.pipes[-1].write(messages.ExecuteResponse(results=results).SerializeToString())


@contextlib.asynccontextmanager
async def linked(folder: Path) -> AsyncIterator[tuple[FakeReplica, PeerLinks]]:
    """A replica, and the links of another one."""
    replica = FakeReplica(folder)
    replica.answers.set()
    async with (
        listen_on_lane("unix-frames", replica.address, replica.serve),
        PeerLinks(OWN, lanes=[LaneKind.UNIX_FRAMES]) as links,
    ):
        yield replica, links


def start(node: str) -> bytes:
    return messages.StartActivation(activation=messages.ActivationRef(node=node)).SerializeToString()


def has_heard(heard: Heard, count: int) -> bool:
    """More than so many reports."""
    return len(heard.told) > count


async def test_hello_says_who_dials_and_whom_it_means(tmp_path: Path) -> None:
    async with linked(tmp_path) as (replica, links):
        links.link_to(replica.message)
        await eventually(lambda: replica.hellos)
        hello = replica.hellos[0]
        assert (hello.control_id, hello.incarnation_id) == ("own/own-0", "own-life")
        assert (hello.replica_incarnation_id, hello.value_endpoint) == ("next-life", "unix:/own.sock")
        assert hello.link_id


async def test_starts_wait_for_the_answer_to_the_hello(tmp_path: Path) -> None:
    async with linked(tmp_path) as (replica, links):
        replica.answers.clear()
        handles = [links.link_to(replica.message).start(start(node), Heard()) for node in "abc"]
        await eventually(lambda: replica.hellos)
        assert replica.commands == []
        replica.answers.set()
        await eventually(lambda: len(replica.commands) == 3)
        assert [(c.handle, c.start.activation.node) for c in replica.commands] == list(zip(handles, "abc", strict=True))
        assert (len(replica.hellos), len(links)) == (1, 1)


async def test_results_reach_their_activations(tmp_path: Path) -> None:
    async with linked(tmp_path) as (replica, links):
        link = links.link_to(replica.message)
        one, two = Heard(), Heard()
        first, second = link.start(start("a"), one), link.start(start("b"), two)
        await eventually(lambda: len(replica.commands) == 2)
        done = messages.ActivationCompleted(yield_count=3)
        error = ErrorInfo(reason=Reason.INTERFACE_FAILED, message="broken", metadata={"node": "b"})
        failure = messages.ActivationFailed(status=status_to_proto(error), is_retryable=True)
        result = messages.ExecuteResult
        await replica.say(
            result(heartbeat=messages.StreamHeartbeat()),
            result(handle=second, accepted=messages.ActivationAccepted()),
            result(handle=first, completed=done),
            result(handle=first, completed=done),
            result(handle=second, failed=failure),
            result(handle=77, completed=done),
        )
        await eventually(lambda: link.in_flight == 0)
        assert (one.told, two.told) == ([done], ["accepted", error])


@pytest.mark.parametrize(
    "result",
    [
        messages.ExecuteResult.FromString(b"\x22\x00"),  # an empty yield, which is a word of Python
        messages.ExecuteResult(completed=messages.ActivationCompleted(last_yield=messages.ActivationYield())),
        messages.ExecuteResult(segment_step=messages.SegmentStep()),
    ],
)
async def test_result_that_no_activation_of_a_pipeline_has_ends_it(
    tmp_path: Path, result: messages.ExecuteResult
) -> None:
    async with linked(tmp_path) as (replica, links):
        heard = Heard()
        link = links.link_to(replica.message)
        handle = link.start(start("a"), heard)
        await eventually(lambda: replica.commands)
        answer = messages.ExecuteResult(handle=handle)
        answer.MergeFrom(result)
        await replica.say(answer, answer)
        await eventually(lambda: len(replica.commands) == 2)
        assert [error.reason for error in heard.told] == [Reason.PROTOCOL_VIOLATION]
        assert replica.commands[1].WhichOneof("command") == "cancel"
        assert (link.in_flight, link.is_over) == (0, False)


async def test_progress_is_told_before_what_comes_after_it(tmp_path: Path) -> None:
    async with linked(tmp_path) as (replica, links):
        heard = Heard()
        handle = links.link_to(replica.message).start(start("a"), heard)
        await eventually(lambda: replica.commands)
        report = messages.ExecuteResult(handle=handle)
        report.progress.completed = 1
        await replica.say(report, messages.ExecuteResult(handle=handle, accepted=messages.ActivationAccepted()))
        await eventually(lambda: len(heard.told) == 2)
        assert heard.told == [report.progress, "accepted"]


async def test_nothing_is_heard_of_what_was_cancelled(tmp_path: Path) -> None:
    async with linked(tmp_path) as (replica, links):
        link = links.link_to(replica.message)
        cancelled, other = Heard(), Heard()
        first, second = link.start(start("a"), cancelled), link.start(start("b"), other)
        link.cancel(first, "why")
        link.cancel(first, "again")
        link.cancel(99, "unknown")
        await eventually(lambda: len(replica.commands) == 3)
        assert (replica.commands[2].handle, replica.commands[2].cancel.reason) == (first, "why")
        done = messages.ActivationCompleted()
        await replica.say(*(messages.ExecuteResult(handle=handle, completed=done) for handle in (first, second)))
        await eventually(lambda: other.told)
        assert cancelled.told == []


async def test_link_that_the_replica_ends_loses_its_activations_and_makes_place_for_another(tmp_path: Path) -> None:
    async with linked(tmp_path) as (replica, links):
        link = links.link_to(replica.message)
        heard = [Heard(), Heard()]
        for one in heard:
            link.start(start("a"), one)
        await eventually(lambda: len(replica.commands) == 2)
        await replica.pipes[0].end()
        await eventually(lambda: link.is_over)
        assert [one.told for one in heard] == [["next/next-0"]] * 2
        assert len(links) == 0
        another = links.link_to(replica.message)
        assert another is not link
        another.start(start("b"), Heard())
        await eventually(lambda: len(replica.commands) == 3)


async def test_replica_that_nobody_reaches_is_lost(tmp_path: Path) -> None:
    gone = FakeReplica(tmp_path)
    async with PeerLinks(OWN, lanes=[LaneKind.UNIX_FRAMES]) as links:
        heard = Heard()
        links.link_to(gone.message).start(start("a"), heard)
        await eventually(lambda: heard.told == ["next/next-0"])
        assert len(links) == 0


async def test_lives_of_a_replica_have_links_of_their_own(tmp_path: Path) -> None:
    async with linked(tmp_path) as (replica, links):
        later = replica.message
        later.incarnation_id = "a later life"
        assert links.link_to(replica.message) is links.link_to(replica.message)
        assert links.link_to(later) is not links.link_to(replica.message)
        assert len(links) == 2


async def test_link_is_ended_when_it_has_been_idle_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "IDLE_S", 0.001)
    async with linked(tmp_path) as (replica, links):
        heard = Heard()
        link = links.link_to(replica.message)
        handle = link.start(start("a"), heard)
        await eventually(lambda: replica.commands)
        for count in range(20):
            await replica.say(messages.ExecuteResult(handle=handle, accepted=messages.ActivationAccepted()))
            await eventually(partial(has_heard, heard, count))
        assert not link.is_over
        await replica.say(messages.ExecuteResult(handle=handle, completed=messages.ActivationCompleted()))
        await eventually(lambda: link.is_over and replica.has_left)
        assert len(links) == 0


async def test_links_end_with_the_server(tmp_path: Path) -> None:
    replica = FakeReplica(tmp_path)
    replica.answers.set()
    async with listen_on_lane("unix-frames", replica.address, replica.serve):
        async with PeerLinks(OWN, lanes=[LaneKind.UNIX_FRAMES]) as links:
            links.link_to(replica.message).start(start("a"), Heard())
            await eventually(lambda: replica.commands)
            assert not replica.has_left
        await eventually(lambda: replica.has_left)
