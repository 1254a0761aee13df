"""What the store refuses, in words: the same for every kind of store."""

from __future__ import annotations

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.port import GraphRow, ReplicaName, ReplicaRow

READY = 2
"""State of a replica that takes work: one that is ready again does not drain any more."""
REMEMBERED_INCARNATIONS = 16
"""Earlier incarnations of a live replica that are refused when they register again."""


def stale_owner(epoch: int) -> OmniFlowError:
    """A write of a life that has ended."""
    return OmniFlowError(
        Reason.STALE_OWNER,
        f"the life with epoch {epoch} of this control plane has ended, and others may own its sessions now: give its calls "
        "up and open a new life",
        metadata={"epoch": str(epoch)},
    )


def stale_incarnation(row: ReplicaRow, current: str) -> OmniFlowError:
    """A registration of a replica's incarnation that another one has replaced."""
    return OmniFlowError(
        Reason.STALE_EPOCH,
        f"incarnation {row.incarnation_id} of replica {row.role}/{row.replica_id} was replaced by {current}: end this "
        "process, or give it a replica identifier of its own",
        metadata={"incarnation_id": current},
    )


def unknown_replica(name: ReplicaName) -> OmniFlowError:
    """A drain of a replica that is not registered."""
    return OmniFlowError(
        Reason.UNKNOWN_RESOURCE,
        f"no replica {name[1]} of role {name[0]} is registered: list the replicas that are",
        metadata={"role": name[0], "replica_id": name[1]},
    )


def graph_conflict(row: GraphRow, current: int) -> OmniFlowError:
    """A version of a graph that does not follow the one that is there."""
    return OmniFlowError(
        Reason.CONFLICT,
        f"graph {row.name} is at version {current}, and version {row.version} does not follow it: read it again, and apply "
        "the change to what is there now",
        metadata={"version": str(current)},
    )
