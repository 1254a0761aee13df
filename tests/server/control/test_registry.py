"""Registrations, leases and lives of replicas."""

from __future__ import annotations

import pytest

from omniflow.role.v1 import replica_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.registry import REPLACED_KEPT, Registration, Registry

STARTING, READY, DRAINING, LOST = (
    replica_pb2.REPLICA_STATE_STARTING,
    replica_pb2.REPLICA_STATE_READY,
    replica_pb2.REPLICA_STATE_DRAINING,
    replica_pb2.REPLICA_STATE_LOST,
)


class Recorded:
    """A registry whose changes are recorded as (replica, life, state)."""

    def __init__(self) -> None:
        self.registry = Registry(lease_ttl_s=3.0)
        self.changes: list[tuple[str, str, int]] = []
        self.stop = self.registry.subscribe(self._on_change)

    def _on_change(self, registration: Registration) -> None:
        replica = registration.replica
        self.changes.append((replica.replica_id, replica.incarnation_id, replica.state))

    def register(
        self,
        replica_id: str = "a",
        life: str = "1",
        *,
        now_s: float = 0.0,
        state: replica_pb2.ReplicaState = READY,
        role: str = "llm",
    ) -> Registration:
        replica = replica_pb2.Replica(role=role, replica_id=replica_id, incarnation_id=life, state=state)
        return self.registry.register(replica, now_s)

    def adopt(self, *, life: str, lease_id: str) -> Registration:
        replica = replica_pb2.Replica(role="llm", replica_id="a", incarnation_id=life, state=READY)
        return self.registry.adopt(replica, lease_id=lease_id, drain_grace_s=None)

    def beat(
        self, registration: Registration, now_s: float, state: replica_pb2.ReplicaState = READY
    ) -> Registration | None:
        return self.registry.keep_alive(registration.lease_id, state, replica_pb2.ReplicaLoad(running=2), now_s)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_lease_lasts_from_its_last_keep_alive(recorded: Recorded) -> None:
    lease = recorded.register(now_s=10.0)
    recorded.registry.expire(12.9)
    assert recorded.beat(lease, 12.9) is lease
    assert lease.load.running == 2
    recorded.registry.expire(15.8)
    assert recorded.registry.find("llm", "a") is lease
    recorded.registry.expire(15.9)
    assert recorded.registry.find("llm", "a") is None
    assert recorded.changes == [("a", "1", READY), ("a", "1", LOST)]


def test_keep_alive_of_an_unknown_lease_asks_to_register_again(recorded: Recorded) -> None:
    lease = recorded.register()
    recorded.registry.expire(3.0)
    assert recorded.beat(lease, 3.1) is None
    assert recorded.registry.keep_alive("guess", READY, replica_pb2.ReplicaLoad(), 0.0) is None
    assert recorded.registry.replicas() == []


def test_new_life_takes_the_place_of_the_old_one(recorded: Recorded) -> None:
    old = recorded.register(life="1")
    new = recorded.register(life="2")
    assert recorded.changes == [("a", "1", READY), ("a", "1", LOST), ("a", "2", READY)]
    assert recorded.registry.replicas() == [new]
    assert recorded.beat(old, 0.1) is None, "the old life's lease is gone with it"
    recorded.registry.deregister(old.lease_id)
    assert recorded.registry.replicas() == [new], "a late farewell of the old life touches nothing"


def test_same_life_registers_again_without_being_lost(recorded: Recorded) -> None:
    lease = recorded.register()
    old_lease_id = lease.lease_id
    assert recorded.register(state=DRAINING, now_s=1.0) is lease, "who holds it sees the change"
    assert (lease.replica.state, lease.expire_s) == (DRAINING, 4.0)
    assert recorded.changes == [("a", "1", READY), ("a", "1", DRAINING)]
    assert recorded.registry.keep_alive(old_lease_id, READY, replica_pb2.ReplicaLoad(), 1.1) is None
    assert recorded.beat(lease, 1.1, DRAINING) is lease


def test_replaced_life_is_refused_for_good(recorded: Recorded) -> None:
    """Two processes with one name: the later one stays, and they do not take turns."""
    recorded.register(life="1")
    recorded.register(life="2")
    new = recorded.register(life="3")
    for life in ("1", "2"):
        with pytest.raises(OmniFlowError, match="'a' of role 'llm'") as caught:
            recorded.register(life=life)
        assert caught.value.reason is Reason.STALE_EPOCH
        assert caught.value.info.metadata == {"incarnation_id": "3"}
    assert recorded.registry.replicas() == [new]
    recorded.register("b", life="1")
    for life in range(4, 100):
        new = recorded.register(life=str(life))
    assert len(new.replaced) == REPLACED_KEPT


def test_adopted_life_is_none_of_the_replaced_ones(recorded: Recorded) -> None:
    """Whoever tells of it has decided between the two, and may have heard of them the other way round."""
    recorded.register(life="1")
    recorded.register(life="2")
    first = recorded.adopt(life="1", lease_id="lease-1")
    assert list(first.replaced) == ["2"]
    again = recorded.adopt(life="2", lease_id="lease-2")
    assert list(again.replaced) == ["1"]
    assert recorded.register(life="2") is again, "it registers here after all"
    assert not again.is_adopted
    with pytest.raises(OmniFlowError) as caught:
        recorded.register(life="1")
    assert caught.value.reason is Reason.STALE_EPOCH
    assert recorded.registry.replicas() == [again]
    assert recorded.registry.by_lease("lease-1") is recorded.registry.by_lease("lease-2") is None


def test_lease_is_the_one_that_was_agreed_on(recorded: Recorded) -> None:
    replica = replica_pb2.Replica(role="llm", replica_id="a", incarnation_id="1", state=READY)
    for lease_id in ("first", "second"):
        lease = recorded.registry.register(replica, 0.0, lease_id=lease_id)
        assert (lease.lease_id, recorded.registry.by_lease(lease_id)) == (lease_id, lease)
    assert recorded.registry.by_lease("first") is None


def test_lease_that_is_ended_asks_to_register_again(recorded: Recorded) -> None:
    lease = recorded.register(now_s=0.0)
    ended = lease.lease_id
    recorded.registry.end_lease(ended)
    recorded.registry.end_lease(ended)
    assert recorded.registry.keep_alive(ended, READY, replica_pb2.ReplicaLoad(), 1.0) is None
    assert recorded.registry.replicas() == [lease], "it is known for the rest of its time"
    recorded.registry.expire(3.0)
    assert recorded.registry.replicas() == []
    assert recorded.changes == [("a", "1", READY), ("a", "1", LOST)]


def test_lease_of_an_adopted_replica_is_not_ended(recorded: Recorded) -> None:
    lease = recorded.adopt(life="1", lease_id="theirs")
    recorded.registry.end_lease("theirs")
    assert recorded.registry.by_lease("theirs") is lease


def test_replica_with_a_stream_outlives_its_lease(recorded: Recorded) -> None:
    lease = recorded.register()
    lease.has_stream = True
    recorded.registry.expire(3.0)
    assert recorded.registry.replicas() == [lease]
    lease.has_stream = False
    recorded.registry.expire(3.0)
    assert recorded.registry.replicas() == []


def test_leases_are_extended_by_a_pause(recorded: Recorded) -> None:
    recorded.register(now_s=0.0)
    recorded.registry.extend_all(4.0)
    recorded.registry.expire(6.9)
    assert len(recorded.registry.replicas()) == 1
    recorded.registry.expire(7.0)
    assert recorded.registry.replicas() == []


def test_leases_are_not_guessable(recorded: Recorded) -> None:
    leases = {recorded.register(life=str(i)).lease_id for i in range(100)}
    assert len(leases) == 100
    assert min(map(len, leases)) >= 24


def test_change_of_state_is_told_once(recorded: Recorded) -> None:
    lease = recorded.register(state=STARTING)
    for state in (STARTING, READY, READY, replica_pb2.REPLICA_STATE_UNSPECIFIED, DRAINING):
        recorded.beat(lease, 0.1, state)
    assert [state for *_, state in recorded.changes] == [STARTING, READY, DRAINING]
    assert recorded.registry.revision == 3


def test_drained_replica_stays_drained_until_it_says_so_itself(recorded: Recorded) -> None:
    lease = recorded.register()
    recorded.registry.drain("llm", "a", 7.5)
    assert lease.drain_grace_s == 7.5
    assert not lease.is_ready
    answered = recorded.beat(lease, 1.0, READY)
    assert answered is lease
    assert lease.replica.state == DRAINING, "a keep-alive that crossed the directive does not undo it"
    assert lease.expire_s == 4.0
    recorded.beat(lease, 1.5, DRAINING)
    assert recorded.changes == [("a", "1", READY), ("a", "1", DRAINING)]


def test_drain_of_an_unknown_replica_is_refused(recorded: Recorded) -> None:
    with pytest.raises(OmniFlowError) as caught:
        recorded.registry.drain("llm", "b", 1)
    assert caught.value.reason is Reason.UNKNOWN_RESOURCE


def test_deregister_twice_is_harmless(recorded: Recorded) -> None:
    lease = recorded.register()
    recorded.registry.deregister(lease.lease_id)
    recorded.registry.deregister(lease.lease_id)
    recorded.registry.deregister("guess")
    assert [state for *_, state in recorded.changes] == [READY, LOST]


def test_replicas_are_listed_by_role_and_identifier(recorded: Recorded) -> None:
    for role, replica_id in (("tts", "a"), ("llm", "b"), ("llm", "a")):
        recorded.register(replica_id, role=role)
    assert [r.key for r in recorded.registry.replicas()] == [("llm", "a"), ("llm", "b"), ("tts", "a")]
    assert [r.key for r in recorded.registry.replicas("llm")] == [("llm", "a"), ("llm", "b")]


def test_expire_takes_only_what_has_run_out(recorded: Recorded) -> None:
    recorded.register("a", now_s=0.0)
    recorded.register("b", now_s=1.0)
    recorded.registry.expire(3.5)
    assert [r.key for r in recorded.registry.replicas()] == [("llm", "b")]


def test_listener_may_leave_while_it_is_told(recorded: Recorded) -> None:
    told: list[str] = []

    def leave(registration: Registration) -> None:
        told.append(registration.lease_id)
        stop()

    stop = recorded.registry.subscribe(leave)
    first = recorded.register("a")
    recorded.register("b")
    assert told == [first.lease_id]
    recorded.stop()
    recorded.register("c")
    assert len(recorded.changes) == 2
