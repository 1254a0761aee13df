"""The lanes of a role server: their sockets beside its gRPC socket, bound before it says who it is.

unix:/run/omniflow/llm-0.sock   ──▶  /run/omniflow/llm-0.frames.sock   /run/omniflow/llm-0.zmq.sock
127.0.0.1:7800                  ──▶  the same names by role and replica, in the runtime directory
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from omniflow.links.port import LaneKind
from omniflow.process import runtime_dir
from omniflow_roles.harness.lanes.port import Lane
from omniflow_roles.harness.lanes.unix_frames import UnixFramesLane
from omniflow_roles.harness.settings import RoleSettings

logger = logging.getLogger(__name__)

_SUFFIXES: Mapping[LaneKind, str] = {LaneKind.UNIX_FRAMES: ".frames.sock", LaneKind.ZMQ_IPC: ".zmq.sock"}


@contextlib.contextmanager
def bound_lanes(settings: RoleSettings) -> Iterator[Sequence[Lane]]:
    """The lanes that the settings name, in their order; one that cannot be had is logged and left out."""
    with contextlib.ExitStack() as stack:
        lanes = [lane for kind in settings.lanes if (lane := _bound(kind, settings)) is not None]
        for lane in lanes:
            stack.callback(lane.close)
        yield lanes


def _bound(kind: LaneKind, settings: RoleSettings) -> Lane | None:
    path = _stem(settings).with_suffix(_SUFFIXES[kind])
    try:
        if kind is LaneKind.UNIX_FRAMES:
            return UnixFramesLane(path)
        from omniflow_roles.harness.lanes.zmq_ipc import ZmqIpcLane  # pyzmq is optional

        return ZmqIpcLane(path)
    except (OSError, ImportError) as error:
        logger.warning("no lane %s at %s: %s", kind.value, path, error)
        return None


def _stem(settings: RoleSettings) -> Path:
    if settings.listen.startswith("unix:"):
        return Path(settings.listen.removeprefix("unix:"))
    return runtime_dir() / f"{settings.role}-{settings.replica_id}.sock"
