"""Which transport a link takes, against role servers by script."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from omniflow.links.dialing import session as session_module
from omniflow.links.port import LaneKind
from omniflow_server.compose import ControlPlane
from tests.roles.running import eventually
from tests.server.control.planes import ended, plane, register, start
from tests.server.control.scripted_role import ScriptedRole, upper
from tests.server.control.test_dispatch import NAME, Remote, one_node, texts
from tests.support.pipes import Pipe, listen_on_lane

UNIX, ZMQ = LaneKind.UNIX_FRAMES, LaneKind.ZMQ_IPC


@contextlib.asynccontextmanager
async def planned(*lanes: LaneKind) -> AsyncIterator[ControlPlane]:
    async with plane(Remote, graphs=(one_node(),), lanes=lanes) as made:
        yield made


async def taken(made: ControlPlane, role: ScriptedRole) -> list[str]:
    """Registers the role, runs a call on it, and tells the transports of its hellos."""
    role.on_work = upper
    register(made, role.replica)
    assert texts(await ended(start(made, "one", x="hi"))) == ["HI"]
    return [stream.pipe.kind for stream in role.streams]


@pytest.mark.parametrize(
    ("allowed", "offered", "expected"),
    [
        ((UNIX, ZMQ), ["zmq-ipc", "unix-frames"], "unix-frames"),
        ((ZMQ, UNIX), ["unix-frames", "zmq-ipc"], "zmq-ipc"),
        ((UNIX, ZMQ), ["zmq-ipc"], "zmq-ipc"),
        ((UNIX,), ["zmq-ipc"], "grpc"),
        ((), ["unix-frames", "zmq-ipc"], "grpc"),
        ((UNIX, ZMQ), [], "grpc"),
        ((UNIX, ZMQ), ["carrier-pigeon"], "grpc"),
    ],
)
async def test_lane_is_chosen_by_the_order_of_this_process(
    allowed: tuple[LaneKind, ...], offered: list[str], expected: str
) -> None:
    role = ScriptedRole(NAME)
    for kind in offered:
        role.offer(kind)
    async with planned(*allowed) as made, role:
        assert await taken(made, role) == [expected]


@pytest.mark.parametrize("kind", ["unix-frames", "zmq-ipc"])
async def test_lane_whose_path_is_gone_gives_way_to_grpc(kind: str) -> None:
    role = ScriptedRole(NAME)
    address = role.offer(kind)
    async with planned(UNIX, ZMQ) as made, role:
        os.unlink(address)
        assert await taken(made, role) == ["grpc"]


async def test_lane_that_nobody_listens_on_gives_way_to_grpc(tmp_path: Path) -> None:
    role = ScriptedRole(NAME)
    async with planned(UNIX) as made, role:
        role.replica.lanes.add(kind="unix-frames", address=f"{tmp_path}/no.sock")
        (tmp_path / "no.sock").touch()
        assert await taken(made, role) == ["grpc"]


@pytest.mark.parametrize("kind", ["unix-frames", "zmq-ipc"])
async def test_another_process_on_the_path_is_passed_over(kind: str) -> None:
    """As after a restart that registers late, or on a host that is not the replica's."""
    role, stranger = ScriptedRole(NAME), ScriptedRole(NAME, life="2")
    address = stranger.offer(kind)
    async with planned(UNIX, ZMQ) as made, role, stranger:
        role.replica.lanes.add(kind=kind, address=address)
        assert await taken(made, role) == ["grpc"]
        assert not stranger.streams


@pytest.mark.parametrize("answer", [b"", b"\xff\xff\xff", None], ids=["end", "garbage", "silence"])
@pytest.mark.parametrize("kind", ["unix-frames", "zmq-ipc"])
async def test_lane_without_a_proper_answer_gives_way_to_grpc(
    kind: str, answer: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_module, "LANE_ANSWER_S", 0.05)
    caplog.set_level(logging.CRITICAL)

    async def odd(pipe: Pipe) -> None:
        await pipe.read()
        if answer is not None:
            await pipe.write(answer)
        while await pipe.read() is not None:
            pass

    async with planned(UNIX, ZMQ) as made, ScriptedRole(NAME) as role, listen_on_lane(kind, f"{tmp_path}/l", odd):
        role.replica.lanes.add(kind=kind, address=f"{tmp_path}/l")
        assert await taken(made, role) == ["grpc"]


async def test_lane_that_is_too_long_for_a_message_is_broken_off_at_its_length() -> None:
    async def oversize(pipe: Pipe) -> None:
        await pipe.read()
        await pipe.write_raw(b"\xff\xff\xff\x7f")  # type: ignore[attr-defined]
        ends.append(await pipe.read())

    ends: list[bytes | None] = []
    role = ScriptedRole(NAME)
    path = str(Path(role.offer("unix-frames")).with_name("odd.sock"))
    async with planned(UNIX) as made, role, listen_on_lane("unix-frames", path, oversize):
        role.replica.lanes[0].address = path
        assert await taken(made, role) == ["grpc"]
        await eventually(lambda: ends == [None])


async def test_zmq_lane_is_passed_over_where_pyzmq_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "omniflow.links.dialing.zmq_lane", None)
    role = ScriptedRole(NAME)
    role.offer("zmq-ipc")
    async with planned(ZMQ) as made, role:
        assert await taken(made, role) == ["grpc"]


async def test_link_goes_back_to_its_lane_when_the_replica_is_back() -> None:
    role = ScriptedRole(NAME)
    role.offer("unix-frames")
    async with planned(UNIX) as made, role:
        assert await taken(made, role) == ["unix-frames"]
        await role.stop()
        await eventually(lambda: not made.dispatcher.connected_roles(["worker"]))
        await role.listen()
        assert texts(await ended(start(made, "one", x="back"))) == ["BACK"]
        assert role.streams[-1].pipe.kind == "unix-frames"
