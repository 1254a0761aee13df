"""Links that this replica has opened to others, on which it has the part of the control plane: one to each life of one.

    first start for a life ─▶ link ─hello under way: starts queue up─▶ open ─lost─▶ every activation on it is told
                                                                        └─IDLE_S without activations─▶ ended in order

The next start after either opens another one; when that life of the replica is over, it is lost again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from omniflow.codec.error import status_from_proto
from omniflow.graph.v1 import graph_event_pb2
from omniflow.links.dialing.choice import transports_to
from omniflow.links.dialing.session import LinkSession
from omniflow.links.port import LaneKind
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.wire import sized, varint
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_roles.harness.replica import ReplicaIdentity

logger = logging.getLogger(__name__)

IDLE_S = 30.0
"""A link that nothing runs on is kept for so long: the next call takes the same way."""

# Fields of the contract, each with its wire type.
_COMMANDS = b"\x0a"  # ExecuteRequest.commands = 1, length-delimited
_HANDLE = b"\x08"  # ExecuteCommand.handle = 1, varint
_START = b"\x1a"  # ExecuteCommand.start = 3, length-delimited


class PeerActivation(Protocol):
    """An activation on another replica. Exactly one of `completed`, `failed` and `lost` is told, last."""

    def accepted(self) -> None:
        """It runs or waits there. May be left out when `completed` follows, and told again."""

    def progress(self, message: graph_event_pb2.Progress) -> None: ...
    def completed(self, message: messages.ActivationCompleted) -> None: ...
    def failed(self, error: ErrorInfo) -> None: ...
    def lost(self, replica: str) -> None:
        """The link to the replica of this name is gone, and the activation with it."""


class PeerLink:
    """A link to one replica, from its hello to its loss. `run` is its life; all methods on the loop's thread."""

    def __init__(
        self,
        replica: replica_pb2.Replica,
        hello: messages.ControlHello,
        *,
        lanes: Sequence[LaneKind],
        on_over: Callable[[PeerLink], None],
    ) -> None:
        self.name = f"{replica.role}/{replica.replica_id}"
        self.incarnation_id = replica.incarnation_id
        self.is_over = False
        """It takes no more starts."""
        self._replica = replica
        self._lanes = lanes
        self._on_over = on_over
        self._in_flight: dict[int, PeerActivation] = {}
        self._next_handle = 1
        self._idle_since_s = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._session = LinkSession(
            self.name, hello, on_hello=_ignore, on_message=self._on_message, on_resumed=lambda: None
        )
        self._send = self._session.outbox.send

    @property
    def in_flight(self) -> int:
        """Activations that run or wait at the replica."""
        return len(self._in_flight)

    def start(self, start: bytes, activation: PeerActivation) -> int:
        """Sends a serialized StartActivation; returns its handle."""
        handle = self._next_handle
        self._next_handle += 1
        self._in_flight[handle] = activation
        self._send(sized(_COMMANDS, b"".join((_HANDLE, varint(handle), _START, varint(len(start)), start))))
        return handle

    def cancel(self, handle: int, reason: str) -> None:
        """Tells an activation to stop; nothing more is heard of it. Repeats change nothing."""
        if self._in_flight.pop(handle, None) is not None:
            self._note_idle()
            command = messages.ExecuteCommand(handle=handle, cancel=messages.CancelActivation(reason=reason))
            self._send(messages.ExecuteRequest(commands=(command,)).SerializeToString())

    async def run(self) -> None:
        """Until the link is lost or ended. Does not raise for that."""
        self._task = asyncio.current_task()
        self._note_idle()
        self._idle_timer = asyncio.get_running_loop().call_later(IDLE_S, self._end_if_idle)
        try:
            await self._session.run(lambda: transports_to(self._replica, self._lanes))
        except Exception:
            logger.exception("the link to %s failed", self.name)
        finally:
            self._leave()
            while self._in_flight:
                self._in_flight.pop(next(iter(self._in_flight))).lost(self.name)

    def _leave(self) -> None:
        self.is_over = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._on_over(self)

    def _note_idle(self) -> None:
        if not self._in_flight:
            self._idle_since_s = asyncio.get_running_loop().time()

    def _end_if_idle(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = IDLE_S if self._in_flight else self._idle_since_s + IDLE_S - loop.time()
        if left_s > 0:
            self._idle_timer = loop.call_later(left_s, self._end_if_idle)
        elif self._task is not None:
            self._leave()
            self._task.cancel()

    def _on_message(self, frame: messages.ExecuteResponse) -> None:
        for result in frame.results:
            activation = self._in_flight.get(result.handle)
            if activation is None:
                continue  # a heartbeat, or a result of an activation that has ended here
            kind = result.WhichOneof("result")
            if kind == "completed" and not result.completed.HasField("last_yield"):
                self._forget(result.handle)
                activation.completed(result.completed)
            elif kind == "accepted":
                activation.accepted()
            elif kind == "failed":
                self._forget(result.handle)
                activation.failed(status_from_proto(result.failed.status))
            elif kind == "progress":
                activation.progress(result.progress)
            else:
                self.cancel(result.handle, "a result that no activation of a pipeline has")
                activation.failed(_violation(self.name, str(kind)))

    def _forget(self, handle: int) -> None:
        del self._in_flight[handle]
        self._note_idle()


class PeerLinks:
    """The links of a replica. `async with` holds their tasks; leaving it ends them."""

    def __init__(self, identity: ReplicaIdentity, *, lanes: Sequence[LaneKind]) -> None:
        """`lanes` are tried when the other offers them, in their order."""
        self._identity = identity
        self._lanes = tuple(lanes)
        self._links: dict[str, PeerLink] = {}
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._running:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)

    def __len__(self) -> int:
        return len(self._links)

    def link_to(self, replica: replica_pb2.Replica) -> PeerLink:
        """The link to this life of a replica, opened if there is none."""
        link = self._links.get(replica.incarnation_id)
        if link is None:
            link = self._links[replica.incarnation_id] = PeerLink(
                replica, self._hello(replica), lanes=self._lanes, on_over=self._forget
            )
            task = self._tasks.create_task(link.run())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return link

    def _hello(self, replica: replica_pb2.Replica) -> messages.ControlHello:
        own = self._identity
        return messages.ControlHello(
            control_id=f"{own.role}/{own.replica_id}",
            incarnation_id=own.incarnation_id,
            replica_incarnation_id=replica.incarnation_id,
            value_endpoint=own.endpoint,
        )

    def _forget(self, link: PeerLink) -> None:
        if self._links.get(link.incarnation_id) is link:
            del self._links[link.incarnation_id]


def _ignore(_: messages.ReplicaHello) -> None:
    """What the replica says of itself is known from the pipeline."""


def _violation(replica: str, kind: str) -> ErrorInfo:
    return ErrorInfo(
        reason=Reason.PROTOCOL_VIOLATION,
        message=f"replica {replica} reported {kind} of an activation of a pipeline",
        metadata={"replica": replica},
    )
