"""Cancel, supersede, and what a call that did not end well leaves behind."""

from __future__ import annotations

import pytest

from omniflow_core.control.calls import Admission
from omniflow_core.control.commands import CallUsage, FailCall, FinishCall
from omniflow_core.control.events import CancelRequested
from omniflow_core.control.scheduler import CallPhase
from omniflow_core.errors import ErrorInfo, Reason
from tests.core.scenarios.driven import BROKEN, STOP, Driven
from tests.support.graphs import graph, node

CHAIN = graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out")
SUPERSEDED = ErrorInfo(reason=Reason.CALL_SUPERSEDED, message="a later call took its place")


def test_cancel_while_running() -> None:
    """The terminal event does not wait for cleanup; what comes meanwhile changes nothing; the release waits for it."""
    drive = Driven(CHAIN)
    drive.admit(x="v")
    drive.give("a", y="w")
    assert drive.cancel() == ["cancel", "fail CALL_CANCELLED"]
    assert drive.error == STOP
    assert drive.scheduler.phase is CallPhase.ENDED
    assert drive.give("a", y="late") == []
    assert drive.give("b", y="late") == []
    assert drive.fail("b", STOP) == []
    assert drive.finish("a") == ["release"]


def test_cancel_keeps_what_came_before() -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    drive.give("a", y="w")
    assert drive.give("b", y="r0") == ["emit out=r0"]
    drive.cancel()
    assert drive.stop_all() == ["release"]
    assert drive.values() == ["r0"]


def test_cancel_in_queue() -> None:
    drive = Driven(CHAIN)
    assert drive.cancel() == ["fail CALL_CANCELLED", "release"]
    assert drive.admit(x="v") == []
    assert drive.starts == {}


def test_cancel_after_finish() -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    assert drive.finish("a") == ["finish stop", "release"]
    assert drive.cancel() == []


def test_cancel_twice() -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    assert drive.cancel() == ["cancel", "fail CALL_CANCELLED"]
    assert drive.cancel() == []
    assert drive.stop_all() == ["release"]
    assert drive.cancel() == []


def test_cancel_with_open_joins_counts_gates_and_chunks_leaves_nothing() -> None:
    """Each kind of store holds something when the cancel comes; the driver checks that nothing is left."""
    nodes = (
        node("p"),
        node("v"),
        node("w"),
        node("j", "v w"),
        node("d", "img", counts="img=9"),
        node("gen", is_session_ordered=True),
    )
    edges = "x>p.x p.y>v.x p.y>w.x v.y>j.v w.y>j.w v.y>d.img v.y>gen.x j.y>out d.y>out gen.y>out"
    drive = Driven(graph(nodes, edges))
    drive.admit(x="v")
    drive.run("p", "a", "b")
    for name in ("v", "v#1"):
        drive.give(name, 10, y="1")
        drive.give(name, 10, y="2")
    assert drive.scheduler.open_buckets == 3
    assert drive.scheduler.held_count == 3
    assert drive.scheduler.lease_count > 0
    assert drive.scheduler.inspect().stored_bytes > 0
    assert drive.cancel() == ["cancel", "fail CALL_CANCELLED"]
    assert drive.stop_all() == ["release"]
    assert drive.leftovers == {}


def test_supersede_cancels_then_admits() -> None:
    """Earlier calls of the session get their terminal event; only then does the new one run."""
    admission = Admission(max_calls=9, max_calls_per_tenant=9)
    running, queued, new = Driven(CHAIN), Driven(CHAIN), Driven(CHAIN)
    assert admission.arrive("running", tenant="t", session="s").is_admitted
    assert running.admit(x="v") == ["start a main(x=v)"]
    assert not admission.arrive("queued", tenant="t", session="s").is_admitted
    arrival = admission.arrive("new", tenant="t", session="s", supersede=True)
    assert (arrival.is_admitted, arrival.superseded) == (False, ("running", "queued"))
    assert queued(CancelRequested(SUPERSEDED)) == ["fail CALL_SUPERSEDED", "release"]
    assert admission.end("queued") is None
    assert running(CancelRequested(SUPERSEDED)) == ["cancel", "fail CALL_SUPERSEDED"]
    assert admission.end("running") == "new"
    assert new.admit(x="v") == ["start a main(x=v)"], "it does not wait for what the old call still winds down"
    assert running.fail("a", STOP) == ["release"]
    assert queued.starts == {}


HISTORY = (("llm", 3),)


def test_histories_of_a_finished_call_are_those_of_its_activations() -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    drive.give("a", y="w")
    drive.finish("a", histories=("from a",))
    drive.finish("b", histories=("from b", "more of b"))
    assert drive.terminal == FinishCall("stop", CallUsage(activations=2), ("from a", "from b", "more of b"))


@pytest.mark.parametrize("how", ["failed", "cancelled", "superseded"])
def test_failed_turn_leaves_history(how: str) -> None:
    """What an earlier activation of the call would have appended is dropped with the call."""
    drive = Driven(CHAIN)
    drive.admit(x="v")
    drive.give("a", y="w")
    drive.finish("a", histories=HISTORY)
    if how == "failed":
        drive.fail("b")
    else:
        drive.cancel(STOP if how == "cancelled" else SUPERSEDED)
        drive.finish("b", histories=HISTORY)
    reasons = {"failed": BROKEN, "cancelled": STOP, "superseded": SUPERSEDED}
    assert drive.terminal == FailCall(reasons[how], CallUsage(activations=2))
    assert not hasattr(drive.terminal, "histories")
    assert drive.is_released
