"""Real role processes, as a supervisor or a person starts them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from omniflow.internal_rpc import internal_channel
from omniflow.large_values import ValueFetcher, decode
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.role.v1 import role_execution_service_pb2_grpc
from omniflow_core.errors import Reason
from tests.roles.driver import Driver, dial, kinds, values
from tests.roles.registry import FakeRegistry, registering, target_of
from tests.roles.running import eventually

pytestmark = pytest.mark.integration

NAMES = ("block", "burst", "count", "echo", "large", "sleep", "stubborn")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Registers the noop interfaces by a distribution of the test's own, and puts sockets into its folder."""
    info = tmp_path / "site" / "noop-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: noop\nVersion: 0\n")
    lines = [f"noop.{name} = omniflow_roles.noop:{name.title()}" for name in NAMES]
    (info / "entry_points.txt").write_text("\n".join(["[omniflow.interfaces]", *lines, ""]))
    path = os.pathsep.join(filter(None, (str(tmp_path / "site"), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path, "OMNIFLOW_RUNTIME_DIR": str(tmp_path / "run")}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "omniflow_roles", *arguments]


def serving(*interfaces: str) -> list[str]:
    names = ",".join(interfaces)
    return command("serve", "--role", "noop", "--replica-id", "noop-0", "--interfaces", names, "--drain-grace", "5")


@contextlib.contextmanager
def started(arguments: list[str], environment: dict[str, str], **options: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(arguments, env=environment | options, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def socket_of(environment: dict[str, str]) -> Path:
    return Path(environment["OMNIFLOW_RUNTIME_DIR"]) / "noop-noop-0.sock"


@contextlib.asynccontextmanager
async def driver_of(environment: dict[str, str]) -> AsyncIterator[Driver]:
    """A stream to the process, when it is ready."""
    target = f"unix:{socket_of(environment)}"
    await eventually(socket_of(environment).exists)
    async with internal_channel(target) as channel:
        stub = role_execution_service_pb2_grpc.RoleExecutionServiceStub(channel)
        async with asyncio.timeout(10):
            replica = (await stub.DescribeRole(messages.DescribeRoleRequest(), wait_for_ready=True)).replica
            health = health_pb2_grpc.HealthStub(channel)
            async for answer in health.Watch(health_pb2.HealthCheckRequest(service="")):
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    break
    async with dial(target, replica.incarnation_id) as driver:
        yield driver


async def exit_status(process: subprocess.Popen[str], limit_s: float = 5.0) -> int:
    return await asyncio.to_thread(process.wait, limit_s)


async def test_role_process_serves_and_drains_on_sigterm(environment: dict[str, str]) -> None:
    with started(serving("noop.echo", "noop.sleep"), environment) as process:
        async with driver_of(environment) as driver:
            await driver.start(1, "noop.echo", {"text": "hi"})
            assert values(await driver.finish(1), "text") == ["hi"]
            await driver.parameters(2, "noop.sleep", {"seconds": 0.3})
            await driver.expect(2, "accepted")
            process.send_signal(signal.SIGTERM)
            assert kinds(await driver.finish(2)) == ["yield", "completed"]
            assert await exit_status(process) == 0


async def test_role_process_registers_itself_and_leaves(environment: dict[str, str], tmp_path: Path) -> None:
    async with registering(tmp_path, FakeRegistry()) as registry:
        arguments = [*serving("noop.echo"), "--registry", target_of(tmp_path)]
        with started(arguments, environment) as process:
            await eventually(lambda: 2 in registry.states())
            replica = registry.registered[0].replica
            assert (replica.role, replica.replica_id, replica.process_id) == ("noop", "noop-0", process.pid)
            assert replica.endpoint == f"unix:{socket_of(environment)}"
            process.send_signal(signal.SIGTERM)
            assert await exit_status(process) == 0
            assert registry.deregistered == ["lease-1"]


async def test_second_signal_ends_the_process_at_once(environment: dict[str, str]) -> None:
    with started(serving("noop.sleep"), environment) as process:
        async with driver_of(environment) as driver:
            await driver.parameters(1, "noop.sleep", {"seconds": 60})
            await driver.expect(1, "accepted")
            process.send_signal(signal.SIGTERM)
            for handle in itertools.count(2):  # the signal takes its time
                await driver.parameters(handle, "noop.sleep", {"seconds": 0})
                if kinds(await driver.finish(handle)) == ["failed"]:
                    break
            process.send_signal(signal.SIGTERM)
            assert await exit_status(process, 1.0) == 130


async def test_handler_that_blocks_does_not_keep_a_drained_process(environment: dict[str, str]) -> None:
    arguments = [*serving("noop.block"), "--drain-grace", "0.1"]
    with started(arguments, environment) as process:
        async with driver_of(environment) as driver:
            await driver.parameters(1, "noop.block", {"seconds": 60.0})
            await driver.expect(1, "accepted")
            process.send_signal(signal.SIGTERM)
            error, is_retryable = await driver.error(1)
            assert (error.reason, is_retryable) == (Reason.DRAINING, True)
            assert await exit_status(process) == 0


async def test_sockets_are_private(environment: dict[str, str]) -> None:
    with started(serving("noop.echo"), environment):
        await eventually(socket_of(environment).exists)
        assert stat.S_IMODE(socket_of(environment).stat().st_mode) == 0o600
        assert stat.S_IMODE(socket_of(environment).parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("arguments", "lanes"),
    [((), {"frames"}), (("--lanes", ""), set()), (("--lanes", "zmq-ipc,unix-frames"), {"zmq", "frames"})],
)
async def test_lanes_are_those_of_the_command_line_and_private(
    environment: dict[str, str], arguments: tuple[str, ...], lanes: set[str]
) -> None:
    with started([*serving("noop.echo"), *arguments], environment):
        await eventually(socket_of(environment).exists)
        async with internal_channel(f"unix:{socket_of(environment)}") as channel, asyncio.timeout(10):
            stub = role_execution_service_pb2_grpc.RoleExecutionServiceStub(channel)
            await stub.DescribeRole(messages.DescribeRoleRequest(), wait_for_ready=True)
        paths = list(socket_of(environment).parent.glob("*.*.sock"))
        assert {path.name.split(".")[1] for path in paths} == lanes
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in paths)


async def test_restarted_process_is_another_life_on_the_same_socket(environment: dict[str, str]) -> None:
    lives = []
    for _ in range(2):
        with started(serving("noop.echo"), environment):
            target = f"unix:{socket_of(environment)}"
            await eventually(socket_of(environment).exists)
            async with internal_channel(target) as channel, asyncio.timeout(10):
                stub = role_execution_service_pb2_grpc.RoleExecutionServiceStub(channel)
                answer = await stub.DescribeRole(messages.DescribeRoleRequest(), wait_for_ready=True)
                lives.append(answer.replica.incarnation_id)
    assert lives[0] != lives[1]


async def test_reflection_lists_the_services(environment: dict[str, str]) -> None:
    with started(serving("noop.echo"), environment):
        await eventually(socket_of(environment).exists)
        async with internal_channel(f"unix:{socket_of(environment)}") as channel:
            call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(wait_for_ready=True)
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            answer = await call.read()
            call.cancel()
    names = {service.name for service in answer.list_services_response.service}
    assert {
        "omniflow.role.v1.RoleExecutionService",
        "omniflow.role.v1.ValueService",
        "grpc.health.v1.Health",
    } <= names


async def test_health_stays_quick_while_a_handler_blocks_and_large_values_flow(environment: dict[str, str]) -> None:
    with started(serving("noop.block", "noop.large"), environment):
        async with driver_of(environment) as driver, internal_channel(f"unix:{socket_of(environment)}") as channel:
            await driver.parameters(1, "noop.block", {"seconds": 3.0})
            health, times = health_pb2_grpc.HealthStub(channel), []

            async def read_large() -> None:
                for handle in (2, 3, 4):
                    await driver.parameters(handle, "noop.large", {"size_bytes": 64 << 20})
                    message = getattr((await driver.finish(handle))[1], "yield").fields["tensor"]
                    async with ValueFetcher() as fetcher:
                        await decode(message, fetcher)

            reading = asyncio.create_task(read_large())
            while not reading.done():
                began = time.monotonic()
                await health.Check(health_pb2.HealthCheckRequest())
                times.append(time.monotonic() - began)
                await asyncio.sleep(0.005)
            await reading
    times.sort()
    assert len(times) > 10
    assert times[int(len(times) * 0.99)] < 0.2, times[-5:]


@contextlib.contextmanager
def supervising(code: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) as process:
        yield process


async def test_kill_of_the_supervisor_takes_the_role_with_it(environment: dict[str, str]) -> None:
    """The supervisor here is a small process that starts the role and waits."""
    code = f"""
import os, subprocess
role = subprocess.Popen({serving("noop.echo")!r}, env=os.environ | {{"OMNIFLOW_PARENT_PID": str(os.getpid())}})
print(role.pid, flush=True)
role.wait()
"""
    with supervising(code, environment) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        async with driver_of(environment) as driver:
            await driver.start(1, "noop.echo", {"text": "hi"})
            await driver.finish(1)
            supervisor.kill()
            await eventually(lambda: not is_running(pid), timeout_s=2)


def is_running(pid: int) -> bool:
    """False also for a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), env=environment, capture_output=True, text=True, timeout=30, check=False)


def test_help_teaches(environment: dict[str, str]) -> None:
    text = run(environment, "serve", "--help").stdout
    for word in ("SIGTERM", "unix:/path", "--registry", "OMNIFLOW_RUNTIME_DIR", "python -m omniflow_roles serve"):
        assert word in text


def test_list_names_the_interfaces(environment: dict[str, str]) -> None:
    assert re.search(r"^noop\.echo +omniflow_roles\.noop\S*:Echo$", run(environment, "list").stdout, re.MULTILINE)


def test_mistakes_on_the_command_line_are_told_without_a_traceback(environment: dict[str, str]) -> None:
    wrong = run(environment, "serve", "--role", "r", "--interfaces", "noop.ecko")
    assert wrong.returncode == 2
    assert "did you mean 'noop.echo'" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    lane = run(environment, "serve", "--role", "r", "--interfaces", "noop.echo", "--lanes", "pigeons")
    assert lane.returncode == 2
    assert "there are unix-frames, zmq-ipc" in lane.stderr
    taken = run(environment, "serve", "--role", "r", "--interfaces", "noop.echo", "--listen", "unix:/no/such/folder/x")
    assert taken.returncode == 2
    assert "cannot listen" in taken.stderr
    assert "Traceback" not in taken.stderr
