"""Who this process is, as registry and control planes see it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import cast

from omniflow.internal_rpc import PROTOCOL_REVISION
from omniflow.role.v1 import replica_pb2


class State(enum.Enum):
    """STARTING -> READY -> DRAINING; DRAINING also straight from STARTING. The numbers are those of the proto enum."""

    STARTING = 1
    READY = 2
    DRAINING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaIdentity:
    """What does not change in a process's life."""

    role: str
    replica_id: str
    incarnation_id: str
    endpoint: str
    lanes: tuple[tuple[str, str], ...] = ()
    """Kind and path of each lane that it listens on."""
    interfaces: tuple[str, ...]
    max_activations: int
    process_id: int
    node: str

    def message(self, state: State) -> replica_pb2.Replica:
        return replica_pb2.Replica(
            role=self.role,
            replica_id=self.replica_id,
            incarnation_id=self.incarnation_id,
            endpoint=self.endpoint,
            lanes=[replica_pb2.LaneOffer(kind=kind, address=path) for kind, path in self.lanes],
            interfaces=self.interfaces,
            state=cast("replica_pb2.ReplicaState", state.value),
            protocol_revisions=[PROTOCOL_REVISION],
            max_activations=self.max_activations,
            process_id=self.process_id,
            node=self.node,
            runs_segments=True,
            runs_pipelines=True,
        )
