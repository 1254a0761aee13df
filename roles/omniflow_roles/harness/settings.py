"""Settings of a role process."""

from __future__ import annotations

from dataclasses import dataclass

from omniflow.links.port import LaneKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSettings:
    """Every limit and address of a role process. Times in seconds, sizes in bytes."""

    role: str
    replica_id: str
    """Unique in the role, kept across restarts."""
    listen: str = ""
    """gRPC target to serve on; empty: a unix socket `<role>-<replica>.sock` in the runtime directory."""
    advertise: str = ""
    """gRPC target under which others reach this process; empty: what it listens on."""
    lanes: tuple[LaneKind, ...] = (LaneKind.UNIX_FRAMES,)
    """Lanes to listen on for control planes and replicas of this host, the one to offer first at the front; also those that
    are tried when this replica dials another. Their sockets are beside the gRPC socket."""
    registry: str = ""
    """gRPC targets of control planes to register with, comma-separated, tried in turn; empty: serve whoever dials, and
    register nowhere."""
    max_activations: int = 256
    """Activations running and waiting; one more is refused with TOO_MANY_CALLS, and another replica may try."""
    heartbeat_s: float = 0.5
    """Longest silence of an Execute stream; control planes give a replica up after three times as long."""
    resume_grace_s: float = 5.0
    """How long what runs for a control plane goes on after its transport broke: it may go on with another."""
    drain_grace_s: float = 30.0
    """How long running activations may go on after SIGTERM, or a drain that gives no time of its own."""
    drain_notice_s: float = 0.6
    """How long a draining replica stays at least: until all control planes know of it, their starts are refused, and so go
    elsewhere. One that was gone by then would lose them."""
    cleanup_grace_s: float = 1.0
    """How long a cancelled coroutine may keep its place for its cleanup; then the next activation takes it."""
    value_budget_bytes: int = 4 * 1024 * 1024 * 1024
    """Values over 64 KiB kept for running calls."""
    retain_s: float = 30.0
    """How long values are kept for a control plane whose streams have all ended: it may be back."""
    node: str = ""
    """Name of the machine, for people and placement; empty: its host name."""
