"""Same-host lanes of a role server: their sockets, and peers that speak no lane's language."""

from __future__ import annotations

import asyncio
import logging
import stat
import sys
from pathlib import Path

import pytest

from omniflow.internal_rpc import MAX_FRAME_BYTES
from omniflow.links.port import LaneKind
from omniflow.process import RUNTIME_DIR
from omniflow_roles.harness.lanes.unix_frames import UnixFramesLane
from omniflow_roles.harness.settings import RoleSettings
from omniflow_roles.noop import Echo, Sleep
from tests.roles import driver as driver_module
from tests.roles.driver import dial, kinds, open_pipe
from tests.roles.running import eventually, running
from tests.support.pipes import UnixPipe


def mode_of(path: str) -> int:
    """Permissions of a socket."""
    status = Path(path).stat()
    assert stat.S_ISSOCK(status.st_mode)
    return stat.S_IMODE(status.st_mode)


def names_in(folder: Path) -> set[str]:
    """Of the files."""
    return {path.name for path in folder.iterdir()}


BOTH = (LaneKind.ZMQ_IPC, LaneKind.UNIX_FRAMES)


async def test_lanes_are_offered_in_their_order_private_and_gone_afterwards(tmp_path: Path) -> None:
    async with running(tmp_path, Echo(), lanes=BOTH) as server:
        offers = [(lane.kind, lane.address) for lane in server.identity.message(server.host.state).lanes]
        assert offers == [
            ("zmq-ipc", f"{tmp_path}/role.zmq.sock"),
            ("unix-frames", f"{tmp_path}/role.frames.sock"),
        ]
        assert {mode_of(address) for _, address in offers} == {0o600}
    assert not names_in(tmp_path) & {"role.zmq.sock", "role.frames.sock"}


def test_socket_is_private_before_anybody_can_listen_on_it(tmp_path: Path) -> None:
    lane = UnixFramesLane(tmp_path / "l.sock")
    assert stat.S_IMODE(lane.path.stat().st_mode) == 0o600
    lane.close()
    assert not lane.path.exists()


def test_default_lane_is_unix_frames() -> None:
    assert RoleSettings(role="r", replica_id="r-0").lanes == (LaneKind.UNIX_FRAMES,)


async def test_role_without_lanes_offers_none(tmp_path: Path) -> None:
    async with running(tmp_path, Echo(), lanes=()) as server:
        assert not server.identity.lanes
        assert names_in(tmp_path) == {"role.sock"}


async def test_role_on_a_port_has_its_lanes_in_the_runtime_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUNTIME_DIR, str(tmp_path / "run"))
    async with running(tmp_path, Echo(), listen="127.0.0.1:0") as server:
        assert server.identity.lanes == (("unix-frames", f"{tmp_path}/run/test-test-0.frames.sock"),)


async def test_socket_of_an_earlier_life_is_replaced(tmp_path: Path) -> None:
    earlier = UnixFramesLane(tmp_path / "role.frames.sock")
    async with running(tmp_path, Echo()):
        earlier.close()
        assert "role.frames.sock" in names_in(tmp_path), "the earlier life removes its own socket only"


@pytest.mark.parametrize("kind", LaneKind)
async def test_lane_that_cannot_be_had_is_logged_and_left_out(
    tmp_path: Path, kind: LaneKind, caplog: pytest.LogCaptureFixture
) -> None:
    for suffix in ("frames", "zmq"):
        (tmp_path / f"role.{suffix}.sock").mkdir()
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, Echo(), lanes=(kind,)) as server:
            assert not server.identity.lanes
            async with dial(server.identity.endpoint, server.identity.incarnation_id) as driver:
                await driver.start(1, "noop.echo", {"text": "hi"})
                assert kinds(await driver.finish(1))[-1] == "completed"
    assert [record.message.startswith(f"no lane {kind.value}") for record in caplog.records] == [True]


async def test_zmq_lane_needs_pyzmq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "omniflow_roles.harness.lanes.zmq_ipc", None)
    async with running(tmp_path, Echo(), lanes=BOTH) as server:
        assert [kind for kind, _ in server.identity.lanes] == ["unix-frames"]
    assert "no lane zmq-ipc" in caplog.text


@pytest.mark.parametrize(
    "data",
    [(MAX_FRAME_BYTES + 1).to_bytes(4, "little"), b"GET / HTTP/1.1\r\n\r\n", b"\x03\x00\x00\x00\xff\xff\xff"],
    ids=["oversize", "another language", "garbage"],
)
async def test_bytes_that_are_no_messages_end_their_connection_alone(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "transport", "unix-frames")
    async with (
        running(tmp_path, Echo()) as server,
        dial(server.identity.endpoint, server.identity.incarnation_id) as driver,
    ):
        async with open_pipe(server.identity.endpoint) as pipe, asyncio.timeout(5):
            assert isinstance(pipe, UnixPipe)
            await pipe.write_raw(data)
            assert await pipe.read() is None
        await driver.start(1, "noop.echo", {"text": "still here"})
        assert kinds(await driver.finish(1))[-1] == "completed"


async def test_truncated_message_ends_the_lane_and_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "transport", "unix-frames")
    async with (
        running(tmp_path, Sleep()) as server,
        dial(server.identity.endpoint, server.identity.incarnation_id) as driver,
    ):
        await driver.parameters(1, "noop.sleep", {"seconds": 60})
        await driver.expect(1, "accepted")
        assert isinstance(driver.pipe, UnixPipe)
        await driver.pipe.write_raw(b"\x10\x00\x00\x00half")
        driver.drop()
        await eventually(lambda: not server.host.load().running)
        assert not server._links._links
