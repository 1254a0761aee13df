"""Acknowledgements: who may go on, who must wait, and that nobody waits for ever."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from omniflow_core.control.commands import FailCall
from omniflow_core.control.events import ActivationYielded
from omniflow_core.errors import Code, Reason
from omniflow_core.graph.spec import ChunkSpec, GraphSpec, OnImpossible
from tests.core.scenarios.driven import Driven
from tests.core.scenarios.playing import Player
from tests.support.graphs import graph, node

SMALL: dict[str, Any] = {"yield_window": 1}


def test_slow_branch_backpressure() -> None:
    """A fast producer ends its stream while the other still holds its whole window."""
    nodes = (node("fast", yield_window=2), node("slow", yield_window=2), node("f"), node("s"))
    drive = Driven(graph(nodes, "x>fast.x x>slow.x fast.y>f.x slow.y>s.x f.y>out s.y>out", outputs="", unordered="out"))
    drive.admit(x="v")
    drive.give("slow", y=0)
    drive.give("slow", y=1)
    for i in range(10):
        drive.give("fast", y=i)
        turn = f"#{i}" if i else ""
        assert drive.accept(f"f{turn}") == [f"ack fast<{i + 1}"]
    drive.finish("fast")
    assert drive.acked["slow"] == 0
    assert drive.accept("s#1") == [], "acknowledgements are cumulative"
    assert drive.accept("s") == ["ack slow<2"]


def test_contribution_that_is_stored_in_a_bucket_is_delivered() -> None:
    """The bucket is not complete; its producers go on all the same."""
    nodes = (node("a", **SMALL), node("b", **SMALL), node("c", **SMALL), node("j", "b c"))
    drive = Driven(graph(nodes, "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>out"))
    drive.admit(x="v")
    drive.give("a", y="a0")
    assert drive.give("b", y="b0") == ["ack b<1"]
    assert drive.give("b", y="b1") == ["ack b<2"]
    assert drive.give("c", y="c0") == ["ack a<1", "ack c<1"]


def test_start_that_waits_for_its_turn_counts_as_delivered() -> None:
    nodes = (node("p"), node("v", **SMALL), node("gen", is_session_ordered=True))
    drive = Driven(graph(nodes, "x>p.x p.y>v.x v.y>gen.x gen.y>out"))
    drive.admit(x="v")
    drive.run("p", "a", "b")
    assert drive.give("v#1", y="later") == ["ack v#1<1"]
    assert drive.give("v", y="first") == ["start gen main(x=first)"], "it is to be accepted by its replica"
    assert drive.accept("gen") == ["ack v<1"]


def test_yield_of_a_chunk_is_delivered_when_it_is_kept_and_the_last_when_the_chunk_is_accepted() -> None:
    spec = graph((node("a", **SMALL), node("b")), "x>a.x a.y>b.x b.y>out", chunks={"a.y>b.x": ChunkSpec(size=3)})
    drive = Driven(spec)
    drive.admit(x="v")
    assert drive.give("a", y=0) == ["ack a<1"]
    assert drive.give("a", y=1) == ["ack a<2"]
    assert drive.give("a", y=2) == ["start b main(x=0+1+2)"]
    assert drive.accept("b") == ["ack a<3"]


# --- one worker a node ------------------------------------------------------------------------------------------------


FAN_IN = graph(
    (
        node("a", yield_window=4),
        node("h", **SMALL),
        node("k", **SMALL),
        node("j", "h k", **SMALL),
    ),
    "x>a.x a.y>h.x a.y>k.x h.y>j.h k.y>j.k j.y>out",
)
ONE_ANCHOR = graph(
    (node("s"), node("a", yield_window=4), node("h", **SMALL), node("k", **SMALL), node("j", "h k", **SMALL)),
    "x>s.x s.y>a.x s.y>k.x a.y>h.x h.y>j.h k.y>j.k j.y>out",
)
GATED = graph(
    (node("a", yield_window=4), node("h", **SMALL), node("gen", is_session_ordered=True, **SMALL)),
    "x>a.x a.y>h.x h.y>gen.x gen.y>out",
)
THROUGH = graph((node("a", yield_window=4), node("h", **SMALL)), "x>a.x a.y>h.x h.y>out")


@pytest.mark.parametrize("is_latest_first", [True, False])
@pytest.mark.parametrize("spec", [FAN_IN, ONE_ANCHOR, GATED, THROUGH])
def test_window_cannot_deadlock_ordered_input(spec: GraphSpec, is_latest_first: bool) -> None:
    """One worker a node, window 1, the latest activation first: what is held does not keep its producer from ending."""
    script: Mapping[str, int] = {"s": 1, "a": 6, "h": 3, "k": 2, "j": 3, "gen": 2}
    player = Player(
        Driven(spec), lambda name, _: [f"{name}.{i}" for i in range(script[name.partition("#")[0]])], workers=1
    )
    player.pick = (lambda ready: ready[-1]) if is_latest_first else (lambda ready: ready[0])
    player.run(x="v")
    drive = player.drive
    assert drive.is_released
    assert drive.terminal is not None
    assert drive.commands[-2] is drive.terminal
    if spec is ONE_ANCHOR:
        made = [n for n in drive.starts if n.partition("#")[0] == "h"]
        made.sort(key=lambda name: drive.starts[name].origin_path)
        assert drive.starts["j"].fields["h"] == tuple(f"{name}.{i}" for name in made for i in range(3))
    assert len(drive.emitted) == {id(FAN_IN): 18, id(ONE_ANCHOR): 3, id(GATED): 36, id(THROUGH): 18}[id(spec)]


@pytest.mark.parametrize("seed", range(20))
def test_producers_of_one_consumer_do_not_block_each_other(seed: int) -> None:
    """Two producers feed the same two consumers, with full windows and one worker a node: all of it arrives."""
    nodes = (
        node("a", yield_window=8),
        node("b", yield_window=8),
        node("u", "one: p; two: q"),
        node("w", "one: p; two: q"),
    )
    edges = "x>a.x x>b.x a.y>u.one.p b.y>u.two.q a.y>w.one.p b.y>w.two.q u.y>out w.y>out"
    drive = Driven(graph(nodes, edges, outputs="", unordered="out"))
    player = Player(drive, lambda name, _: range(60) if name in ("a", "b") else ["y"], workers=1)
    player.pick = random.Random(seed).choice
    player.run(x="v")
    assert len(drive.emitted) == 4 * 60
    assert player.most_running <= 2 + 4 * 8 + 2, "what waits is bounded by the windows"


CHUNKED = graph(
    (node("s", yield_window=4), node("a", yield_window=2), node("b", **SMALL)),
    "x>s.x s.y>a.x a.y>b.x b.y>out",
    chunks={"a.y>b.x": ChunkSpec(size=3)},
)
COUNTED = graph(
    (node("a", yield_window=4), node("h", **SMALL), node("d", "img", counts="img=12", **SMALL)),
    "x>a.x a.y>h.x h.y>d.img d.y>out",
)


@pytest.mark.parametrize("limit", [10, 60, 130, 600])
@pytest.mark.parametrize(
    "spec",
    [THROUGH, FAN_IN, ONE_ANCHOR, GATED, CHUNKED, COUNTED],
    ids=["through", "fan in", "one anchor", "gated", "chunked", "counted"],
)
def test_full_stores_cannot_deadlock(spec: GraphSpec, limit: int) -> None:
    """One worker a node and stores that are too small: the call ends, if only because one join needs more than there is."""
    script: Mapping[str, int] = {"s": 3, "a": 6, "h": 3, "k": 2, "j": 3, "gen": 2, "b": 2, "d": 2}
    for seed in range(12):
        drive = Driven(spec, store_limit_bytes=limit)
        player = Player(drive, lambda name, _: [name] * script[name.partition("#")[0]], workers=1)
        player.size = 10
        player.pick = random.Random(seed).choice if seed % 2 else _eager_producer
        player.run(x="v")
        if isinstance(drive.terminal, FailCall):
            assert drive.error.reason is Reason.BUFFER_FULL


def _eager_producer(ready: list[str]) -> str:
    """The first producer as long as it can, then the latest of the rest."""
    return ready[0] if ready[0] in ("s", "a") else ready[-1]


# --- stores -----------------------------------------------------------------------------------------------------------


def stores(limit: int) -> Driven:
    """a -> {b, c} -> j with two anchor yields, in a call that may store `limit` bytes."""
    nodes = (node("a"), node("b", **SMALL), node("c", **SMALL), node("j", "b c"))
    drive = Driven(graph(nodes, "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>out"), store_limit_bytes=limit)
    drive.admit(x="v")
    drive.run("a", "a0", "a1")
    return drive


def test_store_over_its_limit_holds_producers_back_until_the_oldest_bucket_closes() -> None:
    drive = stores(100)
    assert drive.give("b", 60, y="b0") == ["ack b<1"]
    assert drive.give("b#1", 60, y="b1") == [], "the store is full"
    assert drive.give("b", 30, y="more") == ["ack b<2"], "the oldest bucket may go on"
    assert drive.scheduler.inspect().stored_bytes == 150
    drive.finish("b")
    ended = drive.run("c", "c0")
    assert "start j main(b=b0+more,c=c0)" in ended
    assert "ack b#1<1" in [*ended, *drive.accept("j")]
    assert drive.give("b#1", 30, y="goes on") == ["ack b#1<2"]


def test_store_that_one_bucket_overflows_fails_the_call() -> None:
    drive = stores(100)
    assert drive.give("b", 60, y="b0") == ["ack b<1"]
    assert drive.give("b", 41, y="too much") == ["cancel", "fail BUFFER_FULL"]
    assert drive.error.reason is Reason.BUFFER_FULL
    assert drive.error.code is Code.RESOURCE_EXHAUSTED
    assert drive.error.metadata["node"] == "j"


def test_store_that_one_chunk_overflows_fails_the_call() -> None:
    spec = graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out", chunks={"a.y>b.x": ChunkSpec(size=3)})
    drive = Driven(spec, store_limit_bytes=100)
    drive.admit(x="v")
    assert drive.give("a", 60, y=0) == []
    assert drive.give("a", 60, y=1) == ["cancel", "fail BUFFER_FULL"]
    assert drive.error.metadata["node"] == "b"


def test_store_at_its_limit_is_not_over_it() -> None:
    drive = stores(100)
    assert drive.give("b", 100, y="b0") == ["ack b<1"]


def test_start_that_waits_for_its_turn_takes_room_too() -> None:
    """Two starts wait; the second is too much, so its producer waits until the first has been taken in."""
    nodes = (node("v", **SMALL), node("gen", is_session_ordered=True))
    drive = Driven(graph(nodes, "x>v.x v.y>gen.x gen.y>out"), store_limit_bytes=300)
    drive.admit(x="v")
    drive.give("v", 10, y=0)
    assert drive.accept("gen") == ["ack v<1"]
    assert drive.give("v", 10, y=1) == ["ack v<2"]
    assert drive.give("v", 10, y=2) == []
    assert drive.scheduler.held_count == 2
    assert drive.finish("gen") == ["start gen#1 main(x=1)"]
    assert drive.accept("gen#1") == ["ack v<3"]


@pytest.mark.parametrize("role", ["worker", "other"])
def test_producer_goes_on_while_its_role_has_not_taken_something_in(role: str) -> None:
    """One worker may serve both nodes, so what it has not taken in may wait for the producer to end."""
    served: dict[str, Any] = {"is_inline": False, "role": "worker", **SMALL}
    nodes = (node("a"), node("b", **served), node("k", is_inline=False, role=role))
    spec = graph(nodes, "x>a.x a.y>b.x a.y>k.x b.y>out k.y>aside", unordered="aside")
    drive = Driven(spec, store_limit_bytes=100)
    drive.admit(x="v")
    drive.run("a", "a0", "a1")
    drive.accept("b")
    drive.accept("b#1")
    drive.accept("k")
    assert drive.give("b#1", 101, y="late") == (["ack b#1<1"] if role == "worker" else [])
    assert drive.accept("k#1") == []


def test_held_output_over_the_limit_waits_instead_of_failing() -> None:
    drive = Driven(graph((node("a"), node("b", **SMALL)), "x>a.x a.y>b.x b.y>out"), store_limit_bytes=100)
    drive.admit(x="v")
    drive.run("a", "a0", "a1")
    drive.accept("b")
    assert drive.give("b#1", 101, y="late") == []
    assert drive.run("b", "early") == ["emit out=early", "ack b<1", "emit out=late", "ack b#1<1"]


def test_held_output_does_not_wait_while_a_replica_has_not_taken_its_node_in() -> None:
    """The first b may stand behind the second in one worker's queue, so the second must be able to end."""
    drive = Driven(graph((node("a"), node("b", **SMALL)), "x>a.x a.y>b.x b.y>out"), store_limit_bytes=100)
    drive.admit(x="v")
    drive.run("a", "a0", "a1")
    assert drive.give("b#1", 101, y="late") == ["ack b#1<1"]
    assert drive.give("b#1", 99, y="more") == ["ack b#1<2"]
    assert drive.give("b#1", 1, y="too much") == ["cancel", "fail BUFFER_FULL"], "twice the limit is the end of it"


def test_held_output_far_over_the_limit_fails_the_call() -> None:
    drive = Driven(graph((node("a"), node("b", **SMALL)), "x>a.x a.y>b.x b.y>out"), store_limit_bytes=100)
    drive.admit(x="v")
    drive.run("a", "a0", "a1")
    assert drive.give("b#1", 201, y="late") == ["cancel", "fail BUFFER_FULL"]
    assert drive.error.metadata["output"] == "out"


def test_store_gives_back_what_its_call_has_used() -> None:
    drive = stores(100)
    drive.give("b", 50, y="b0")
    drive.finish("b")
    drive.run("c", "c0")
    drive.accept("j")
    assert drive.scheduler.inspect().stored_bytes == 0
    drive.give("b#1", 50, y="b1")
    assert drive.scheduler.inspect().stored_bytes == 50


def test_full_stores_let_a_producer_go_on_when_nobody_else_can() -> None:
    """The oldest bucket waits for a chunk that only its producer's next yield, or its end, can settle."""
    nodes = (
        node("a", "r s", outputs="y z", is_streaming=False),
        node("b", yield_window=2),
        node("c", is_streaming=False),
        node("j", "p q", is_streaming=False),
        node("d", "t u", counts="t=9", is_streaming=False, on_impossible=OnImpossible.SKIP),
    )
    edges = "r>a.r s>a.s a.y>b.x b.y>c.x c.y>j.p b.y>j.q a.z>d.t a.z>d.u j.y>out d.y>out"
    chunks = {"b.y>c.x": ChunkSpec(first=2, size=3)}
    drive = Driven(graph(nodes, edges, inputs="r s", chunks=chunks), store_limit_bytes=3000)
    drive.admit(r=1, s=2)
    drive.accept("a")
    drive.give("a", 1000, y=0, z=0)
    drive.finish("a")
    drive.accept("b")
    acks = drive.give("b", 1000, y=0)
    acks += drive(ActivationYielded(drive.starts["b"].activation_id, 1, {}, 1000))
    assert acks, "the window of b is full, and nothing else runs"
