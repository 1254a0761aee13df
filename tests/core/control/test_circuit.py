"""Circuits of a role's replicas: every state with every event, times, and what is never left out."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniflow_core.control.circuit import TRANSITIONS, CircuitEvent, CircuitReport, Circuits, CircuitState


def opened(*keys: str, now_s: float = 0.0) -> Circuits:
    """Circuits that opened at that time, in that order."""
    circuits = Circuits()
    for key in keys:
        fail(circuits, key, 5, now_s)
    return circuits


def fail(circuits: Circuits, key: str, times: int, now_s: float = 0.0) -> list[bool]:
    results = [circuits.failed(key, now_s) for _ in range(times)]
    circuits.check_integrity()
    return results


def state_of(circuits: Circuits, key: str, now_s: float = 0.0) -> CircuitState:
    return next((r.state for r in circuits.reports(now_s) if r.key == key), CircuitState.CLOSED)


def admits(circuits: Circuits, key: str, now_s: float) -> bool:
    """Whether a replica of three may be given work; the others work."""
    return key in circuits.admissible(["x", key, "y"], now_s)


# --- transitions ------------------------------------------------------------------------------------------------------


def in_state(state: CircuitState) -> Circuits:
    circuits = Circuits()
    if state is CircuitState.CLOSED:
        fail(circuits, "a", 4)
        return circuits
    fail(circuits, "a", 5)
    if state is CircuitState.HALF_OPEN:
        circuits.started("a", 1.0)
    return circuits


@pytest.mark.parametrize("state", CircuitState)
@pytest.mark.parametrize("event", ["start early", "start late", "succeed", "fail"])
def test_every_state_with_every_event(state: CircuitState, event: str) -> None:
    """A closed one that has failed four times trips with one failure more; what is no transition changes nothing."""
    circuits = in_state(state)
    assert state_of(circuits, "a") is state
    before = circuits.reports(0.0)
    meant = {
        "start early": None,
        "start late": CircuitEvent.PROBED,
        "succeed": CircuitEvent.SUCCEEDED,
        "fail": CircuitEvent.TRIPPED if state is CircuitState.CLOSED else CircuitEvent.FAILED,
    }[event]
    did_open = False
    match event:
        case "start early":
            circuits.started("a", 0.5)
        case "start late":
            circuits.started("a", 2.0)
        case "succeed":
            circuits.succeeded("a")
        case "fail":
            did_open = circuits.failed("a", 1.5)
    circuits.check_integrity()
    following = TRANSITIONS.get((state, meant)) if meant is not None else None
    assert state_of(circuits, "a") is (following or state)
    assert did_open == (following is CircuitState.OPEN)
    is_reset = state is CircuitState.CLOSED and event == "succeed"
    if following is None and not is_reset:
        assert circuits.reports(0.0) == before


def test_table_has_the_drawn_transitions() -> None:
    drawn = {
        ("CLOSED", "TRIPPED"): "OPEN",
        ("OPEN", "PROBED"): "HALF_OPEN",
        ("HALF_OPEN", "PROBED"): "HALF_OPEN",
        ("HALF_OPEN", "SUCCEEDED"): "CLOSED",
        ("HALF_OPEN", "FAILED"): "OPEN",
    }
    assert {(state.name, event.name): to.name for (state, event), to in TRANSITIONS.items()} == drawn


def test_circuit_opens_after_five_failures_in_a_row() -> None:
    circuits = Circuits()
    assert fail(circuits, "a", 4) == [False] * 4
    circuits.succeeded("a")
    assert fail(circuits, "a", 5) == [False] * 4 + [True]
    assert not admits(circuits, "a", 0.0)
    assert fail(circuits, "a", 3) == [False] * 3, "it is open already"


def test_late_results_of_before_do_not_close_or_prolong() -> None:
    circuits = opened("a")
    circuits.succeeded("a")
    assert not circuits.failed("a", 0.9)
    assert [admits(circuits, "a", now_s) for now_s in (0.99, 1.0)] == [False, True]


def test_one_probe_goes_and_its_success_closes() -> None:
    circuits = opened("a")
    assert [admits(circuits, "a", now_s) for now_s in (0.0, 0.99, 1.0)] == [False, False, True]
    circuits.started("a", 1.2)
    assert state_of(circuits, "a") is CircuitState.HALF_OPEN
    assert not admits(circuits, "a", 1.3), "one activation at a time"
    circuits.succeeded("a")
    assert admits(circuits, "a", 1.3)
    assert circuits.reports(1.3) == []
    assert fail(circuits, "a", 5, 1.4)[-1]
    assert admits(circuits, "a", 2.4), "a success forgets how long it was open"


def test_failed_probes_double_the_time_up_to_thirty_seconds() -> None:
    circuits, now_s, waits = opened("a"), 0.0, []
    for _ in range(7):
        (report,) = circuits.reports(now_s)
        waits.append(report.wait_s)
        assert not admits(circuits, "a", now_s + report.wait_s - 0.01)
        now_s += report.wait_s
        assert admits(circuits, "a", now_s)
        circuits.started("a", now_s)
        assert circuits.failed("a", now_s)
        circuits.check_integrity()
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_probe_that_says_nothing_is_followed_by_another() -> None:
    circuits = opened("a")
    circuits.started("a", 1.0)
    assert [admits(circuits, "a", now_s) for now_s in (1.5, 1.99, 2.0)] == [False, False, True]
    circuits.started("a", 2.5)
    assert state_of(circuits, "a") is CircuitState.HALF_OPEN
    assert [admits(circuits, "a", now_s) for now_s in (3.4, 3.5)] == [False, True]


def test_start_before_its_time_is_no_probe() -> None:
    """One of a replica that is admitted although its circuit is open."""
    circuits = opened("a")
    circuits.started("a", 0.5)
    assert state_of(circuits, "a") is CircuitState.OPEN
    assert admits(circuits, "a", 1.0)


# --- what is left out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "admitted"),
    [("a", "a"), ("ab", "b"), ("abc", "bc"), ("abcd", "cd"), ("abcde", "cde"), ("edcba", "edc"), ("dxcy", "xy")],
)
def test_never_more_than_half_are_left_out_and_the_first_to_open_stay_out(replicas: str, admitted: str) -> None:
    circuits = opened(*"abcde")
    assert "".join(circuits.admissible(list(replicas), 0.5)) == admitted


def test_replica_that_opened_first_stays_out_when_its_probe_fails() -> None:
    circuits = opened("a", now_s=0.0)
    fail(circuits, "b", 5, 0.9)
    circuits.started("a", 1.0)
    assert circuits.failed("a", 1.1)
    assert list(circuits.admissible(["a", "b"], 1.2)) == ["b"], "b opened after a did"


def test_replica_that_came_back_in_between_opens_anew() -> None:
    circuits = opened("a")
    circuits.started("a", 1.0)
    circuits.succeeded("a")
    fail(circuits, "b", 5, 1.1)
    fail(circuits, "a", 5, 1.2)
    assert list(circuits.admissible(["a", "b"], 1.3)) == ["a"], "b opened before a did, this time"


def test_replicas_without_failures_are_given_back_as_they_came() -> None:
    keys = ("a", "b")
    assert Circuits().admissible(keys, 0.0) is keys
    assert opened("z").admissible(keys, 0.0) is keys
    assert list(Circuits().admissible((), 0.0)) == []


def test_forgotten_replica_is_closed() -> None:
    circuits = opened("a", "b")
    circuits.forget("a")
    circuits.forget("a")
    circuits.check_integrity()
    assert state_of(circuits, "a") is CircuitState.CLOSED
    assert fail(circuits, "a", 4) == [False] * 4, "its failures are forgotten too"
    assert state_of(circuits, "b") is CircuitState.OPEN


def test_reports_tell_people_what_is_wrong() -> None:
    circuits = opened("b")
    fail(circuits, "a", 2)
    fail(circuits, "c", 5)
    circuits.started("c", 1.0)
    assert circuits.reports(0.25) == [
        CircuitReport(key="a", state=CircuitState.CLOSED, failures=2, wait_s=0.0),
        CircuitReport(key="b", state=CircuitState.OPEN, failures=5, wait_s=0.75),
        CircuitReport(key="c", state=CircuitState.HALF_OPEN, failures=5, wait_s=1.75),
    ]
    assert [report.wait_s for report in circuits.reports(9.0)] == [0.0, 0.0, 0.0]


def test_settings_are_taken() -> None:
    circuits = Circuits(failures=1, open_s=0.5, max_open_s=0.75)
    assert circuits.failed("a", 0.0)
    circuits.started("a", 0.5)
    assert circuits.failed("a", 0.5)
    assert [admits(circuits, "a", now_s) for now_s in (1.24, 1.25)] == [False, True]


# --- inputs that fail everywhere --------------------------------------------------------------------------------------


@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(st.lists(st.tuples(st.sampled_from(["start", "ok", "fail", "forget"]), st.integers(0, 4)), max_size=200))
def test_half_of_the_replicas_always_work_in_any_history(steps: list[tuple[str, int]]) -> None:
    circuits, keys = Circuits(), ["r0", "r1", "r2", "r3", "r4"]
    for now, (step, index) in enumerate(steps):
        now_s, key = now / 7, keys[index]
        match step:
            case "start":
                circuits.started(key, now_s)
            case "ok":
                circuits.succeeded(key)
            case "fail":
                circuits.failed(key, now_s)
            case "forget":
                circuits.forget(key)
        circuits.check_integrity()
        for count in range(len(keys) + 1):
            admitted = circuits.admissible(keys[:count], now_s)
            assert count - len(admitted) <= count // 2
            assert list(admitted) == [key for key in keys[:count] if key in admitted]


def test_role_that_fails_everywhere_works_again_as_soon_as_its_inputs_do() -> None:
    """Half of the replicas take work all the while; once it succeeds every circuit closes with its next probe."""
    circuits, keys, chance = Circuits(), ["r0", "r1", "r2", "r3"], random.Random(1)
    for step in range(400):
        now_s = step / 10
        admitted = circuits.admissible(keys, now_s)
        assert len(admitted) >= 2
        key = chance.choice(list(admitted))
        circuits.started(key, now_s)
        if now_s < 5:
            circuits.failed(key, now_s)
        else:
            circuits.succeeded(key)
    assert circuits.reports(40.0) == []
