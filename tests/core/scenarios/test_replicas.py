"""Which replica an activation goes to: the pure part of the choice."""

from __future__ import annotations

from collections import Counter

import pytest

from omniflow_core.control.balancing import CallReplicas, Candidate, Choice
from omniflow_core.graph.spec import Balance
from tests.support.graphs import node

STICKY = node("b", is_inline=False, role="worker", balance=Balance.ROUND_ROBIN)
SPREAD = node("b", is_inline=False, role="worker", balance=Balance.ROUND_ROBIN, is_spread=True)


def candidates(*keys: str) -> list[Candidate]:
    return [Candidate(key=key, load=0) for key in keys]


def turn_of(turn: int) -> Choice:
    return Choice(turn=turn, affinity="call", draws=(0.0, 0.0))


def taken(replicas: CallReplicas, spec: object, keys: str, turn: int) -> str:
    found = replicas.replica_for(spec, candidates(*keys.split()), turn_of(turn))  # type: ignore[arg-type]
    assert found is not None
    return found.key


def test_first_delivery_fixes_replica() -> None:
    """Later deliveries of the call go where the first went, however the policy's turn goes on."""
    replicas = CallReplicas()
    first = taken(replicas, STICKY, "r0 r1 r2", 1)
    assert {taken(replicas, STICKY, "r0 r1 r2", turn) for turn in range(2, 12)} == {first}
    assert taken(replicas, STICKY, f"r9 {first} r1", 5) == first, "the order of candidates does not matter"


def test_first_delivery_fixes_replica_per_node_and_call() -> None:
    other = node("c", is_inline=False, role="worker", balance=Balance.ROUND_ROBIN)
    replicas = CallReplicas()
    assert taken(replicas, STICKY, "r0 r1", 0) != taken(replicas, other, "r0 r1", 1)
    assert taken(CallReplicas(), STICKY, "r0 r1", 1) != taken(replicas, STICKY, "r0 r1", 1)


def test_lost_replica_is_replaced_by_a_choice_that_holds() -> None:
    replicas = CallReplicas()
    first = taken(replicas, STICKY, "r0 r1 r2", 0)
    rest = " ".join(key for key in ("r0", "r1", "r2") if key != first)
    second = taken(replicas, STICKY, rest, 0)
    assert second != first
    assert {taken(replicas, STICKY, "r0 r1 r2", turn) for turn in range(6)} == {second}, (
        "the lost one is not taken back"
    )


def test_spread_balances_activations() -> None:
    replicas = CallReplicas()
    assert Counter(taken(replicas, SPREAD, "r0 r1 r2", turn) for turn in range(9)) == {"r0": 3, "r1": 3, "r2": 3}


def test_spread_by_load_takes_the_idle_one() -> None:
    spread = node("b", is_inline=False, role="worker", balance=Balance.LEAST_LOADED, is_spread=True)
    busy = [Candidate(key="r0", load=3), Candidate(key="r1", load=0), Candidate(key="r2", load=2)]
    found = CallReplicas().replica_for(spread, busy, turn_of(0))
    assert found == busy[1]


@pytest.mark.parametrize("spec", [STICKY, SPREAD])
def test_no_candidate_is_no_choice(spec: object) -> None:
    replicas = CallReplicas()
    assert replicas.replica_for(spec, [], turn_of(0)) is None  # type: ignore[arg-type]
    assert taken(replicas, spec, "r0", 0) == "r0"
