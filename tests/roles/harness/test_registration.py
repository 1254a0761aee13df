"""A replica's entry in the registry, against a registry on a real socket."""

from __future__ import annotations

import threading
from pathlib import Path

from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_registry_service_pb2 as messages
from omniflow_roles.noop import Echo, Sleep
from tests.roles.driver import dial, kinds
from tests.roles.registry import FakeRegistry, registering, stale, target_of
from tests.roles.running import eventually, running

STARTING, READY, DRAINING = (
    replica_pb2.REPLICA_STATE_STARTING,
    replica_pb2.REPLICA_STATE_READY,
    replica_pb2.REPLICA_STATE_DRAINING,
)


class SlowToLoad(Echo):
    """Blocks in setup until it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def setup(self) -> None:
        self.gate.wait(10)


async def test_replica_registers_while_it_loads_and_says_when_it_is_ready(tmp_path: Path) -> None:
    slow = SlowToLoad()
    # The lease is so long that only the change itself can bring the news in time.
    async with registering(tmp_path, FakeRegistry(lease_ttl_s=600)) as registry:
        async with running(tmp_path, slow, registry=target_of(tmp_path), wait_ready=False) as server:
            await eventually(lambda: registry.reports)
            replica = registry.registered[0].replica
            assert replica.state == STARTING
            assert replica.endpoint == server.identity.endpoint
            assert list(replica.protocol_revisions) == [1]
            slow.gate.set()
            await eventually(lambda: registry.states() == [STARTING, READY])
            server.drain()
            await eventually(lambda: registry.deregistered)
        assert registry.deregistered == ["lease-1"]
        assert len(registry.registered) == 1


async def test_activation_before_the_setup_is_refused_for_another_replica(tmp_path: Path) -> None:
    slow = SlowToLoad()
    async with (
        running(tmp_path, slow, wait_ready=False) as server,
        dial(server.identity.endpoint, server.identity.incarnation_id) as driver,
    ):
        await driver.start(1, "noop.echo", {"text": "hi"})
        error, is_retryable = await driver.error(1)
        assert error.code.name == "UNAVAILABLE"
        assert is_retryable
        slow.gate.set()
        await server.wait_ready()
        await driver.start(2, "noop.echo", {"text": "hi"})
        assert kinds(await driver.finish(2))[-1] == "completed"


async def test_keep_alive_reports_the_load_all_the_time(tmp_path: Path) -> None:
    async with registering(tmp_path, FakeRegistry(lease_ttl_s=0.15)) as registry:
        async with (
            running(tmp_path, Sleep(), registry=target_of(tmp_path)) as server,
            dial(server.identity.endpoint, server.identity.incarnation_id) as driver,
        ):
            await driver.parameters(1, "noop.sleep", {"seconds": 60})
            await eventually(lambda: any(report.load.running == 1 for report in registry.reports))
            seen = len(registry.reports)
            await eventually(lambda: len(registry.reports) > seen + 3)
        assert len(registry.registered) == 1


async def test_drain_directive_lets_work_end_then_leaves(tmp_path: Path) -> None:
    async with (
        registering(tmp_path, FakeRegistry(lease_ttl_s=0.15)) as registry,
        running(tmp_path, Sleep(), registry=target_of(tmp_path)) as server,
        dial(server.identity.endpoint, server.identity.incarnation_id) as driver,
    ):
        await driver.parameters(1, "noop.sleep", {"seconds": 1.0})
        await driver.expect(1, "accepted")
        drain = messages.DrainDirective()
        drain.grace.FromSeconds(30)
        registry.direct(drain=drain)
        await eventually(lambda: registry.states()[-1:] == [DRAINING])
        assert not registry.deregistered
        await driver.parameters(2, "noop.sleep", {"seconds": 0})
        error, is_retryable = await driver.error(2)
        assert error.reason.value == "DRAINING"
        assert is_retryable
        assert kinds(await driver.finish(1)) == ["yield", "completed"]
        await eventually(lambda: registry.deregistered == ["lease-1"])
        assert (await driver.code()).name == "OK"


async def test_drain_whose_grace_is_over_fails_what_still_runs_retryably(tmp_path: Path) -> None:
    async with (
        registering(tmp_path, FakeRegistry(lease_ttl_s=0.15)) as registry,
        running(tmp_path, Sleep(), registry=target_of(tmp_path)) as server,
        dial(server.identity.endpoint, server.identity.incarnation_id) as driver,
    ):
        await driver.parameters(1, "noop.sleep", {"seconds": 60})
        await driver.expect(1, "accepted")
        drain = messages.DrainDirective()
        drain.grace.FromMilliseconds(50)
        registry.direct(drain=drain)
        error, is_retryable = await driver.error(1)
        assert error.reason.value == "DRAINING"
        assert is_retryable


async def test_reregister_directive_and_lost_stream_register_again_while_work_goes_on(tmp_path: Path) -> None:
    async with (
        registering(tmp_path, FakeRegistry(lease_ttl_s=0.15)) as registry,
        running(tmp_path, Sleep(), registry=target_of(tmp_path)) as server,
        dial(server.identity.endpoint, server.identity.incarnation_id) as driver,
    ):
        await driver.parameters(1, "noop.sleep", {"seconds": 0.5})
        registry.direct(reregister=messages.ReregisterDirective())
        await eventually(lambda: len(registry.registered) == 2)
        assert registry.registered[1].replica.state == READY
        assert registry.registered[1].replica.incarnation_id == registry.registered[0].replica.incarnation_id
        assert kinds(await driver.finish(1))[-1] == "completed"


async def test_registry_that_is_not_there_yet_or_comes_back_is_found(tmp_path: Path) -> None:
    async with (
        running(tmp_path, Echo(), registry=target_of(tmp_path)) as server,
        dial(server.identity.endpoint, server.identity.incarnation_id) as driver,
    ):
        for round_number in (1, 2):
            await driver.start(round_number, "noop.echo", {"text": "no registry needed"})
            await driver.finish(round_number)
            async with registering(tmp_path, FakeRegistry()) as registry:
                await eventually(lambda registry=registry: registry.reports)  # type: ignore[misc]


async def test_registry_that_stops_answering_is_left(tmp_path: Path) -> None:
    async with (
        registering(tmp_path, FakeRegistry(lease_ttl_s=0.1)) as registry,
        running(tmp_path, Echo(), registry=target_of(tmp_path)),
    ):
        await eventually(lambda: registry.reports)
        registry.is_silent = True
        await eventually(lambda: len(registry.registered) >= 2)


async def test_replica_that_a_newer_process_replaced_leaves(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.refusal = stale()
    async with (
        registering(tmp_path, registry),
        running(tmp_path, Echo(), registry=target_of(tmp_path), wait_ready=False) as server,
    ):
        await eventually(lambda: server.host.state.name == "DRAINING")
    assert len(registry.registered) == 1


async def test_lost_control_plane_is_followed_by_the_next_that_was_given(tmp_path: Path) -> None:
    first, second = FakeRegistry(), FakeRegistry()
    targets = f"{target_of(tmp_path, 'a')},{target_of(tmp_path, 'b')}"
    async with registering(tmp_path, second, "b"):
        async with registering(tmp_path, first, "a"), running(tmp_path, Echo(), registry=targets):
            await eventually(lambda: first.reports)
            assert not second.registered
        async with running(tmp_path, Echo(), registry=targets):
            await eventually(lambda: second.reports)
            assert len(second.registered) == 1


async def test_replica_goes_on_with_a_control_plane_that_it_was_told_of(tmp_path: Path) -> None:
    first, second = FakeRegistry(), FakeRegistry()
    first.registries = (target_of(tmp_path, "a"), target_of(tmp_path, "b"))
    async with registering(tmp_path, second, "b"):
        leaving = registering(tmp_path, first, "a")
        await leaving.__aenter__()
        async with running(tmp_path, Echo(), registry=target_of(tmp_path, "a")):
            await eventually(lambda: first.reports)
            await leaving.__aexit__(None, None, None)
            await eventually(lambda: second.reports)
            assert second.registered[0].replica.state == READY


async def test_control_plane_that_stands_still_is_left_after_a_lease(tmp_path: Path) -> None:
    first, second = FakeRegistry(lease_ttl_s=0.3), FakeRegistry()
    targets = f"{target_of(tmp_path, 'a')},{target_of(tmp_path, 'b')}"
    async with (
        registering(tmp_path, first, "a"),
        registering(tmp_path, second, "b"),
        running(tmp_path, Echo(), registry=targets),
    ):
        await eventually(lambda: first.reports)
        first.is_silent = True
        await eventually(lambda: second.reports)
