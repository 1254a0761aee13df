"""The life of a link on its transports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from omniflow.links.dialing import session as session_module
from omniflow.links.dialing.session import LinkSession
from omniflow.links.port import END, LinkSide
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow_core.errors import OmniFlowError, Reason


class Played:
    """A transport that does what the test says."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.name = "played"
        self.sides: list[LinkSide] = []
        self.written: list[bytes] = []
        self._error = error
        self._broken = asyncio.get_running_loop().create_future()

    @property
    def side(self) -> LinkSide:
        return self.sides[-1]

    def wake(self) -> None:
        while (message := self.side.take()) is not None:
            self.written.append(message)

    async def carry(self, side: LinkSide) -> None:
        self.sides.append(side)
        self.wake()
        if self._error is not None:
            raise self._error
        try:
            await self._broken
        finally:
            side.closed()

    def break_off(self) -> None:
        """The connection is gone."""
        self._broken.set_exception(ConnectionResetError("gone"))

    def say(self, received: int = 0, **result: Any) -> None:
        """One result, and how many messages were received."""
        message = pb.ExecuteResponse(results=[pb.ExecuteResult(**result)], received_messages=received)
        self.side.received(message.SerializeToString())

    def greet(self, **hello: Any) -> None:
        """Answers the hello."""
        self.say(hello=pb.ReplicaHello(**hello))

    @property
    def hello(self) -> pb.ControlHello:
        """What was said first."""
        return pb.ExecuteRequest.FromString(self.written[0]).commands[0].hello


class Made:
    """A session, and what it has told."""

    def __init__(self) -> None:
        self.hellos: list[pb.ReplicaHello] = []
        self.messages: list[pb.ExecuteResponse] = []
        hello = pb.ControlHello(control_id="c", replica_incarnation_id="1")
        self.resumes = 0
        self.session = LinkSession(
            "worker/0",
            hello,
            on_hello=self.hellos.append,
            on_message=self.messages.append,
            on_resumed=self._count_resume,
        )

    def _count_resume(self) -> None:
        assert not self.session.is_interrupted
        self.resumes += 1

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0)

    def run(self, *transports: Played, then: Sequence[Sequence[Played]] = ()) -> asyncio.Task[None]:
        """The transports to try first, and those to try each time after a break; then nobody listens."""
        left: list[Any] = [transports, *then]
        return asyncio.create_task(
            self.session.run(lambda: left.pop(0) if left else [Played(error=ConnectionRefusedError())])
        )

    async def resumed(self, first: Played, second: Played, *, received: int) -> asyncio.Task[None]:
        """Breaks off the first transport, on which the link runs, and goes on over the second."""
        running = self.run(first, then=[[second]])
        await self.until(lambda: first.sides)
        first.greet()
        for frame in (b"1", b"2", b"3"):
            self.session.outbox.send(frame)
        first.break_off()
        await self.until(lambda: second.sides)
        second.greet(is_resumed=True, received_messages=received)
        return running


async def test_first_message_is_the_hello_and_nothing_follows_before_its_answer() -> None:
    made, transport = Made(), Played()
    running = made.run(transport)
    await made.until(lambda: transport.sides)
    made.session.outbox.send(b"")
    transport.wake()
    (first,) = transport.written
    assert pb.ExecuteRequest.FromString(first).commands[0].hello.control_id == "c"
    transport.greet(value_endpoint="here")
    assert [hello.value_endpoint for hello in made.hellos] == ["here"]
    assert len(transport.written) == 2
    running.cancel()


@pytest.mark.parametrize("error", [ConnectionRefusedError("no"), FileNotFoundError("gone"), RuntimeError("odd")])
async def test_transport_that_is_refused_gives_way_to_the_next(error: Exception) -> None:
    made, refused, taken = Made(), Played(error=error), Played()
    running = made.run(refused, taken)
    await made.until(lambda: taken.sides)
    taken.greet()
    assert len(made.hellos) == 1
    assert not running.done()
    running.cancel()


async def test_transport_without_an_answer_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "LANE_ANSWER_S", 0.01)
    made, silent, taken = Made(), Played(), Played()
    running = made.run(silent, taken)
    await made.until(lambda: taken.sides)
    taken.greet()
    assert len(made.hellos) == 1
    running.cancel()


async def test_session_ends_when_no_transport_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "SILENCE_LIMIT_S", 0.01)
    made = Made()
    async with asyncio.timeout(5):
        await made.run(Played(error=ConnectionRefusedError()), Played())
    assert not made.hellos


async def test_answer_that_is_no_hello_is_no_answer() -> None:
    made, odd, taken = Made(), Played(), Played()
    running = made.run(odd, taken)
    await made.until(lambda: odd.sides)
    with pytest.raises(Exception, match="no hello"):
        odd.say(heartbeat=pb.StreamHeartbeat())
    running.cancel()


async def test_silence_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "SILENCE_LIMIT_S", 0.01)
    made, transport = Made(), Played()
    running = made.run(transport)
    await made.until(lambda: transport.sides)
    transport.greet()
    async with asyncio.timeout(5):
        await running


async def test_pause_of_this_process_is_no_silence_of_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the loop stands still, it counts as one round: heartbeats that came meanwhile are read first."""
    made, transport = Made(), Played()
    waits: list[float] = []

    async def wait(_: Any, *, timeout: float, **options: Any) -> None:
        if options:  # for the answer
            await asyncio.sleep(0)
            transport.greet()
            return
        waits.append(timeout)
        if len(waits) == 5:
            transport.say(heartbeat=pb.StreamHeartbeat())

    monkeypatch.setattr(session_module.asyncio, "wait", wait)
    await made.run(transport)
    assert sum(waits[5:]) == pytest.approx(session_module.SILENCE_LIMIT_S)
    assert len(waits) == 5 + session_module.SILENCE_ROUNDS


# --- resuming ----------------------------------------------------------------------------------------------------------


async def test_link_goes_on_over_the_next_transport_with_what_the_replica_lacks() -> None:
    made, first, second = Made(), Played(), Played()
    running = await made.resumed(first, second, received=1)
    assert first.written[1:] == [b"1", b"2", b"3"]
    assert second.written[1:] == [b"2", b"3"]
    assert second.hello.link_id == first.hello.link_id != ""
    assert (first.hello.is_resuming, second.hello.is_resuming) == (False, True)
    assert len(made.hellos) == 1, "it is the same connection to those who use it"
    made.session.outbox.send(b"4")
    assert second.written[-1] == b"4"
    running.cancel()


async def test_what_is_sent_while_there_is_no_transport_follows_what_is_sent_again() -> None:
    made, first, second = Made(), Played(), Played()
    running = made.run(first, then=[[second]])
    await made.until(lambda: first.sides)
    first.greet()
    made.session.outbox.send(b"before")
    first.break_off()
    await made.until(lambda: second.sides)
    made.session.outbox.send(b"during")
    second.greet(is_resumed=True, received_messages=0)
    assert second.written[1:] == [b"before", b"during"]
    running.cancel()


async def test_resuming_hello_tells_what_has_been_taken_in() -> None:
    made, first, second = Made(), Played(), Played()
    running = made.run(first, then=[[second]])
    await made.until(lambda: first.sides)
    first.greet()
    for handle in (1, 2):
        first.say(handle=handle, accepted=pb.ActivationAccepted())
    first.break_off()
    await made.until(lambda: second.sides)
    assert second.hello.received_messages == 2
    running.cancel()


async def test_link_is_interrupted_from_the_break_until_another_transport_carries_it() -> None:
    made, first, second = Made(), Played(), Played()
    running = made.run(first, then=[[second]])
    await made.until(lambda: first.sides)
    first.greet()
    assert not made.session.is_interrupted
    first.break_off()
    await made.until(lambda: second.sides)
    assert made.session.is_interrupted
    second.greet(is_resumed=True, received_messages=0)
    await made.until(lambda: made.resumes == 1)
    running.cancel()


async def test_acknowledged_messages_are_not_sent_again_and_need_not_be() -> None:
    made, first, second = Made(), Played(), Played()
    running = made.run(first, then=[[second]])
    await made.until(lambda: first.sides)
    first.greet()
    for frame in (b"1", b"2"):
        made.session.outbox.send(frame)
    first.say(received=2, heartbeat=pb.StreamHeartbeat())
    first.break_off()
    await made.until(lambda: second.sides)
    second.greet(is_resumed=True, received_messages=2)
    assert second.written[1:] == []
    running.cancel()


@pytest.mark.parametrize(
    "answer",
    [{}, {"is_resumed": True, "received_messages": 9}, {"received_messages": 3}],
    ids=["unknown", "never sent", "not resumed"],
)
async def test_link_that_the_replica_cannot_go_on_with_is_lost(answer: dict[str, Any]) -> None:
    made, first, second, third = Made(), Played(), Played(), Played()
    running = made.run(first, then=[[second, third]])
    await made.until(lambda: first.sides)
    first.greet()
    first.break_off()
    await made.until(lambda: second.sides)
    with pytest.raises(OmniFlowError):
        second.greet(**answer)
    second.break_off()
    async with asyncio.timeout(5):
        await running
    assert not third.sides


async def test_link_whose_replica_is_refused_everywhere_is_lost_at_once() -> None:
    made, first = Made(), Played()
    running = made.run(first, then=[[Played(error=FileNotFoundError()), Played(error=ConnectionRefusedError())]])
    await made.until(lambda: first.sides)
    first.greet()
    first.break_off()
    for _ in range(30):  # turns of the loop, no time
        await asyncio.sleep(0)
    assert running.done()


@pytest.mark.parametrize("error", [ConnectionResetError(), OmniFlowError(Reason.CONNECTION_LOST, "odd"), None])
async def test_connection_that_is_cut_while_it_is_made_is_made_again(error: Exception | None) -> None:
    made, first, cut, second = Made(), Played(), Played(error=error), Played()
    running = made.run(first, then=[[cut], [second]])
    await made.until(lambda: first.sides)
    first.greet()
    first.break_off()
    await made.until(lambda: cut.sides)
    if error is None:
        cut.break_off()
    await made.until(lambda: second.sides)
    second.greet(is_resumed=True)
    assert not running.done()
    running.cancel()


async def test_other_life_of_the_replica_loses_the_link_at_once() -> None:
    made, first = Made(), Played()
    running = made.run(first, then=[[Played(error=OmniFlowError(Reason.STALE_EPOCH, "another life"))]])
    await made.until(lambda: first.sides)
    first.greet()
    first.break_off()
    for _ in range(30):  # turns of the loop, no time
        await asyncio.sleep(0)
    assert running.done()


async def test_link_that_is_not_resumed_in_time_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "SILENCE_LIMIT_S", 0.05)
    made, first, silent = Made(), Played(), Played()
    running = made.run(first, then=[[silent, silent]])
    await made.until(lambda: first.sides)
    first.greet()
    first.break_off()
    async with asyncio.timeout(5):
        await running
    assert silent.sides


@pytest.mark.parametrize("how", ["end", "violation"])
async def test_link_that_the_replica_ends_is_not_resumed(how: str) -> None:
    made, first, second = Made(), Played(), Played()
    running = made.run(first, then=[[second]])
    await made.until(lambda: first.sides)
    first.greet()
    if how == "end":
        first.side.received(END)
        assert first.side.is_finished
    else:
        with pytest.raises(DecodeError):
            first.side.received(b"\xff\xff\xff")
    first.break_off()
    async with asyncio.timeout(5):
        await running
    assert not second.sides


async def test_message_that_breaks_every_transport_is_not_sent_for_ever() -> None:
    made, transports = Made(), [Played() for _ in range(10)]
    running = made.run(transports[0], then=[[transport] for transport in transports[1:]])
    for count, transport in enumerate(transports):
        await made.until(lambda transport=transport: transport.sides or running.done())
        if running.done():
            break
        transport.greet(is_resumed=count > 0, received_messages=0)
        if count == 0:
            made.session.outbox.send(b"too much")
        transport.break_off()
    assert running.done()
    assert sum(bool(transport.sides) for transport in transports) == 1 + session_module.FRUITLESS_RESUMES


async def test_replica_is_told_of_the_end_when_the_link_is_given_up() -> None:
    made, transport = Made(), Played()
    running = made.run(transport)
    await made.until(lambda: transport.sides)
    transport.greet()
    made.session.outbox.append(b"nobody waits for it")
    running.cancel()
    await made.until(lambda: transport.side.is_finished)
    assert transport.side.take() is None
    transport.break_off()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_replica_is_told_of_every_64_messages_that_were_taken_in() -> None:
    made, transport = Made(), Played()
    running = made.run(transport)
    await made.until(lambda: transport.sides)
    transport.greet()
    for handle in range(1, 130):
        transport.say(handle=handle, accepted=pb.ActivationAccepted())
        transport.wake()
    told = [pb.ExecuteRequest.FromString(message).received_messages for message in transport.written[1:]]
    assert told == [64, 128]
    running.cancel()
