"""One StartActivation that this replica has taken in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from omniflow.activation import Activation
from omniflow.codec.common import value_from_proto
from omniflow.codec.graph import sampling_from_proto
from omniflow.interface import Context, Inputs, Interface
from omniflow.large_values import ValueFetcher, decode, remote_of
from omniflow.role.v1 import role_execution_service_pb2
from omniflow.threads import ThreadPool
from omniflow.values import Value
from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_roles.harness.sink import ResultSink

StartActivation = role_execution_service_pb2.StartActivation
_FieldValues = role_execution_service_pb2.FieldValues
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
        facet = _only_facet(start)
        inputs, self.fetch_inputs = _inputs_of(facet, fetcher)
        self.activation = Activation(
            interface,
            inputs,
            _context_of(start),
            sink,
            yield_window=start.yield_window,
            byte_credit=start.byte_credit,
            threads=threads,
        )


def _only_facet(start: StartActivation) -> role_execution_service_pb2.Facet:
    if start.HasField("segment"):
        raise OmniFlowError(Reason.UNIMPLEMENTED, "this replica does not run segments")
    if start.delivered_yields:
        raise OmniFlowError(Reason.UNIMPLEMENTED, "this replica does not continue another attempt's yields")
    if len(start.facets) > 1:
        raise OmniFlowError(Reason.UNIMPLEMENTED, "this replica does not run count joins over several input groups")
    if not start.facets:
        raise invalid_field("start.facets", "an activation needs the inputs of a group")
    return start.facets[0]


def _inputs_of(
    facet: role_execution_service_pb2.Facet, fetcher: ValueFetcher
) -> tuple[Inputs, Callable[[], Awaitable[Inputs]] | None]:
    """The inputs, or how to fetch them when a payload is kept by another process."""
    fields = facet.fields
    if any(remote_of(item.value) is not None for values in fields.values() for item in values.values):
        return Inputs(facet.input_group, {}), lambda: _fetched(facet, fetcher)
    decoded = {
        name: tuple(value_from_proto(item.value, path=f"start.fields[{name}]") for item in values.values)
        for name, values in fields.items()
    }
    return Inputs(facet.input_group, decoded), None


async def _fetched(facet: role_execution_service_pb2.Facet, fetcher: ValueFetcher) -> Inputs:
    """All inputs, side by side; the fetcher bounds how many are on their way. The first failure is raised as it is."""
    fields: Mapping[str, _FieldValues] = facet.fields
    try:
        async with asyncio.TaskGroup() as tasks:
            pending = {
                name: [tasks.create_task(decode(i.value, fetcher, path=f"start.fields[{name}]")) for i in values.values]
                for name, values in fields.items()
            }
    except* OmniFlowError as errors:
        raise errors.exceptions[0] from None
    decoded: dict[str, tuple[Value, ...]] = {name: tuple(t.result() for t in ts) for name, ts in pending.items()}
    return Inputs(facet.input_group, decoded)


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
