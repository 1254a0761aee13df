"""One control plane and the role processes that serve every noop graph, and what tests ask them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

import omniflow
from omniflow import Event, Json, OmniFlowError, Output
from omniflow.flow import RolePlan
from omniflow.graph.v1 import graph_service_pb2, graph_service_pb2_grpc, inspection_pb2
from omniflow_roles.noop.graphs import FLOWS
from tests.support.processes import Process, wait_until
from tests.support.system import System, running_system

LOST_ROLE = "stage2"
"""The role that has a second replica to go on with when tests kill one."""

_INTERFACES = tuple(sorted({name for flow in FLOWS for role in flow.roles for name in role.interfaces}))
_ROLES = tuple(
    RolePlan(name=name, interfaces=_INTERFACES, replicas=2 if name == LOST_ROLE else 1)
    for name in sorted({role.name for flow in FLOWS for role in flow.roles})
)


@contextlib.asynccontextmanager
async def noop_system(**settings: Any) -> AsyncIterator[System]:
    """Serves the graphs of `omniflow_roles.noop.graphs`, a process for each stage."""
    flows = tuple(flow.name for flow in FLOWS)
    async with running_system(settings={"flows": flows, **settings}, roles=_ROLES) as system:
        for flow in FLOWS:
            await system.wait_ready(graph=flow.graph.spec().name)
        yield system


def process_of(system: System, pid: int) -> Process:
    """The role process with that process id."""
    (found,) = (process for process in system.roles.values() if process.pid == pid)
    return found


def item(name: str = "x", **stages: Any) -> Json:
    """A call's item; stages are options by node."""
    return Json({"name": name, "stages": stages})


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """An item that a graph gave, without the options of stages."""

    name: str
    inputs: dict[str, list[str]] = dataclasses.field(default_factory=dict)


def made(name: str, **inputs: list[str]) -> Made:
    """What a graph should give; inputs are those of the last join."""
    return Made(name, inputs)


def items(events: list[Event], field: str = "item") -> list[Made]:
    """The items of an output, in order."""
    bodies = [event.value.value for event in events if isinstance(event, Output) and event.field == field]  # type: ignore[union-attr]
    return [Made(body["name"], body["inputs"]) for body in bodies]


async def events_of(stream: omniflow.EventStream) -> list[Event]:
    """All events of a call that ends well."""
    return [event async for event in stream]


async def failure_of(stream: omniflow.EventStream) -> tuple[list[Event], OmniFlowError]:
    """What came before a call failed, and how."""
    events: list[Event] = []
    with pytest.raises(OmniFlowError) as caught:
        async for event in stream:
            events.append(event)
    return events, caught.value


async def inspected(system: System, call_id: str) -> inspection_pb2.SchedulerSnapshot:
    """What the control plane holds for a call."""
    async with grpc.aio.insecure_channel(system.target) as channel:
        request = graph_service_pb2.InspectCallRequest(call_id=call_id)
        response = await graph_service_pb2_grpc.GraphServiceStub(channel).InspectCall(request)
        snapshot: inspection_pb2.SchedulerSnapshot = response.call.snapshot
        return snapshot


async def settled(client: omniflow.Client, call_id: str) -> omniflow.CallStatus:
    """The call's state, when nothing of it runs any more."""

    async def has_settled() -> omniflow.CallStatus | None:
        status = await client.get_call(call_id)
        return status if status.active_activations == 0 else None

    await wait_until(has_settled, what=f"the end of all work for call {call_id}")
    return await client.get_call(call_id)
