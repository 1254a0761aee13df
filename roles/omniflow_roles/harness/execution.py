"""One StartActivation that this replica has taken in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from omniflow.activation import Activation
from omniflow.codec.graph import sampling_from_proto
from omniflow.interface import Context, Inputs, Interface
from omniflow.large_values import ValueFetcher
from omniflow.threads import ThreadPool
from omniflow_roles.harness.inputs import StartActivation, check_supported, fetch_inputs, needs_fetch, read_inputs
from omniflow_roles.harness.sink import ResultSink

OrderKey = tuple[str, str, str]
"""Tenant, session, node: what runs one at a time."""


class Execution:
    """An activation with its place in the order of its session. Compared by identity."""

    __slots__ = ("activation", "call_id", "deadline_timer", "fetch_inputs", "interface", "order_key", "ordinal", "sink")

    def __init__(
        self, start: StartActivation, sink: ResultSink, interface: Interface, fetcher: ValueFetcher, threads: ThreadPool
    ) -> None:
        """Raises OmniFlowError for inputs that cannot be decoded."""
        ref = start.activation
        self.call_id = ref.call_id
        self.interface = interface
        self.sink = sink
        self.ordinal = start.session_ordinal
        self.order_key: OrderKey | None = (
            (start.tenant, start.session, ref.node) if start.session and start.session_ordinal else None
        )
        self.deadline_timer: asyncio.TimerHandle | None = None
        check_supported(start)
        context = _context_of(start)
        inputs, self.fetch_inputs = _inputs_of(start, context, fetcher)
        self.activation = Activation(
            interface,
            inputs,
            context,
            sink,
            yield_window=start.yield_window,
            byte_credit=start.byte_credit,
            threads=threads,
            first_ordinal=len(start.delivered_yields),
        )


def _inputs_of(
    start: StartActivation, context: Context, fetcher: ValueFetcher
) -> tuple[Inputs, Callable[[], Awaitable[Inputs]] | None]:
    """The inputs, or how to fetch them when a payload is kept by another process. The delivered yields go to the context."""

    async def fetched() -> Inputs:
        inputs, context.delivered = await fetch_inputs(start, fetcher)
        return inputs

    if needs_fetch(start):
        return Inputs("", {}), fetched
    inputs, context.delivered = read_inputs(start)
    return inputs, None


def _context_of(start: StartActivation) -> Context:
    ref = start.activation
    context = Context(
        call_id=ref.call_id,
        activation_id=ref.activation_id,
        node=ref.node,
        attempt=ref.attempt,
        tenant=start.tenant or "default",
        session=start.session,
        priority=start.priority,
        traceparent=start.traceparent,
    )
    if start.HasField("sampling"):
        context.sampling = sampling_from_proto(start.sampling)
    if start.HasField("deadline"):
        context.deadline_unix_s = start.deadline.seconds + start.deadline.nanos / 1e9
    return context
