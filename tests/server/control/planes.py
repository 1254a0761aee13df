"""A whole control plane in the test's loop, with interfaces of the test's own."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any
from unittest import mock

import grpc.aio

from omniflow.dsl import Graph
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.interface import Interface
from omniflow.role.v1 import replica_pb2
from omniflow.values import Value
from omniflow_server import compose
from omniflow_server.compose import ControlPlane
from omniflow_server.control import dispatch
from omniflow_server.control.call import Call
from omniflow_server.control.settings import ControlSettings
from omniflow_server.data.metadata.port import MetadataStore
from tests.roles.running import eventually
from tests.server.control.table import events_of
from tests.server.control.test_inputs import call_of

LEASE_TTL_S = 3600.0
"""Replicas of tests do not renew their leases."""


@contextlib.asynccontextmanager
async def plane(
    *interfaces: type[Interface],
    graphs: Iterable[Graph] = (),
    metadata: MetadataStore | None = None,
    **settings: Any,
) -> AsyncIterator[ControlPlane]:
    """A control plane on a free port that knows the interfaces and has the graphs installed. With `metadata` it is one of
    those that share the store."""
    by_name = {interface.name: interface for interface in interfaces}
    with (
        tempfile.TemporaryDirectory(prefix="of-") as folder,
        mock.patch.object(compose, "load_interface", lambda name, flows: by_name[name]),
    ):
        options: dict[str, Any] = {
            "listen": "127.0.0.1:0",
            "internal_listen": f"unix:{folder}/control.sock",
            "interfaces": tuple(by_name),
            "lease_ttl_s": LEASE_TTL_S,
        }
        with (
            mock.patch.object(compose, "STOP_GRACE_S", 0.1),
            mock.patch.object(dispatch, "LAZY_RELEASE_INTERVAL_S", 0.1),
        ):
            async with compose.control_plane(ControlSettings(**(options | settings)), metadata=metadata) as made:
                for graph in graphs:
                    await made.install(made.catalog.compile(graph.spec()))
                yield made
                made.calls.check_integrity()


@contextlib.asynccontextmanager
async def channel_to(target: str) -> AsyncIterator[grpc.aio.Channel]:
    """A channel with a client's default options."""
    async with grpc.aio.insecure_channel(target) as channel:
        yield channel


def register(made: ControlPlane, replica: replica_pb2.Replica) -> str:
    """Registers a replica past the service; returns its lease."""
    copy = replica_pb2.Replica()
    copy.CopyFrom(replica)
    return made.registry.register(copy, time.monotonic()).lease_id


def start(made: ControlPlane, graph: str, *, tenant: str = "default", **inputs: Value) -> Call:
    """Starts a call past the service; its log is the test's."""
    return made.calls.accept(f"graphs/{graph}", call_of("", **inputs), tenant=tenant)[0]


def events(call: Call) -> list[graph_event_pb2.GraphEvent]:
    """The call's events so far."""
    reader = call.read(0, lambda _: None)
    found = events_of(reader)
    reader.close()
    return found


async def ended(call: Call) -> Call:
    """The call, when its terminal event is in the log."""
    await eventually(lambda: call.has_ended)
    return call


async def settled(made: ControlPlane) -> None:
    """Waits until nothing is left of calls that have ended: tasks of activations, cancels and releases."""
    await eventually(lambda: made.calls.active_count == 0 and not made.inline._activations)


def spec_of(
    *, open_inputs: str = "", inputs: dict[str, Any] | None = None, **fields: Any
) -> graph_service_pb2.CallSpec:
    """A call's start."""
    spec = call_of(open_inputs, **(inputs or {}))
    spec.MergeFrom(graph_service_pb2.CallSpec(**fields))
    return spec
