"""One activation that this replica has taken in: of a StartActivation, or of a segment that runs here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol, cast

from omniflow.activation import Activation
from omniflow.codec.graph import sampling_from_proto
from omniflow.interface import Context, Inputs, Interface
from omniflow.large_values import ValueFetcher
from omniflow.threads import ThreadPool
from omniflow_core.errors import ErrorInfo
from omniflow_roles.harness.inputs import StartActivation, fetch_inputs, needs_fetch, read_inputs

if TYPE_CHECKING:
    from omniflow.activation import Sink
    from omniflow.values import Value
    from omniflow_core.control.segments import RunInner

OrderKey = tuple[str, str, str]
"""Tenant, session, node: what runs one at a time."""
DEFAULT_TENANT = "default"
FetchInputs = Callable[[], Awaitable[Inputs]]


class Scope(Protocol):
    """What an execution belongs to that goes on when it has left its seat, and is stopped as a whole: a segment's run, or
    what an activation of a pipeline has started."""

    @property
    def interfaces(self) -> Collection[Interface]:
        """Those that run in it here."""

    def acknowledge(self, inner_id: int, next_ordinal: int) -> None:
        """Who has started it has the yields below the ordinal."""

    def stop(self, error: ErrorInfo, *, is_retryable: bool) -> bool:
        """Reports the failure at once, then stops what runs. False when the end has been reported before."""

    def left(self, execution: Execution) -> None:
        """One of its executions has given up its place. Repeats change nothing."""


class Execution:
    """An activation with its place in the order of its session. Compared by identity."""

    __slots__ = (
        "activation",
        "call_id",
        "deadline_timer",
        "fetch_inputs",
        "inner_id",
        "interface",
        "order_key",
        "ordinal",
        "scope",
        "session",
    )

    def __init__(
        self,
        activation: Activation,
        interface: Interface,
        call_id: str,
        *,
        scope: Scope | None = None,
        inner_id: int = 0,
    ) -> None:
        self.activation = activation
        self.interface = interface
        self.call_id = call_id
        self.scope = scope
        """What it belongs to, when it was started with a segment or inside one, or with a pipeline."""
        self.inner_id = inner_id
        self.session = ("", "")
        """Tenant and session that it was started for; an owner of the session that is newer ends it."""
        self.ordinal = 0
        self.order_key: OrderKey | None = None
        self.fetch_inputs: FetchInputs | None = None
        """How to fetch the inputs, when a payload is kept by another process."""
        self.deadline_timer: asyncio.TimerHandle | None = None

    @property
    def interfaces(self) -> Collection[Interface]:
        """Interfaces that run for what was started."""
        return (self.interface,) if self.scope is None else self.scope.interfaces

    def acknowledge(self, inner_id: int, next_ordinal: int) -> None:
        """Yields below the ordinal are delivered: of this activation, or of one in its segment."""
        if self.scope is not None:
            self.scope.acknowledge(inner_id, next_ordinal)
        elif inner_id == 0:
            self.activation.ack(next_ordinal)


def started_execution(
    start: StartActivation,
    sink: Sink,
    interface: Interface,
    fetcher: ValueFetcher,
    threads: ThreadPool,
    *,
    scope: Scope | None = None,
) -> Execution:
    """The execution of a StartActivation. Raises OmniFlowError for inputs that cannot be decoded."""
    context = context_of(start)
    inputs, fetch = _inputs_of(start, context, fetcher)
    activation = Activation(
        interface,
        inputs,
        context,
        sink,
        yield_window=start.yield_window,
        byte_credit=start.byte_credit,
        threads=threads,
        first_ordinal=len(start.delivered_yields),
    )
    execution = Execution(activation, interface, start.activation.call_id, scope=scope)
    execution.fetch_inputs = fetch
    execution.session = (context.tenant, context.session)
    execution.ordinal = start.session_ordinal
    if start.session and start.session_ordinal:
        execution.order_key = (start.tenant, start.session, start.activation.node)
    return execution


def inner_execution(
    command: RunInner,
    context: Context,
    sink: Sink,
    interface: Interface,
    threads: ThreadPool,
    scope: Scope,
    *,
    byte_credit: int,
) -> Execution:
    """The execution of an activation inside a segment: its values come as they are. `context` is the entry's."""
    activation = Activation(
        interface,
        Inputs(
            command.group, cast("Mapping[str, tuple[Value, ...]]", command.fields)
        ),  # the core does not know of values
        _inner_context(command, context),
        sink,
        yield_window=command.yield_window,
        byte_credit=byte_credit,
        threads=threads,
    )
    return Execution(activation, interface, context.call_id, scope=scope, inner_id=command.inner_id)


def context_of(start: StartActivation) -> Context:
    """What the activation of a start knows of its call."""
    ref = start.activation
    context = Context(
        call_id=ref.call_id,
        activation_id=ref.activation_id,
        node=ref.node,
        attempt=ref.attempt,
        tenant=start.tenant or DEFAULT_TENANT,
        session=start.session,
        priority=start.priority,
        traceparent=start.traceparent,
    )
    if start.HasField("sampling"):
        context.sampling = sampling_from_proto(start.sampling)
    if start.HasField("deadline"):
        context.deadline_unix_s = start.deadline.seconds + start.deadline.nanos / 1e9
    return context


def _inner_context(command: RunInner, entry: Context) -> Context:
    return Context(
        call_id=entry.call_id,
        activation_id=entry.activation_id << 32 | command.inner_id,
        node=command.node,
        attempt=entry.attempt,
        tenant=entry.tenant,
        session=entry.session,
        sampling=entry.sampling,
        priority=entry.priority,
        deadline_unix_s=entry.deadline_unix_s,
        traceparent=entry.traceparent,
    )


def _inputs_of(start: StartActivation, context: Context, fetcher: ValueFetcher) -> tuple[Inputs, FetchInputs | None]:
    """The inputs, or how to fetch them when a payload is kept by another process. The delivered yields go to the context."""

    async def fetched() -> Inputs:
        inputs, context.delivered = await fetch_inputs(start, fetcher)
        return inputs

    if needs_fetch(start):
        return Inputs("", {}), fetched
    inputs, context.delivered = read_inputs(start)
    return inputs, None
