"""Settings of a control-plane process."""

from __future__ import annotations

from dataclasses import dataclass

from omniflow.links.port import LaneKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """Every limit and address of a control-plane process. Times in seconds, sizes in bytes."""

    listen: str = "127.0.0.1:7700"
    """gRPC target that clients reach; loopback unless the operator says otherwise."""
    internal_listen: str = ""
    """gRPC target for role servers; empty: a unix socket `control.sock` in the runtime directory."""
    lanes: tuple[LaneKind, ...] = (LaneKind.UNIX_FRAMES,)
    """Lanes to roles of this host, tried before gRPC in this order where a role offers them: unix-frames, zmq-ipc. The
    roles that `omniflow up` starts listen on the same; none: gRPC only."""
    control_id: str = "control-0"
    """Identifier of the process, kept across restarts; each process of a cluster has its own."""
    advertise: str = ""
    """gRPC target under which roles and other control planes reach `internal_listen`; empty: the same."""
    metadata_url: str = ""
    """Metadata store that the control planes of a cluster share: redis://host:port/0, rediss:// with TLS, or
    unix:///path/to/socket, with user:password@ where one is wanted. Empty: REDIS_URL, or REDIS_HOST with REDIS_PORT and
    REDIS_PASSWORD; without those this process keeps it in memory, and is alone. `omniflow up` starts a store by itself."""
    metadata_namespace: str = "default"
    """Begins the names of all keys in the store, so that clusters can share one. `omniflow up` uses the flow's --name unless
    it is set."""
    allow_volatile_store: bool = False
    """Use a store that does not write what it is told to disk; it forgets owners and graphs when it stops."""
    owner_lease_ttl_s: float = 1.5
    """How long the other control planes wait for one that is silent before they take its sessions over."""
    interfaces: tuple[str, ...] = ()
    """Interfaces that graphs may name besides those of the installed flows; "*" enables every registered one."""
    flows: tuple[str, ...] = ()
    """Flows whose graphs are installed at start: entry-point names or files `path/to/flow.py[:attribute]`."""
    max_calls: int = 1024
    """Calls that are admitted or queued at once; more is TOO_MANY_CALLS."""
    max_calls_per_tenant: int = 1024
    """The same for one tenant."""
    max_queue: float = 8.0
    """Activations that may wait for a role, as a multiple of those that its replicas run at once; a new call of a graph that
    needs the role is refused with TOO_MANY_CALLS beyond it. 1 keeps an admitted call within about twice the time of one
    that waits for nobody. 0: no limit."""
    event_log_size_bytes: int = 8 * 1024 * 1024
    """Events of one call kept for a slow or lost reader; producers wait beyond it."""
    call_record_size_bytes: int = 1024 * 1024
    """What `omniflow call show` and `save` know of one call; later events of a call that passes it are only counted."""
    ended_call_ttl_s: float = 300.0
    """How long an ended call can be read and resumed, unless 1,024 later calls or 12 MiB of their events and records push it
    out."""
    detach_grace_s: float = 10.0
    """How long a call runs on without a client unless it asks otherwise."""
    drain_timeout_s: float = 30.0
    """How long a stopping process waits for its calls, and roles that `omniflow up` started for their activations."""
    replica_wait_s: float = 30.0
    """How long an activation waits for a ready replica of its role; longer than a restart with its model load."""
    lease_ttl_s: float = 3.0
    """Lease of a role replica."""
    replicas: tuple[str, ...] = ()
    """Replicas that do not register, as ROLE=TARGET with the gRPC target of one process: llm=10.0.0.7:7800, or
    llm=unix:/run/llm.sock."""
    dns_replicas: tuple[str, ...] = ()
    """Replicas that do not register, as ROLE=HOST:PORT with a name that has an address for each process:
    llm=llm.default.svc:7800."""
    discovery_interval_s: float = 5.0
    """How often names are resolved, and the replicas of the two settings above asked who they are; one that has lost its
    stream is asked at once."""
    max_payload_bytes: int = 1024 * 1024 * 1024 - 1
    """Largest payload that a client may announce."""
    spool_bytes: int = 2 * 1024 * 1024 * 1024
    """Bytes of uploaded payloads kept at once, over all calls; more is refused with BUFFER_FULL."""
    yield_window: int = 64
    """Undelivered yields of one activation unless its node says otherwise."""
    segments: bool = True
    """Roles iterate loops and chains of their own nodes by themselves; without, every activation passes the control plane,
    with the same results."""
    pipelines: bool = False
    """Yields of a streaming chain of nodes go from role to role by themselves, and only the last node's come back. Takes
    load off the control plane; roles must reach each other, and an inspected call shows the first node's activation only."""
    byte_credit: int = 1024 * 1024
    """Undelivered bytes of one activation's yields."""
    inline_threads: int = 4
    """Threads for inline interfaces that are plain functions."""
    resume_key: str = ""
    """Hex key of resume tokens, the same in every process of a cluster; drawn at start when empty."""
