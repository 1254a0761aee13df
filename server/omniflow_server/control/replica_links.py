"""The links of this process: one to each replica that is registered and ready, kept for as long as its registration stands.

    registration READY ──▶ link, connected again and again ──▶ LOST, or another life of the replica: ended

It knows which links there are and holds their streams; what is done with them is the listener's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from omniflow.role.v1 import replica_pb2
from omniflow_server.control.link import ControlIdentity, LinkListener, ReplicaLink
from omniflow_server.control.registry import Registration, Registry, ReplicaKey
from omniflow_server.control.tasks import BackgroundTasks

log = logging.getLogger(__name__)

RECONNECT_FIRST_S = 0.05
RECONNECT_MOST_S = 1.0


class LinksListener(LinkListener, Protocol):
    """Who uses the links."""

    def on_ready(self, role: str) -> None:
        """A connected replica of the role takes work: it is new, or has registered again."""

    def on_down(self, link: ReplicaLink) -> None:
        """The replica cannot be reached now; the link may be connected again."""

    def on_gone(self, link: ReplicaLink) -> None:
        """That life of the replica is over for this process; `on_down` follows."""


class ReplicaLinks:
    """Opens and ends links as registrations come and go."""

    def __init__(
        self,
        *,
        registry: Registry,
        identity: ControlIdentity,
        tasks: BackgroundTasks,
        listener: LinksListener,
        on_changed: Callable[[], object],
    ) -> None:
        """`on_changed` is called after each change of what can be reached."""
        self._registry = registry
        self._identity = identity
        self._tasks = tasks
        self._listener = listener
        self._on_changed = on_changed
        self._by_key: dict[ReplicaKey, ReplicaLink] = {}
        self._by_name: dict[str, ReplicaLink] = {}
        self._by_role: dict[str, list[ReplicaLink]] = defaultdict(list)
        self._holders: dict[ReplicaKey, asyncio.Task[None]] = {}
        registry.subscribe(self._on_registration)

    def all(self) -> list[ReplicaLink]:
        return list(self._by_key.values())

    def of_role(self, role: str) -> Sequence[ReplicaLink]:
        return self._by_role.get(role, ())

    def named(self, name: str) -> ReplicaLink | None:
        return self._by_name.get(name)

    def is_current(self, link: ReplicaLink) -> bool:
        """It is the link of the replica's present life."""
        return self._by_key.get(link.registration.key) is link

    def connected_roles(self, roles: Iterable[str]) -> set[str]:
        """Those of the roles that work can be given to now."""
        connected = {
            link.registration.replica.role
            for link in self._by_key.values()
            if link.is_connected and link.registration.is_ready
        }
        return connected.intersection(roles)

    def _on_registration(self, registration: Registration) -> None:
        key = registration.key
        state = registration.replica.state
        link = self._by_key.get(key)
        if state == replica_pb2.REPLICA_STATE_LOST:
            if link is not None and link.registration.replica.incarnation_id == registration.replica.incarnation_id:
                self._disconnect(link)
        elif state == replica_pb2.REPLICA_STATE_READY:
            if link is None or link.registration.lease_id != registration.lease_id:
                self._connect(registration)
            else:
                self._renew(link, registration)
        self._on_changed()

    def _connect(self, registration: Registration) -> None:
        key = registration.key
        old = self._by_key.get(key)
        if old is not None and old.registration.replica.incarnation_id == registration.replica.incarnation_id:
            self._renew(old, registration)  # the same life under a new lease: its stream goes on
            return
        if old is not None:
            self._disconnect(old)
        link = ReplicaLink(registration, self._identity, self._listener)
        self._by_key[key] = self._by_name[link.name] = link
        self._by_role[registration.replica.role].append(link)
        self._holders[key] = self._tasks.create_task(self._keep_connected(link))

    def _renew(self, link: ReplicaLink, registration: Registration) -> None:
        link.renew(registration)
        if link.is_connected:
            self._listener.on_ready(registration.replica.role)

    def _disconnect(self, link: ReplicaLink) -> None:
        """Ends a replica's stream. At once out of the tables: its task may take its time, or never have begun."""
        self._drop(link)
        self._holders.pop(link.registration.key).cancel()
        link.is_connected = False
        self._down(link)

    def _drop(self, link: ReplicaLink) -> None:
        del self._by_key[link.registration.key]
        self._by_role[link.registration.replica.role].remove(link)
        if self._by_name.get(link.name) is link:
            del self._by_name[link.name]
        self._listener.on_gone(link)

    def _down(self, link: ReplicaLink) -> None:
        self._on_changed()
        self._listener.on_down(link)

    async def _keep_connected(self, link: ReplicaLink) -> None:
        """Holds the stream to a replica for as long as its registration stands."""
        key = link.registration.key
        loop = asyncio.get_running_loop()
        delay_s = RECONNECT_FIRST_S / 2
        try:
            while self._registry.find(*key) is link.registration:
                begin_s = loop.time()
                await link.run(self._on_connected)
                self._down(link)
                has_lasted = loop.time() - begin_s > RECONNECT_MOST_S
                delay_s = RECONNECT_FIRST_S if has_lasted else min(RECONNECT_MOST_S, delay_s * 2)
                await asyncio.sleep(delay_s)
        finally:
            if self.is_current(link):
                self._drop(link)
                del self._holders[key]
                self._down(link)

    def _on_connected(self, link: ReplicaLink) -> None:
        log.info("connected to %s", link.name)
        self._tasks.create_task(link.release_calls([]))
        self._listener.on_ready(link.registration.replica.role)
        self._on_changed()
