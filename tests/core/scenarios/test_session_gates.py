"""Session-ordered nodes over the calls of a session: the next call's turn comes when the last one's work has ended."""

from __future__ import annotations

from omniflow_core.control.gates import GateKey, SessionGates

LLM = GateKey(tenant="t", session="s", interface="llm")


def entered(gates: SessionGates, call_id: str, activation_id: int, key: GateKey = LLM) -> bool:
    is_in = gates.enter(key, call_id, activation_id) is not None
    gates.check_integrity()
    return is_in


def left(gates: SessionGates, call_id: str, activation_id: int, key: GateKey = LLM) -> list[tuple[str, int]]:
    admitted = [(entry.call_id, entry.activation_id) for entry in gates.leave(key, call_id, activation_id)]
    gates.check_integrity()
    return admitted


def test_session_gate_holds_the_next_call_until_the_last_one_has_ended() -> None:
    """A cancelled call still winds down when the next is admitted: they do not run side by side."""
    gates = SessionGates()
    assert entered(gates, "first", 1)
    assert not entered(gates, "second", 1)
    assert not entered(gates, "third", 1)
    assert not entered(gates, "second", 2)
    assert left(gates, "first", 1) == [("second", 1), ("second", 2)]
    assert left(gates, "second", 1) == []
    assert left(gates, "second", 2) == [("third", 1)]
    assert left(gates, "third", 1) == []
    assert len(gates) == 0


def test_session_gate_of_another_session_tenant_or_interface_is_free() -> None:
    gates = SessionGates()
    assert entered(gates, "first", 1)
    for other in (
        GateKey(tenant="t", session="other", interface="llm"),
        GateKey(tenant="other", session="s", interface="llm"),
        GateKey(tenant="t", session="s", interface="talker"),
    ):
        assert entered(gates, "second", 1, other)


def test_session_gate_forgets_a_start_that_will_never_come() -> None:
    gates = SessionGates()
    assert entered(gates, "first", 1)
    assert not entered(gates, "second", 1)
    assert not entered(gates, "third", 1)
    assert left(gates, "second", 1) == []
    assert left(gates, "first", 1) == [("third", 1)]
    assert left(gates, "first", 1) == [], "twice is the same as once"
    assert left(gates, "third", 1) == []
    assert len(gates) == 0


def test_session_gate_keeps_the_place_of_an_activation_that_starts_again() -> None:
    """Another attempt is no other activation: it keeps its ordinal."""
    gates = SessionGates()
    first = gates.enter(LLM, "first", 1)
    assert not entered(gates, "second", 1)
    assert gates.enter(LLM, "first", 1) == first
    assert left(gates, "first", 1) == [("second", 1)]


def test_session_gate_ordinals_grow_in_the_order_of_entry() -> None:
    gates = SessionGates()
    ordinals = []
    for i in range(5):
        entry = gates.enter(LLM, f"call {i}", 1)
        assert entry is not None
        ordinals.append(entry.ordinal)
        gates.leave(LLM, f"call {i}", 1)
    assert ordinals == sorted(set(ordinals))
