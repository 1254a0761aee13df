"""Ways from a control plane to its roles, and whether a system takes the one that it was told to take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from omniflow.links.port import LaneKind
from tests.support.system import System

GRPC = "gRPC"
LANES: Mapping[str, tuple[LaneKind, ...]] = {
    GRPC: (),
    LaneKind.UNIX_FRAMES.value: (LaneKind.UNIX_FRAMES,),
    LaneKind.ZMQ_IPC.value: (LaneKind.ZMQ_IPC,),
}
"""By name: the lanes that a control plane and its roles may use; without one they take gRPC."""
DEFAULT_LANE = LaneKind.UNIX_FRAMES.value
"""What a system takes when nobody says anything."""
NOT_USED = "the control plane does not reach its roles over it; their logs say why"

_SOCKETS = {LaneKind.UNIX_FRAMES.value: ".frames.sock", LaneKind.ZMQ_IPC.value: ".zmq.sock"}
_CONNECTED = "03"
_PATH_FIELD, _STATE_FIELD = 7, 5


def is_used(lane: str, system: System) -> bool:
    """Whether there are connections to the lane's sockets, as many as there are roles; to no lane's for gRPC.

    A lane that does not work is passed over in silence, as it should be, and its figures would be those of gRPC.
    """
    found = dict.fromkeys(_SOCKETS, 0)
    for line in Path("/proc/net/unix").read_text().splitlines():
        fields = line.split()
        if len(fields) > _PATH_FIELD and fields[_STATE_FIELD] == _CONNECTED:
            path = fields[_PATH_FIELD]
            for name, ending in _SOCKETS.items():
                found[name] += path.startswith(f"{system.folder}/") and path.endswith(ending)
    wanted = {name: len(system.roles) if name == lane else 0 for name in _SOCKETS}
    return found == wanted
