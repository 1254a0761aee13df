"""The life of a link on its transports: the first that the replica answers on carries it, and when it breaks, another.

    unix-frames ──no answer──▶ gRPC ──hello──▶ messages … ──it breaks──▶ unix-frames ──hello, resuming──▶ messages …
                                                  │ the replica ends it, breaks the rules, or is silent
                                                  ▼
                                                lost

Both sides number their messages and keep them until the other has them, so nothing is lost or doubled when a transport
breaks. Lost is a link whose replica is gone, does not know it any more, or cannot be reached again in time.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import secrets
from collections.abc import Callable, Sequence

from omniflow.links.dialing.port import Transport
from omniflow.links.dialing.side import SessionSide
from omniflow.links.outbox import Outbox
from omniflow.links.receipts import Receipts
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow_core.errors import OmniFlowError, Reason

log = logging.getLogger(__name__)

SILENCE_LIMIT_S = 1.5
"""Replicas send a heartbeat every half second; three missing ones mean that the process hangs or its host is gone. Shorter
than two seconds, within which calls must work again, and long enough for a process that has to wait for a busy machine."""
SILENCE_ROUNDS = 6
"""The silence is counted in rounds of a sleep, not by the clock: when it is this process that stood still (SIGSTOP, a
suspended machine), what the replica sent meanwhile has not been read yet, and the pause counts as one round only."""
QUIET_ROUNDS = 3
"""After so many the replica is quiet: a heartbeat is missing. It keeps what it has, and is given nothing more for now."""
LANE_ANSWER_S = 0.5
"""A lane is on this host: who does not answer by then is busy or somebody else, and the next transport is tried."""
RESUME_PAUSE_S = 0.02
FRUITLESS_RESUMES = 3
"""In a row, without a message of the replica in between: then it is what is sent that breaks the transport."""
GOODBYE_S = 0.1
"""For telling the replica that the link ends here; it stops its work then, and need not wait for another transport."""


class _End(enum.Enum):
    """How a link's time on a transport ended."""

    UNANSWERED = enum.auto()
    REFUSED = enum.auto()
    """Nobody listens there, or another life of the replica."""
    BROKEN = enum.auto()
    OVER = enum.auto()


class LinkSession:
    """One session of a link. `run` is its life; `on_hello` and `on_message` are called with what the replica says."""

    def __init__(
        self,
        name: str,
        hello: pb.ControlHello,
        *,
        on_hello: Callable[[pb.ReplicaHello], None],
        on_message: Callable[[pb.ExecuteResponse], None],
        on_resumed: Callable[[], None],
    ) -> None:
        self.outbox = Outbox(keeps=True)
        self._receipts = Receipts()
        self._name = name
        self._hello = hello
        self._on_hello = on_hello
        self._on_message = on_message
        self._on_resumed = on_resumed
        self.is_interrupted = False
        """Its transport has broken, and no other carries it yet."""
        self.is_quiet = False
        """Its transport stands, and the replica has said nothing for longer than it should."""
        self._is_resuming = False
        self._is_forgotten = False
        """The replica has answered, and does not know the link any more."""
        self._has_heard = False

    async def run(self, new_transports: Callable[[], Sequence[Transport]]) -> None:
        """Until the link is lost. Does not raise for that."""
        end = await self._run_over_first(new_transports(), SILENCE_LIMIT_S)
        fruitless, count = 0, 0
        while end is _End.BROKEN and self.outbox.can_rewind_all:
            fruitless, count = (0 if self._receipts.count > count else fruitless + 1), self._receipts.count
            if fruitless > FRUITLESS_RESUMES:
                return
            self._is_resuming = self.is_interrupted = True
            end = await self._resume(new_transports)

    async def _resume(self, new_transports: Callable[[], Sequence[Transport]]) -> _End:
        """Again while the replica may be there: what has cut one connection may cut the next that is being made."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + SILENCE_LIMIT_S
        while True:
            end = await self._run_over_first(new_transports(), give_up_s - loop.time())
            if end is not _End.UNANSWERED or loop.time() + RESUME_PAUSE_S >= give_up_s:
                return end
            await asyncio.sleep(RESUME_PAUSE_S)

    async def _run_over_first(self, transports: Sequence[Transport], within_s: float) -> _End:
        """Over the first that answers; the end of the last one when none does."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + within_s
        end = _End.UNANSWERED
        for transport in transports:
            left_s = give_up_s - loop.time()
            end = await self._run_over(transport, left_s if transport is transports[-1] else min(left_s, LANE_ANSWER_S))
            if end not in (_End.UNANSWERED, _End.REFUSED):
                break
        return end

    async def _run_over(self, transport: Transport, within_s: float) -> _End:
        side = SessionSide(self, transport.wake)
        carrying = asyncio.ensure_future(transport.carry(side))
        try:
            await asyncio.wait((carrying, side.answered), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            if side.answered.done():
                await self._watch(carrying)
            elif not carrying.done():
                log.warning("%s did not answer the hello over %s within %.1f s", self._name, transport.name, within_s)
            is_broken = side.answered.done() and carrying.done() and not side.is_over
        except asyncio.CancelledError:
            await self._say_goodbye(carrying)
            raise
        finally:
            carrying.cancel()
            (cause,) = await asyncio.gather(carrying, return_exceptions=True)
            self.outbox.detach()
        self._log_end(transport, cause)
        if side.answered.done():
            return _End.BROKEN if is_broken else _End.OVER
        if self._is_forgotten:
            return _End.OVER
        return _End.REFUSED if _is_refusal(cause) else _End.UNANSWERED

    async def _watch(self, carrying: asyncio.Future[None]) -> None:
        """Returns when the transport has ended or the replica has been silent for too long."""
        silent_rounds = 0
        try:
            while silent_rounds < SILENCE_ROUNDS:
                self._has_heard = False
                await asyncio.wait((carrying,), timeout=SILENCE_LIMIT_S / SILENCE_ROUNDS)
                if carrying.done():
                    return
                silent_rounds = 0 if self._has_heard else silent_rounds + 1
                self._note_quiet(silent_rounds >= QUIET_ROUNDS)
        finally:
            self.is_quiet = False
        log.warning("%s was silent for %.0f s", self._name, SILENCE_LIMIT_S)

    def _note_quiet(self, is_quiet: bool) -> None:
        was_quiet, self.is_quiet = self.is_quiet, is_quiet
        if was_quiet and not is_quiet:
            self._on_resumed()

    async def _say_goodbye(self, carrying: asyncio.Future[None]) -> None:
        self.outbox.drop()
        self.outbox.close()
        await asyncio.wait((carrying,), timeout=GOODBYE_S)

    def _log_end(self, transport: Transport, cause: BaseException | None) -> None:
        if isinstance(cause, OSError | OmniFlowError):
            log.info("%s: %s ended: %s", self._name, transport.name, cause)
        elif isinstance(cause, Exception):
            log.error("%s: %s failed", self._name, transport.name, exc_info=cause)

    def hello(self) -> bytes:
        """The first message on a transport. Each try to begin is a link of its own to the replica, which may answer an
        earlier one late."""
        if not self._is_resuming:
            self._hello.link_id = secrets.token_hex(16)
        self._hello.is_resuming = self._is_resuming
        self._hello.received_messages = self._receipts.count
        return pb.ExecuteRequest(commands=(pb.ExecuteCommand(hello=self._hello),)).SerializeToString()

    def opened(self, answer: pb.ExecuteResponse) -> None:
        """The replica has answered. Raises PROTOCOL_VIOLATION, and REPLICA_LOST when it cannot go on with the link."""
        if not answer.results or not answer.results[0].HasField("hello"):
            raise OmniFlowError(Reason.PROTOCOL_VIOLATION, "the first result is no hello")
        hello = answer.results[0].hello
        if not self._is_resuming:
            self._on_hello(hello)
            self._on_message(answer)
        elif hello.is_resumed and self.outbox.can_rewind(hello.received_messages):
            self.outbox.rewind(hello.received_messages)
            self.is_interrupted = False
            self._on_resumed()
        else:
            self._is_forgotten = True
            raise OmniFlowError(Reason.REPLICA_LOST, "the replica does not know the link any more")

    def received(self, message: bytes) -> None:
        """Takes in what came after the hello."""
        self._has_heard = True
        frame = pb.ExecuteResponse.FromString(message)
        if frame.received_messages:
            self.outbox.received(frame.received_messages)
        self._on_message(frame)
        if self._receipts.add(len(message)):
            self.outbox.send(self._receipts.frame())


def _is_refusal(cause: BaseException | None) -> bool:
    is_stale = isinstance(cause, OmniFlowError) and cause.reason is Reason.STALE_EPOCH
    return is_stale or isinstance(cause, ConnectionRefusedError | FileNotFoundError)
