"""The replica's entry in the registry: register, keep alive with the load, leave.

    register ──ok──▶ keep alive every third of the lease ──reregister──▶ register …
        │                                └──lost──▶ register with the next control plane …
        └─fails─▶ the next; when all have failed: wait 0.05 s, 0.1 s … 1 s ─▶ register …

The control planes of a cluster share what they know of replicas, so one registration is enough. It may be with any of
those that were given at the start, and of those that they have named since. A lost registry never disturbs activations:
control planes that have a stream go on using it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import grpc.aio

from omniflow.codec.error import error_from_rpc
from omniflow.internal_rpc import internal_channel
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_registry_service_pb2 as messages
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.harness.replica import ReplicaIdentity, State

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.05
LAST_BACKOFF_S = 1.0
RPC_TIMEOUT_S = 2.0
"""A control plane that takes longer stands still; another one may not."""
DEFAULT_LEASE_S = 3.0

_SERVICE = messages.DESCRIPTOR.services_by_name["RoleRegistryService"].full_name


class Reported(Protocol):
    """What the registration tells the registry about."""

    @property
    def state(self) -> State: ...
    def load(self) -> replica_pb2.ReplicaLoad: ...


class Registration:
    """Keeps a replica registered until it is told to leave."""

    def __init__(
        self,
        registries: Sequence[str],
        identity: ReplicaIdentity,
        reported: Reported,
        on_drain: Callable[[float | None], None],
    ) -> None:
        """`on_drain` is called with the grace in seconds when the registry wants the replica drained."""
        self._given = tuple(registries)
        self._targets = deque(registries)
        """Where to register, the one in use first."""
        self._identity = identity
        self._reported = reported
        self._on_drain = on_drain
        self._lease_id = ""
        self._has_left = False
        self._changed = asyncio.Event()

    def announce(self) -> None:
        """The state has changed: tell the registry now, not at the next keep-alive."""
        self._changed.set()

    async def run(self) -> None:
        """Registers, again and again, until `leave`; returns also when a newer process has taken the replica over."""
        failures, backoff_s = 0, FIRST_BACKOFF_S
        while not self._has_left:
            try:
                async with internal_channel(self._targets[0]) as channel:
                    stub = _Stub(channel)
                    while not self._has_left:
                        lease_ttl_s = await self._register(stub)
                        failures, backoff_s = 0, FIRST_BACKOFF_S
                        await self._keep_alive(stub, lease_ttl_s)
                        await asyncio.sleep(FIRST_BACKOFF_S)
            except _ReplacedError:
                logger.warning("a newer process has taken over replica %s; leaving", self._identity.replica_id)
                self._on_drain(0.0)
                return
            except (OmniFlowError, TimeoutError) as error:
                logger.warning("not registered with %s: %s", self._targets[0], error)
            finally:
                self._lease_id = ""
            self._targets.rotate(-1)
            failures += 1
            if failures >= len(self._targets):
                await asyncio.sleep(backoff_s)
                failures, backoff_s = 0, min(LAST_BACKOFF_S, 2 * backoff_s)

    async def leave(self) -> None:
        """Deregisters, best effort; `run` does not register again. To be called before `run` is cancelled, which forgets
        the lease."""
        self._has_left = True
        if not self._lease_id:
            return
        async with internal_channel(self._targets[0]) as channel:
            try:
                await _Stub(channel).deregister(
                    messages.DeregisterReplicaRequest(lease_id=self._lease_id), timeout=RPC_TIMEOUT_S
                )
            except grpc.aio.AioRpcError as error:
                logger.warning("not deregistered: %s; the lease will run out", error_from_rpc(error))

    async def _register(self, stub: _Stub) -> float:
        """Returns the length of the lease in seconds."""
        self._changed.clear()
        request = messages.RegisterReplicaRequest(replica=self._identity.message(self._reported.state))
        try:
            response = await stub.register(request, timeout=RPC_TIMEOUT_S)
        except grpc.aio.AioRpcError as rpc_error:
            error = error_from_rpc(rpc_error)
            if error.reason is Reason.STALE_EPOCH:
                raise _ReplacedError from None
            raise error from None
        self._lease_id = response.lease_id
        self._learn(response.registries)
        lease_ttl_s = response.lease_ttl.seconds + response.lease_ttl.nanos / 1e9 or DEFAULT_LEASE_S
        logger.info("registered with %s, lease %.1f s", self._targets[0], lease_ttl_s)
        return float(lease_ttl_s)

    def _learn(self, registries: Sequence[str]) -> None:
        """Where to go on when this control plane is gone. Those that were given stay: all others may be gone by then."""
        if registries:
            current = self._targets[0]
            self._targets = deque(dict.fromkeys((current, *registries, *self._given)))

    async def _keep_alive(self, stub: _Stub, lease_ttl_s: float) -> None:
        """Returns or raises when the registration must be renewed."""
        call = stub.keep_alive(self._reports(lease_ttl_s / 3))
        try:
            while True:
                # Every report is answered, so silence for the whole lease means that the registry has lost it.
                async with asyncio.timeout(lease_ttl_s):
                    response = await call.read()
                if response is grpc.aio.EOF:
                    return
                if response.HasField("reregister"):
                    return
                self._learn(response.registries)
                if response.HasField("drain"):
                    self._on_drain(_seconds(response.drain))
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from None
        finally:
            call.cancel()

    async def _reports(self, every_s: float) -> AsyncIterator[messages.KeepAliveRequest]:
        while True:
            yield messages.KeepAliveRequest(
                lease_id=self._lease_id,
                state=self._reported.state.value,  # type: ignore[arg-type]
                load=self._reported.load(),
            )
            try:
                async with asyncio.timeout(every_s):
                    await self._changed.wait()
            except TimeoutError:
                continue
            self._changed.clear()


class _ReplacedError(Exception):
    """The registry knows a newer process of the same replica."""


class _Stub:
    """The three methods that a replica calls."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.register: Any = channel.unary_unary(
            f"/{_SERVICE}/RegisterReplica",
            request_serializer=messages.RegisterReplicaRequest.SerializeToString,
            response_deserializer=messages.RegisterReplicaResponse.FromString,
        )
        self.deregister: Any = channel.unary_unary(
            f"/{_SERVICE}/DeregisterReplica",
            request_serializer=messages.DeregisterReplicaRequest.SerializeToString,
            response_deserializer=messages.DeregisterReplicaResponse.FromString,
        )
        self.keep_alive: Any = channel.stream_stream(
            f"/{_SERVICE}/KeepAlive",
            request_serializer=messages.KeepAliveRequest.SerializeToString,
            response_deserializer=messages.KeepAliveResponse.FromString,
        )


def _seconds(drain: messages.DrainDirective) -> float | None:
    return drain.grace.seconds + drain.grace.nanos / 1e9 if drain.HasField("grace") else None
