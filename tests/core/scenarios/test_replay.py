"""Lost replicas and repeated messages: what runs again, from where, and what changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    Event,
)
from omniflow_core.errors import Code, Reason
from omniflow_core.graph.spec import ChunkSpec, GraphSpec, OnFailure, Replay
from tests.core.scenarios.driven import BROKEN, LOST, Driven
from tests.support.graphs import graph, node


def chain(replay: Replay, **options: Any) -> GraphSpec:
    """a -> b -> out, of which a replica serves b"""
    b = node("b", is_inline=False, role="worker", replay=replay, **options)
    return graph((node("a"), b), "x>a.x a.y>b.x b.y>out")


def started(replay: Replay, **options: Any) -> Driven:
    """A call in which b (and nothing else) runs."""
    drive = Driven(chain(replay, **options))
    drive.admit(x="v")
    assert drive.run("a", "w") == ["start b main(x=w)"]
    drive.accept("b")
    return drive


def test_replica_lost_none() -> None:
    drive = started(Replay.NONE)
    assert drive.fail("b", LOST) == ["fail REPLICA_LOST", "release"]
    assert drive.error == LOST
    assert drive.error.code is Code.UNAVAILABLE
    assert drive.error.metadata == {"node": "b", "replica": "worker-0"}


def test_replica_lost_restart() -> None:
    drive = started(Replay.RESTART)
    first = drive.starts["b"]
    assert drive.fail("b", LOST) == ["start b main(x=w) attempt 2"]
    second = drive.starts["b"]
    assert (second.activation_id, second.facets, second.origin_path) == (
        first.activation_id,
        first.facets,
        first.origin_path,
    )
    assert (second.attempt, second.delivered) == (2, ())
    assert drive.run("b", "r") == ["emit out=r", "finish stop", "release"]
    assert drive.terminal is not None
    assert drive.terminal.usage.activations == 2, "an attempt is no activation of its own"


def test_replica_lost_restart_after_a_yield_fails() -> None:
    drive = started(Replay.RESTART)
    drive.give("b", y="r0")
    assert drive.fail("b", LOST) == ["fail REPLICA_LOST", "release"]


def test_replica_lost_restart_of_a_deterministic_node_suppresses_what_was_delivered() -> None:
    drive = started(Replay.RESTART, is_deterministic=True, yield_window=2)
    assert drive.give("b", y="r0") == ["emit out=r0", "ack b<1"]
    assert drive.give("b", y="r1") == ["emit out=r1", "ack b<2"]
    assert drive.fail("b", LOST) == ["start b main(x=w) attempt 2"]
    assert drive.give("b", y="r0") == ["ack b<1"], "the new attempt needs its window too"
    assert drive.give("b", y="r1") == ["ack b<2"]
    assert drive.give("b", y="r2") == ["emit out=r2", "ack b<3"]
    assert drive.finish("b") == ["finish stop", "release"]
    assert drive.values() == ["r0", "r1", "r2"]


def test_repeated_yield_is_acknowledged_only_when_it_is_delivered() -> None:
    """The first attempt gave two yields that nobody has accepted; the second is told no more than is true."""
    b = node("b", is_inline=False, role="worker", replay=Replay.RESTART, is_deterministic=True, yield_window=2)
    drive = Driven(graph((b, node("c")), "x>b.x b.y>c.x c.y>out"))
    drive.admit(x="v")
    drive.give("b", y=0)
    drive.give("b", y=1)
    drive.fail("b", LOST)
    assert drive.give("b", y=0) == []
    assert drive.give("b", y=1) == []
    assert drive.accept("c") == ["ack b<1"]
    assert drive.give("b", y=2) == ["start c#2 main(x=2)"]
    assert drive.accept("c#1") == ["ack b<2"]
    assert drive.accept("c#2") == ["ack b<3"]


def test_repeated_yield_that_was_delivered_before_is_acknowledged_at_once() -> None:
    """Of three yields two were delivered: the new attempt goes on to the third without waiting."""
    b = node("b", is_inline=False, role="worker", replay=Replay.RESTART, is_deterministic=True, yield_window=1)
    drive = Driven(graph((b, node("c")), "x>b.x b.y>c.x c.y>out"))
    drive.admit(x="v")
    for i, turn in enumerate(("", "#1")):
        drive.give("b", y=i)
        assert drive.accept(f"c{turn}") == [f"ack b<{i + 1}"]
    drive.give("b", y=2)
    drive.fail("b", LOST)
    assert drive.give("b", y=0) == ["ack b<1"]
    assert drive.give("b", y=1) == ["ack b<2"]
    assert drive.give("b", y=2) == []
    assert drive.accept("c#2") == ["ack b<3"]


@pytest.mark.parametrize("second", ["another value", "another field", "fewer"])
def test_replica_lost_restart_diverges(second: str) -> None:
    b = node("b", outputs="y z?", is_inline=False, role="worker", replay=Replay.RESTART, is_deterministic=True)
    drive = Driven(graph((node("a"), b), "x>a.x a.y>b.x b.y>out b.z>out"))
    drive.admit(x="v")
    drive.run("a", "w")
    drive.give("b", y="r0")
    drive.give("b", y="r1")
    drive.fail("b", LOST)
    if second == "fewer":
        drive.give("b", y="r0")
        assert drive.finish("b") == ["fail REPLAY_DIVERGED", "release"]
    else:
        given = {"y": "other"} if second == "another value" else {"z": "r0"}
        assert drive.give("b", **given) == ["cancel", "fail REPLAY_DIVERGED"]
        assert drive.stop_all() == ["release"]
    assert drive.error.reason is Reason.REPLAY_DIVERGED
    assert drive.error.metadata["node"] == "b"
    assert drive.values() == ["r0", "r1"]


def test_replica_lost_continue() -> None:
    drive = started(Replay.CONTINUE)
    assert drive.give("b", y="r0") == ["emit out=r0"]
    assert drive.give("b", y="r1") == ["emit out=r1"]
    assert drive.fail("b", LOST) == ["start b main(x=w) attempt 2"]
    assert drive.starts["b"].delivered == ({"y": "r0"}, {"y": "r1"})
    assert drive.running["b"] == 2, "the driver goes on at the next ordinal"
    assert drive.give("b", y="r2") == ["emit out=r2"]
    assert drive.finish("b") == ["finish stop", "release"]
    assert [event.origin_path for event in drive.emitted] == [(0, 0, 0), (0, 0, 1), (0, 0, 2)]


def test_replica_lost_continue_before_a_yield() -> None:
    drive = started(Replay.CONTINUE)
    assert drive.fail("b", LOST) == ["start b main(x=w) attempt 2"]
    assert drive.starts["b"].delivered == ()


@pytest.mark.parametrize("replay", [Replay.RESTART, Replay.CONTINUE])
def test_replica_lost_again_and_again_fails(replay: Replay) -> None:
    drive = started(replay)
    assert drive.fail("b", LOST) == ["start b main(x=w) attempt 2"]
    assert drive.fail("b", LOST) == ["start b main(x=w) attempt 3"]
    assert drive.fail("b", LOST) == ["fail REPLICA_LOST", "release"]


@pytest.mark.parametrize("replay", [Replay.RESTART, Replay.CONTINUE])
def test_failure_that_is_no_lost_replica_is_not_replayed(replay: Replay) -> None:
    drive = started(replay)
    assert drive.fail("b") == ["fail INTERFACE_FAILED", "release"]
    assert drive.error == BROKEN


@pytest.mark.parametrize("replay", [Replay.RESTART, Replay.CONTINUE])
def test_replica_lost_of_a_cancelled_call_is_an_end(replay: Replay) -> None:
    drive = started(replay)
    drive.cancel()
    assert drive.fail("b", LOST) == ["release"]


def test_replica_lost_of_a_node_that_may_fail_is_skipped_only_after_its_attempts() -> None:
    drive = started(Replay.RESTART, on_failure=OnFailure.SKIP)
    assert drive.fail("b", LOST) == ["start b main(x=w) attempt 2"]
    drive.fail("b", LOST)
    assert drive.fail("b", LOST) == ["finish stop", "release"]


def test_replica_lost_restart_does_not_close_a_bucket() -> None:
    """The join still waits for the activation that runs again."""
    b = node("b", is_inline=False, role="worker", replay=Replay.RESTART)
    drive = Driven(graph((node("a"), b, node("c"), node("j", "b c")), "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>out"))
    drive.admit(x="v")
    drive.run("a", "go")
    assert drive.fail("b", LOST) == ["start b main(x=go) attempt 2"]
    assert drive.run("c", "c0") == []
    assert drive.run("b", "b0") == ["start j main(b=b0,c=c0)"]


def test_replica_lost_restart_of_a_join_gives_it_the_same_inputs() -> None:
    j = node("j", "b c", is_inline=False, role="worker", replay=Replay.RESTART)
    drive = Driven(graph((node("a"), node("b"), node("c"), j), "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>out"))
    drive.admit(x="v")
    drive.run("a", "go")
    drive.run("b", "b0", "b1")
    drive.run("c", "c0")
    assert drive.fail("j", LOST) == ["start j main(b=b0+b1,c=c0) attempt 2"]
    assert drive.starts["j"].origin_path == (0, 0)


def test_replica_lost_restart_keeps_the_gate() -> None:
    """The activation that runs again still has its turn; the next waits for it."""
    gen = node("gen", is_inline=False, role="worker", replay=Replay.RESTART, is_session_ordered=True)
    drive = Driven(graph((node("a"), gen), "x>a.x a.y>gen.x gen.y>out"))
    drive.admit(x="v")
    drive.run("a", 1, 2)
    assert drive.fail("gen", LOST) == ["start gen main(x=1) attempt 2"]
    assert drive.run("gen", "r") == ["emit out=r", "start gen#1 main(x=2)"]


def test_replica_lost_continue_goes_on_filling_its_chunk() -> None:
    a = node("a", is_inline=False, role="worker", replay=Replay.CONTINUE)
    spec = graph((a, node("b")), "x>a.x a.y>b.x b.y>out", chunks={"a.y>b.x": ChunkSpec(size=3)})
    drive = Driven(spec)
    drive.admit(x="v")
    drive.give("a", y=0)
    drive.give("a", y=1)
    assert drive.fail("a", LOST) == ["start a main(x=v) attempt 2"]
    assert drive.give("a", y=2) == ["start b main(x=0+1+2)"]
    assert drive.finish("a") == []


@pytest.mark.parametrize("replay", [Replay.RESTART, Replay.CONTINUE])
def test_stale_attempt_dropped(replay: Replay) -> None:
    """Whatever the lost replica still says changes nothing, and counts nowhere."""
    drive = started(replay, yield_window=1)
    number = drive.starts["b"].activation_id
    drive.fail("b", LOST)
    stale: list[Event] = [
        ActivationAccepted(number, 1),
        ActivationYielded(number, 0, {"y": "stale"}, attempt=1),
        ActivationFinished(number, 0, output_tokens=7, attempt=1),
        ActivationFailed(number, LOST, attempt=1),
    ]
    assert [drive(event) for event in stale] == [[]] * 4
    assert drive.give("b", y="r") == ["emit out=r", "ack b<1"]
    assert [drive(event) for event in stale] == [[]] * 4
    assert drive.finish("b") == ["finish stop", "release"]
    assert drive.terminal is not None
    assert drive.terminal.usage.output_tokens == 0
    assert drive.values() == ["r"]


def test_stale_attempt_of_the_future_is_dropped() -> None:
    drive = started(Replay.RESTART)
    number = drive.starts["b"].activation_id
    assert drive(ActivationYielded(number, 0, {"y": "?"}, attempt=2)) == []
    assert drive(ActivationFinished(number, 0, attempt=2)) == []
    assert drive.running.keys() == {"b"}


def test_duplicate_delivery_suppressed() -> None:
    drive = Driven(graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out"))
    drive.admit(x="v")
    a, _ = drive.starts["a"].activation_id, drive.give("a", y="w")
    b = drive.starts["b"].activation_id
    assert drive(ActivationYielded(a, 0, {"y": "w"})) == []
    drive.accept("b")
    assert drive.accept("b") == []
    assert drive.finish("b") == []
    assert drive(ActivationFinished(b, 0)) == []
    assert drive(ActivationYielded(b, 0, {"y": "late"})) == []
    assert drive.finish("a") == ["finish stop", "release"]


def test_duplicate_delivery_suppressed_in_joins_and_counts() -> None:
    """Each yield comes three times; the prefix join and the count join hold it once."""
    nodes = (node("a"), node("b"), node("c"), node("j", "b c"), node("d", "b", counts="b=3"))
    drive = Driven(graph(nodes, "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c b.y>d.b j.y>out d.y>out"))
    drive.admit(x="v")
    drive.run("a", "a0")
    b, c = drive.starts["b"].activation_id, drive.starts["c"].activation_id
    for ordinal in range(2):
        drive.give("b", y=f"b{ordinal}")
        for repeated in range(ordinal + 1):
            assert drive(ActivationYielded(b, repeated, {"y": f"b{repeated}"})) == []
    drive.give("c", y="c0")
    assert drive(ActivationYielded(c, 0, {"y": "c0"})) == []
    drive.finish("c")
    assert drive.give("b", y="b2") == ["start d main(b=b0+b1+b2)"]
    assert drive.finish("b") == ["start j main(b=b0+b1+b2,c=c0)"]
    assert drive(ActivationFinished(b, 3)) == []
