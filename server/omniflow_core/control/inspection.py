"""What a call is doing, as values: for people who look at it, and for the invariants that tests hold it to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omniflow_core.control.count_joins import CountJoins, OpenCountJoin
from omniflow_core.control.leases import Holder, LeaseRoot
from omniflow_core.control.work import CallWork
from omniflow_core.control.work_items import Activation, Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationView:
    """An activation that has not ended."""

    activation_id: int
    node: str
    group: str
    origin_path: tuple[int, ...]
    attempt: int
    state: str
    """`held` at a gate, `sent` to a replica, or `running`."""
    yields: int
    undelivered: int
    buckets: tuple[int, ...]
    """Buckets that it may still contribute to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketView:
    """A join that has not settled. Count joins have id 0: there is one per node and call."""

    bucket_id: int
    node: str
    group: str
    kind: str
    """`prefix` or `count`."""
    anchor_path: tuple[int, ...]
    fields: Mapping[str, int]
    """Contributions, or admitted events of triggers."""
    wanted: Mapping[str, int]
    """Declared counts that are known."""
    size_bytes: int
    holders: tuple[str, ...]
    """Who may still contribute, such as `activation 3` or `bucket 2`."""
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """A session-ordered node: the activation that runs, 0 for none, and those that wait for their turn."""

    node: str
    running: int
    waiting: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInspection:
    """A call at one moment."""

    phase: str
    activations: tuple[ActivationView, ...]
    buckets: tuple[BucketView, ...]
    gates: tuple[GateView, ...]
    stored_bytes: int
    started: int
    finished: int


def inspect(phase: str, work: CallWork, counts: CountJoins) -> CallInspection:
    """Copies the state of a call into values."""
    names = _names_of_holders(work, counts)
    return CallInspection(
        phase=phase,
        activations=tuple(_view(activation) for activation in work.active.values()),
        buckets=(*_prefix_buckets(work, names), *_count_buckets(counts)),
        gates=tuple(_gates(work)),
        stored_bytes=work.room.total_bytes,
        started=work.started,
        finished=work.started - len(work.active),
    )


def _gates(work: CallWork) -> Iterator[GateView]:
    for gate in work.gates.values():
        held = (a for a in work.active.values() if a.is_held and a.node.name == gate.node)
        yield GateView(node=gate.node, running=gate.running, waiting=tuple(a.activation_id for a in held))


def _view(activation: Activation) -> ActivationView:
    spec = activation.node.spec
    assert spec is not None, "the source is no activation of the table"
    state = "held" if activation.is_held else "running" if activation.is_accepted else "sent"
    return ActivationView(
        activation_id=activation.activation_id,
        node=activation.node.name,
        group=spec.groups[activation.group].name if activation.group >= 0 else "",
        origin_path=activation.origin_path,
        attempt=activation.attempt,
        state=state,
        yields=activation.window.next_ordinal,
        undelivered=activation.window.undelivered,
        buckets=tuple(activation.scopes.values()),
    )


def _prefix_buckets(work: CallWork, names: Mapping[Holder, str]) -> Iterator[BucketView]:
    for bucket in work.buckets.values():
        holders = sorted(work.leases.holders_of(bucket.bucket_id))
        yield BucketView(
            bucket_id=bucket.bucket_id,
            node=bucket.join.node.name,
            group=bucket.join.group,
            kind="prefix",
            anchor_path=bucket.anchor.ordinals(),
            fields={field: len(items) for field, items in bucket.fields.items()},
            wanted={},
            size_bytes=bucket.size_bytes,
            holders=tuple(names.get(holder, f"activation {holder}") for holder in holders),
            missing=tuple(bucket.missing),
        )


def _count_buckets(counts: CountJoins) -> Iterator[BucketView]:
    for entry in counts:
        have = entry.join.admitted
        want = {field: count for field, count in entry.join.counts.items() if count is not None}
        missing = [f for f in have if f not in want or have[f] < want[f]]
        yield BucketView(
            bucket_id=0,
            node=entry.node.name,
            group="",
            kind="count",
            anchor_path=(),
            fields=have,
            wanted=want,
            size_bytes=entry.join.size_bytes,
            holders=(),
            missing=tuple(missing),
        )


def _names_of_holders(work: CallWork, counts: CountJoins) -> dict[Holder, str]:
    names: dict[Holder, str] = {}
    for bucket in work.buckets.values():
        if bucket.reservation is not None:
            names[bucket.reservation.holder] = f"bucket {bucket.bucket_id}"
    for entry in counts:
        if entry.reservation is not None:
            names[entry.reservation.holder] = f"count join {entry.node.name}"
    for activation in work.active.values():
        for index, feed in (activation.feeds or {}).items():
            if feed.pending is not None:
                delivery = activation.node.deliveries[index]
                names[feed.pending.holder] = f"chunk for {delivery.node.name}.{delivery.group}"
    return names


# --- invariants -----------------------------------------------------------------------------------------------------


def check_integrity(work: CallWork, counts: CountJoins, source: Activation) -> None:
    """Recomputes leases, stores and order from what holds them."""
    for tree in work.trees:
        tree.check_integrity()
    expected: dict[LeaseRoot, set[Holder]] = defaultdict(set)
    for activation in work.active.values():
        for root in activation.scopes.values():
            expected[root].add(activation.activation_id)
    for reservation in _reservations(work, counts, source):
        for root in reservation.scopes.values():
            expected[root].add(reservation.holder)
    work.leases.check_integrity(expected)
    assert work.buckets.keys() == expected.keys(), "open buckets and lease roots differ"
    total = sum(bucket.size_bytes for bucket in work.buckets.values())
    total += sum(activation.charge_bytes for activation in work.active.values())
    total += sum(feed.buffer.size_bytes for a in (*work.active.values(), source) for feed in (a.feeds or {}).values())
    total += sum(entry.join.size_bytes for entry in counts)
    assert total == work.room.total_bytes, f"kept are {work.room.total_bytes} bytes, recomputed {total}"
    for gate in work.gates.values():
        assert gate.running == 0 or gate.running in work.active, "a gate is held by an activation that has ended"
        assert gate.running or not gate.waiting, "a gate is free, and something waits at it"
        assert all(work.active[waiting].is_held for waiting in gate.waiting), "what waits at a gate was sent"
    assert not work.closed, "a closed root was not settled"
    assert not work.freed, "something that the order lets go was kept"


def _reservations(work: CallWork, counts: CountJoins, source: Activation) -> Iterator[Reservation]:
    for bucket in work.buckets.values():
        assert bucket.reservation is not None, "an open bucket keeps no place"
        yield bucket.reservation
    for entry in counts:
        yield _reservation_of(entry)
    for activation in (*work.active.values(), source):
        for feed in (activation.feeds or {}).values():
            if feed.pending is not None:
                yield feed.pending


def _reservation_of(entry: OpenCountJoin) -> Reservation:
    assert entry.reservation is not None, "a settled count join was listed"
    return entry.reservation
