"""The links of a role process, and the transports that control planes open to it.

A transport begins with a hello, which says whose link it carries. Which kind of transport it is makes no difference here.

    hello ─▶ link ─▶ attached ──transport breaks──▶ detached ──hello, resuming──▶ attached …
                        │ its end is said              │ resume_grace_s
                        ▼                              ▼
                      ended, and what it started is cancelled
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from google.protobuf.message import DecodeError

from omniflow.large_values import ValueStore
from omniflow.links.port import END, LinkSide
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.harness import results
from omniflow_roles.harness.host import RoleHost
from omniflow_roles.harness.link import ExecuteLink
from omniflow_roles.harness.replica import ReplicaIdentity
from omniflow_roles.harness.retention import RetainedCalls

logger = logging.getLogger(__name__)


class Links:
    """Opens a link for each hello, or goes on with the one that it names, and knows those that are there."""

    def __init__(
        self,
        host: RoleHost,
        identity: ReplicaIdentity,
        store: ValueStore,
        retained: RetainedCalls,
        *,
        heartbeat_s: float,
        resume_grace_s: float,
    ) -> None:
        self._host = host
        self._identity = identity
        self._store = store
        self._retained = retained
        self._heartbeat_s = heartbeat_s
        self._resume_grace_s = resume_grace_s
        self._links: dict[ExecuteLink, _Side | None] = {}
        """Each with the side of its transport, None while it is detached."""
        self._timers: dict[ExecuteLink, asyncio.TimerHandle] = {}
        self._no_links = asyncio.Event()
        self._no_links.set()

    def side(self, wake: Callable[[], None]) -> LinkSide:
        """The side of a transport that a control plane has opened; `wake` is the transport's."""
        return _Side(self, wake)

    def newest_of(self, owner: str) -> ExecuteLink | None:
        """The link that the control plane with that incarnation has opened last."""
        return next((link for link in reversed(self._links) if link.owner == owner and not link.pump.is_closed), None)

    async def close(self) -> None:
        """Ends every link when what is queued has been written."""
        for link, side in tuple(self._links.items()):
            if side is None:
                self.remove(link)
            else:
                link.pump.close()
        await self._no_links.wait()

    def stop(self) -> None:
        """Ends what is left, detached links above all."""
        for link in tuple(self._links):
            self.remove(link)

    def open(self, hello: messages.ControlHello, side: _Side) -> tuple[ExecuteLink, bytes]:
        """The link that a hello asks for, and the answer. Raises STALE_EPOCH when another life of the replica is meant."""
        own = self._identity.incarnation_id
        if hello.replica_incarnation_id != own:
            raise OmniFlowError(
                Reason.STALE_EPOCH,
                f"this is incarnation {own} of replica {self._identity.replica_id}, not {hello.replica_incarnation_id!r}",
                metadata={"incarnation_id": own},
            )
        link = self._resumed(hello) if hello.is_resuming else None
        is_resumed = link is not None
        if link is None:
            link = ExecuteLink(
                self._host,
                self._store,
                self._retained,
                owner=hello.incarnation_id,
                link_id=hello.link_id,
                heartbeat_s=self._heartbeat_s,
            )
            self._retained.attach(link.owner)
        self._links[link] = side
        self._no_links.clear()
        answer = results.hello(
            self._identity.message(self._host.state),
            self._store.endpoint,
            is_resumed=is_resumed,
            received_messages=link.receipts.count,
        )
        return link, answer

    def detach(self, link: ExecuteLink) -> None:
        """Its transport is gone; another may come, unless the end was said."""
        if link.pump.is_closed or not link.link_id:
            self.remove(link)
            return
        logger.info("the transport of a link broke; its %d activations go on", link.activation_count)
        link.detach()
        self._links[link] = None
        loop = asyncio.get_running_loop()
        self._timers[link] = loop.call_later(self._resume_grace_s, self.remove, link)

    def remove(self, link: ExecuteLink) -> None:
        """The link is over. Repeats change nothing."""
        if link not in self._links:
            return
        self._stop_timer(link)
        link.end()
        del self._links[link]
        self._retained.detach(link.owner)
        if not self._links:
            self._no_links.set()

    def _resumed(self, hello: messages.ControlHello) -> ExecuteLink | None:
        """The link to go on with, its transport taken away; None when it is not known any more.

        Raises PROTOCOL_VIOLATION when the peer lacks messages that it once had: an old hello that comes late.
        """
        link = next(
            (link for link in self._links if link.link_id == hello.link_id != "" and not link.pump.is_closed), None
        )
        if link is None:
            return None
        if not link.pump.can_rewind(hello.received_messages):
            raise OmniFlowError(Reason.PROTOCOL_VIOLATION, "the link has gone on since, or cannot go on")
        self._stop_timer(link)
        side = self._links[link]
        if side is not None:
            side.replace()
        link.pump.rewind(hello.received_messages)
        return link

    def _stop_timer(self, link: ExecuteLink) -> None:
        timer = self._timers.pop(link, None)
        if timer is not None:
            timer.cancel()


class _Side:
    """A link as one of its transports sees it: first the hellos, then what the link has. Implements `LinkSide`."""

    def __init__(self, links: Links, wake: Callable[[], None]) -> None:
        self._links = links
        self._wake = wake
        self._link: ExecuteLink | None = None
        self._hello: bytes | None = None
        self._is_deaf = False
        """The peer has said its end, or there is nothing more to do with it: nothing is taken in."""
        self._is_over = False
        """The peer has broken the rules or goes on elsewhere: nothing is given any more either."""

    @property
    def is_finished(self) -> bool:
        return self._is_over or (self._link is not None and self._link.pump.is_finished)

    def take(self) -> bytes | None:
        if self._hello is not None:
            hello, self._hello = self._hello, None
            return hello
        if self._link is None or self._is_over:
            return None
        try:
            return self._link.pump.take()
        except OmniFlowError:
            self._fail()
            raise

    def received(self, message: bytes) -> None:
        """Raises PROTOCOL_VIOLATION and STALE_EPOCH for what the peer did; its work is stopped then."""
        if self._is_deaf:
            return
        try:
            if self._link is None:
                self._open(message)
            elif message == END:
                self._end()
            else:
                self._link.received(message)
        except DecodeError:
            self._fail()
            raise OmniFlowError(Reason.PROTOCOL_VIOLATION, "a frame that is no ExecuteRequest") from None
        except OmniFlowError:
            self._fail()
            raise

    def peer_left(self) -> None:
        """gRPC does not tell a peer that has closed its direction from one that is gone."""
        if self._link is not None and self._link.link_id and not self._is_deaf:
            self.closed()
            self.replace()
        else:
            self._end()

    def closed(self) -> None:
        if self._link is not None:
            self._links.detach(self._link)

    def replace(self) -> None:
        """This transport does not carry the link any more."""
        self._link = None
        self._fail()

    def _fail(self) -> None:
        """Ends what the link runs, if there is one still, and the transport."""
        self._is_over = True
        self._end()

    def _end(self) -> None:
        """Ends what the link runs; what it has to say of that is still written."""
        self._is_deaf = True
        if self._link is not None:
            self._link.end()
        else:
            self._is_over = True
        self._wake()

    def _open(self, message: bytes) -> None:
        commands = messages.ExecuteRequest.FromString(message).commands
        if not commands or commands[0].WhichOneof("command") != "hello":
            raise OmniFlowError(Reason.PROTOCOL_VIOLATION, "the first command of a stream must be hello")
        self._link, self._hello = self._links.open(commands[0].hello, self)
        self._link.attach(self._wake)
        self._link.handle(commands[1:])
