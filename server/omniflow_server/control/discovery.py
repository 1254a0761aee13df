"""Finds replicas that do not register: at targets of the configuration, and at the addresses of names.

    control.replicas       llm=10.0.0.7:7800 ───────────────▶ target ──DescribeRole──▶ adopted into the registry
    control.dns_replicas   llm=llm.svc:7800 ──addresses──▶ targets        └─ no answer, and no stream ─▶ forgotten
                                                └─ no longer listed ─▶ no new work ─▶ no call needs it ─▶ forgotten

Each control plane finds by itself, and nothing of it goes to the metadata store. A stream is a replica's life: while there
is one, a question that is not answered means nothing, and when it has ended the target is asked at once. A replica that
registers as well is left to its registration. Does not know who holds the streams, nor which calls need a replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from omniflow.codec.error import error_from_rpc
from omniflow.internal_rpc import PROTOCOL_REVISION, internal_channel
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow.role.v1 import role_execution_service_pb2_grpc as pb_grpc
from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_server.control.registry import Registration, Registry
from omniflow_server.control.settings import ControlSettings

log = logging.getLogger(__name__)

ANSWER_S = 2.0
"""How long a replica may take to say who it is; one that takes longer stands still."""
UNIX = "unix:"
"""Begins targets on this host."""

Describe = Callable[[str], Awaitable[replica_pb2.Replica]]
"""Asks a gRPC target who it is. Raises OmniFlowError when it does not answer."""
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""gRPC targets of the addresses of a host, with a port. Raises OSError when it has none."""


# --- what is configured ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticReplica:
    """A replica at a target."""

    role: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedReplicas:
    """A replica at each address of a host."""

    role: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,127})=(\S+)")
_PORT = re.compile(r"(\S+):([0-9]{1,5})")
_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]")
_Parsed = TypeVar("_Parsed", StaticReplica, NamedReplicas)


def configured(settings: ControlSettings) -> tuple[list[StaticReplica], list[NamedReplicas]]:
    """What is to be found. Raises OmniFlowError INVALID_CONFIG with one violation per mistake."""
    violations: list[Violation] = []
    static = _read("control.replicas", settings.replicas, _static_replica, violations)
    named = _read("control.dns_replicas", settings.dns_replicas, _named_replicas, violations)
    if settings.discovery_interval_s <= 0:
        violations.append(Violation(field="control.discovery_interval_s", description="must be more than 0"))
    if violations:
        text = "; ".join(f"{violation.field}: {violation.description}" for violation in violations)
        raise OmniFlowError(Reason.INVALID_CONFIG, text, violations=tuple(violations))
    return static, named


def _read(
    key: str, texts: Sequence[str], parse: Callable[[str], _Parsed], violations: list[Violation]
) -> list[_Parsed]:
    found: list[_Parsed] = []
    for index, text in enumerate(texts):
        try:
            parsed = parse(text)
        except ValueError as mistake:
            violations.append(Violation(field=f"{key}[{index}]", description=str(mistake)))
            continue
        if parsed in found:
            violations.append(
                Violation(field=f"{key}[{index}]", description=f"{text!r} is there already; leave it out")
            )
        else:
            found.append(parsed)
    return found


def _static_replica(text: str) -> StaticReplica:
    parts = _ENTRY.fullmatch(text)
    if parts is None or not (parts[2].startswith(f"{UNIX}/") or _has_port(parts[2])):
        raise ValueError(f"{text!r} is not ROLE=TARGET; write it as llm=10.0.0.7:7800 or llm=unix:/run/llm.sock")
    return StaticReplica(role=parts[1], target=parts[2])


def _named_replicas(text: str) -> NamedReplicas:
    parts = _ENTRY.fullmatch(text)
    place = _PORT.fullmatch(parts[2]) if parts is not None else None
    if parts is None or place is None or not _has_port(parts[2]) or not _HOST.fullmatch(place[1]):
        raise ValueError(f"{text!r} is not ROLE=HOST:PORT; write it as llm=llm.default.svc:7800")
    return NamedReplicas(role=parts[1], host=place[1].strip("[]"), port=int(place[2]))


def _has_port(target: str) -> bool:
    place = _PORT.fullmatch(target)
    return place is not None and 0 < int(place[2]) < 65_536


# --- the two questions ----------------------------------------------------------------------------------------------------


async def describe(target: str) -> replica_pb2.Replica:
    """Asks a role server who it is, over a connection of its own. Raises OmniFlowError."""
    async with internal_channel(target) as channel:
        try:
            stub = pb_grpc.RoleExecutionServiceStub(channel)
            answer: pb.DescribeRoleResponse = await stub.DescribeRole(pb.DescribeRoleRequest(), timeout=ANSWER_S)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
    return answer.replica


async def resolve(host: str, port: int) -> list[str]:
    """A gRPC target for each address of a host. Raises OSError when there is none, or nobody can tell."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as problem:  # a label of more than 63 letters
        raise OSError(f"{host!r} is no name of a host: {problem}") from None
    addresses = (str(address[0]) for _, _, _, _, address in found)
    return list(dict.fromkeys(f"[{a}]:{port}" if ":" in a else f"{a}:{port}" for a in addresses))


# --- finding --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True, eq=False)
class _Place:
    """Something that is asked again and again."""

    role: str
    complaint: str = ""
    """What is wrong with it, as it was logged: once, until it is right again."""

    def complain(self, text: str, *arguments: object) -> None:
        """Logs what is new. `text` has the role first."""
        if self.complaint != text:
            self.complaint = text
            log.warning(text, self.role, *arguments)


@dataclass(slots=True, kw_only=True, eq=False)
class _Target(_Place):
    """Where one replica may be. Its lease in the registry tells what was found there."""

    address: str
    lease_id: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    is_listed: bool = True
    """Configured, or an address of the name now."""
    had_stream: bool = False
    soon: asyncio.Event = field(default_factory=asyncio.Event)
    """There is a reason to look at it at once."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Name(_Place):
    """A host whose addresses are targets."""

    place: NamedReplicas
    targets: dict[str, _Target] = field(default_factory=dict)


class Discovery:
    """Keeps what it finds in the registry. `run` is its life."""

    def __init__(
        self,
        registry: Registry,
        settings: ControlSettings,
        *,
        is_needed: Callable[[Registration], bool],
        describe: Describe = describe,
        resolve: Resolve = resolve,
    ) -> None:
        """`is_needed`: a call that has not ended works with the replica. Raises INVALID_CONFIG."""
        static, named = configured(settings)
        self._registry = registry
        self._interval_s = settings.discovery_interval_s
        self._is_needed = is_needed
        self._describe = describe
        self._resolve = resolve
        self._static = [_Target(role=replica.role, address=replica.target) for replica in static]
        self._names = [_Name(role=place.role, place=place) for place in named]

    async def run(self) -> None:
        """Finds for ever; returns at once when nothing is configured."""
        async with asyncio.TaskGroup() as tasks:
            for target in self._static:
                tasks.create_task(self._follow(target))
            for name in self._names:
                tasks.create_task(self._follow_name(name, tasks))

    def look_again(self) -> None:
        """Streams have begun or ended: what has lost its own is asked at once."""
        for target in self._targets():
            found = self._found_at(target)
            has_stream = found is not None and found.has_stream
            if target.had_stream and not has_stream:
                target.soon.set()
            target.had_stream = has_stream

    def _targets(self) -> Iterator[_Target]:
        yield from self._static
        for name in self._names:
            yield from name.targets.values()

    def _found_at(self, target: _Target) -> Registration | None:
        return self._registry.by_lease(target.lease_id)

    # --- names --------------------------------------------------------------------------------------------------------

    async def _follow_name(self, name: _Name, tasks: asyncio.TaskGroup) -> None:
        while True:
            try:
                addresses = await self._resolve(name.place.host, name.place.port)
            except OSError as error:  # what was known stays: streams tell who lives
                name.complain("role %s: %s is not resolved: %s", name.place, error)
            else:
                if name.complaint:
                    log.info("role %s: %s is resolved again", name.role, name.place)
                name.complaint = ""
                self._list(name, addresses, tasks)
            await asyncio.sleep(self._interval_s)

    def _list(self, name: _Name, addresses: Sequence[str], tasks: asyncio.TaskGroup) -> None:
        """Takes in which addresses the name has now."""
        for address in addresses:
            if address not in name.targets:
                target = name.targets[address] = _Target(role=name.role, address=address)
                tasks.create_task(self._follow_address(name, target))
        for address, target in name.targets.items():
            if target.is_listed != (address in addresses):
                target.is_listed = not target.is_listed
                target.soon.set()

    async def _follow_address(self, name: _Name, target: _Target) -> None:
        await self._follow(target)
        del name.targets[target.address]

    # --- targets ------------------------------------------------------------------------------------------------------

    async def _follow(self, target: _Target) -> None:
        """Looks at a target again and again. Returns when it is no longer listed and nothing of it is left."""
        while True:
            target.soon.clear()
            await self._look_at(target)
            if not target.is_listed and self._found_at(target) is None:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await target.soon.wait()

    async def _look_at(self, target: _Target) -> None:
        answer: replica_pb2.Replica | OmniFlowError | None = None
        if target.is_listed:
            try:
                answer = await self._describe(target.address)
            except OmniFlowError as error:
                answer = error
        if answer is None or not target.is_listed:  # also when the name has changed meanwhile
            self._let_go(target)
        elif isinstance(answer, OmniFlowError):
            self._missed(target, answer)
        else:
            self._answered(target, answer)

    def _let_go(self, target: _Target) -> None:
        """Gives no new work to what is no longer listed, and forgets it when its stream has ended or no call needs it."""
        found = self._found_at(target)
        if found is None:
            return
        if not (found.has_stream and self._is_needed(found)):
            self._forget(target)
        elif found.replica.state != replica_pb2.REPLICA_STATE_DRAINING:
            log.info("role %s: %s is no longer listed; no new work for %s", target.role, target.address, _who(found))
            draining = _copy(found.replica)
            draining.state = replica_pb2.REPLICA_STATE_DRAINING
            self._registry.adopt(draining, lease_id=target.lease_id, drain_grace_s=found.drain_grace_s)

    def _missed(self, target: _Target, error: OmniFlowError) -> None:
        found = self._found_at(target)
        if found is None or not found.has_stream:
            target.complain("role %s: %s does not answer: %s", target.address, error.message)
            self._forget(target)

    def _answered(self, target: _Target, replica: replica_pb2.Replica) -> None:
        refusal = _refusal(replica, target.role)
        found = self._found_at(target)
        known = self._registry.find(replica.role, replica.replica_id)
        if found is not None and found.has_stream and not _is_same_life(found, replica):
            # The old life is about to end, or this is the address of several processes, each of which would end the others.
            target.complain(
                "role %s: %s answers as another process while %s has a stream; the target must be that of one process",
                target.address,
                _who(found),
            )
        elif refusal:
            target.complain("role %s: the replica at %s is not used: %s", target.address, refusal)
            self._forget(target)
        elif known is not None and known is not found and not self._is_left(known, replica):
            self._answered_as_known(target, replica, known)
        else:
            self._adopt(target, replica)

    def _is_left(self, known: Registration, replica: replica_pb2.Replica) -> bool:
        """It was found at an address that is no longer listed: it goes on, with its stream, under one that is."""
        holders = [target for target in self._targets() if target.lease_id == known.lease_id and not target.is_listed]
        return bool(holders) and _is_same_life(known, replica)

    def _answered_as_known(self, target: _Target, replica: replica_pb2.Replica, known: Registration) -> None:
        """Leaves a replica to its registration, or to the target where it was found first."""
        self._forget(target)
        if _is_same_life(known, replica):
            target.complaint = ""
            return
        target.complain(
            "role %s: the replica at %s is not used while another process is known as %s; give each a replica_id of its own",
            target.address,
            _who(known),
        )

    def _adopt(self, target: _Target, replica: replica_pb2.Replica) -> None:
        """Takes a replica in, under the target where it answered: what it says of itself may be no address for others."""
        found, known = self._found_at(target), self._registry.find(replica.role, replica.replica_id)
        if found is not None and found is not known:
            self._registry.deregister(target.lease_id)
        adopted = _copy(replica)
        adopted.endpoint = target.address
        if not target.address.startswith(UNIX):
            del adopted.lanes[:]
        is_known = known is not None and _is_same_life(known, replica)
        grace_s = known.drain_grace_s if known is not None and is_known else None
        if grace_s is not None:  # drained by an operator, of which the process knows nothing
            adopted.state = replica_pb2.REPLICA_STATE_DRAINING
        target.complaint = ""
        registration = self._registry.adopt(adopted, lease_id=target.lease_id, drain_grace_s=grace_s)
        if not is_known:
            log.info("role %s: found %s at %s", target.role, _who(registration), target.address)

    def _forget(self, target: _Target) -> None:
        """What was found there is known no more. Who has answered under its name elsewhere may have it."""
        found = self._found_at(target)
        if found is None:
            return
        log.info("role %s: forgets %s at %s", target.role, _who(found), target.address)
        self._registry.deregister(target.lease_id)
        for other in self._targets():
            if other is not target and other.role == target.role and self._found_at(other) is None:
                other.soon.set()


def _refusal(replica: replica_pb2.Replica, role: str) -> str:
    """Why a replica is not used as one of the role; empty when it is."""
    if replica.role != role:
        return f"it is one of role {replica.role!r}; correct the role or the target in the configuration"
    if not replica.replica_id or not replica.incarnation_id:
        return "it does not say who it is"
    if PROTOCOL_REVISION not in replica.protocol_revisions:
        spoken = list(replica.protocol_revisions)
        return f"it speaks protocol revisions {spoken}, this control plane speaks {PROTOCOL_REVISION}"
    return ""


def _is_same_life(registration: Registration, replica: replica_pb2.Replica) -> bool:
    known = registration.replica
    return (known.replica_id, known.incarnation_id) == (replica.replica_id, replica.incarnation_id)


def _copy(replica: replica_pb2.Replica) -> replica_pb2.Replica:
    """The registry changes what it is given."""
    made = replica_pb2.Replica()
    made.CopyFrom(replica)
    return made


def _who(registration: Registration) -> str:
    return "/".join(registration.key)
