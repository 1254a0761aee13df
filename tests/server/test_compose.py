"""What a control-plane process does by its clock."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from omniflow.dsl import Graph
from omniflow.role.v1 import replica_pb2
from omniflow.values import ValueType
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.noop import Echo
from omniflow_server import compose
from omniflow_server.compose import control_plane
from omniflow_server.control.registry import Registry
from omniflow_server.control.settings import ControlSettings
from tests.support.clock import ManualClock


class StoppedError(Exception):
    """The end of a loop without an end."""


@pytest.mark.parametrize(("pause_s", "is_kept"), [(0.0, False), (4.0, True), (3_600.0, True)])
async def test_pause_of_the_process_is_not_held_against_leases(
    monkeypatch: pytest.MonkeyPatch, pause_s: float, is_kept: bool
) -> None:
    """A lease of 3 s, last kept alive 2.9 s before: it runs out in this round unless the process stood still."""
    clock = ManualClock()
    registry = Registry(lease_ttl_s=3.0)
    registry.register(replica_pb2.Replica(role="llm", replica_id="a", incarnation_id="1"), clock() - 2.9)
    rounds = iter((compose.EXPIRE_INTERVAL_S + pause_s,))

    async def sleep(seconds: float) -> None:
        asleep_s = next(rounds, None)
        if asleep_s is None:
            raise StoppedError
        clock.advance(asleep_s)

    monkeypatch.setattr(compose, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(compose, "asyncio", SimpleNamespace(sleep=sleep))
    with pytest.raises(StoppedError):
        await compose._expire_leases(registry)
    assert bool(registry.replicas()) == is_kept


@pytest.mark.parametrize(("enabled", "reasons"), [((), ["UNKNOWN_INTERFACE"]), (("*",), []), (("noop.echo",), [])])
async def test_graphs_name_only_interfaces_that_the_operator_enabled(
    tmp_path: Path, enabled: tuple[str, ...], reasons: list[str]
) -> None:
    graph = Graph("echo")
    echo = graph.node("echo", Echo, role="noop")
    graph.input("text", ValueType.TEXT) >> echo.inputs.field("text")
    echo.output("text") >> graph.output("text", ValueType.TEXT)
    settings = ControlSettings(
        listen="127.0.0.1:0", internal_listen=f"unix:{tmp_path}/control.sock", interfaces=enabled
    )
    async with control_plane(settings) as plane:
        assert [finding.reason for finding in plane.catalog.check(graph.spec())] == reasons


async def test_socket_that_another_process_listens_on_is_not_taken_from_it(tmp_path: Path) -> None:
    settings = ControlSettings(listen="127.0.0.1:0", internal_listen=f"unix:{tmp_path}/control.sock")
    async with compose.control_plane(settings) as first:
        with pytest.raises(OmniFlowError, match="another process does") as refused:
            async with compose.control_plane(settings):
                raise AssertionError("two listen on one socket")
        assert refused.value.reason is Reason.INVALID_CONFIG
        async with grpc.aio.insecure_channel(first.internal_target) as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
