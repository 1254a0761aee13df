"""Cycles: iterations stay apart, and an iteration starts as soon as its inputs are there."""

from __future__ import annotations

from typing import Any

from omniflow_core.graph.spec import GraphSpec
from tests.core.scenarios.driven import Driven
from tests.support.graphs import graph, node


def round_diamond(**options: Any) -> GraphSpec:
    """a -> {b, c} -> j -> a, at most ten times."""
    a = node("a", "first: x; more: z", loop_bound=10, **options)
    nodes = (a, node("b"), node("c"), node("j", "b c", outputs="y again"))
    return graph(nodes, "x>a.first.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.again>a.more.z j.y>out")


def test_diamond_inside_loop() -> None:
    drive = Driven(round_diamond())
    assert drive.admit(x="v") == ["start a first(x=v)"]
    for i in range(3):
        name = f"#{i}" if i else ""
        drive.run(f"a{name}", f"a{i}")
        order = ("b", "c") if i % 2 else ("c", "b")
        assert drive.run(order[0] + name, f"{order[0]}{i}") == []
        assert drive.run(order[1] + name, f"{order[1]}{i}") == [f"start j{name} main(b=b{i},c=c{i})"]
        if i < 2:
            assert drive.run(f"j{name}", {"again": i}) == [f"start a#{i + 1} more(z={i})"]
    assert drive.run("j#2", "r") == ["emit out=r", "finish stop", "release"]
    assert [start.origin_path for start in drive.starts.values() if start.node.name == "j"] == [
        (0, 0),
        (0, 0, 0, 0),
        (0, 0, 0, 0, 0, 0),
    ]


def test_diamond_inside_loop_keeps_iterations_apart_that_run_at_once() -> None:
    """j asks twice for another round; the two rounds answer crosswise."""
    drive = Driven(round_diamond())
    drive.admit(x="v")
    drive.run("a", "a0")
    drive.run("b", "b0")
    drive.run("c", "c0")
    assert drive.run("j", {"again": 1}, {"again": 2}) == ["start a#1 more(z=1)", "start a#2 more(z=2)"]
    drive.run("a#2", "a2")
    drive.run("a#1", "a1")
    of_round = {
        (start.node.name, start.fields["x"][0]): name
        for name, start in drive.starts.items()
        if start.node.name in ("b", "c")
    }
    drive.run(of_round["b", "a1"], "b1")
    drive.run(of_round["c", "a2"], "c2")
    assert drive.scheduler.open_buckets == 2
    drive.run(of_round["b", "a2"], "b2")
    drive.run(of_round["c", "a1"], "c1")
    assert drive.inputs_of("j") == [
        ((0, 0), {"b": ("b0",), "c": ("c0",)}),
        ((0, 0, 0, 0), {"b": ("b1",), "c": ("c1",)}),
        ((0, 0, 1, 0), {"b": ("b2",), "c": ("c2",)}),
    ]


def test_next_iteration_inputs_complete_early() -> None:
    """The inputs of the next round are there while everything of this round still runs: no further event is needed."""
    drive = Driven(round_diamond())
    drive.admit(x="v")
    drive.give("a", y="a0")
    drive.run("b", "b0")
    drive.run("c", "c0")
    assert drive.give("j", again="z") == ["start a#1 more(z=z)"]
    assert drive.give("a#1", y="a1") == ["start b#1 main(x=a1)", "start c#1 main(x=a1)"]
    drive.run("c#1", "c1")
    assert drive.run("b#1", "b1") == ["start j#1 main(b=b1,c=c1)"]
    assert drive.running.keys() == {"a", "a#1", "j", "j#1"}


def test_next_iteration_whose_inputs_are_early_runs_in_the_step_that_ends_the_last() -> None:
    drive = Driven(round_diamond(is_session_ordered=True))
    drive.admit(x="v")
    drive.give("a", y="a0")
    drive.run("b", "b0")
    drive.run("c", "c0")
    assert drive.give("j", again="z") == []
    assert drive.scheduler.held_count == 1
    assert drive.finish("a") == ["start a#1 more(z=z)"]


def test_nested_loop_inner_end_also_ends_outer() -> None:
    """One yield ends the inner and the outer loop: the outputs of both arrive, and the call ends."""
    outer = node("outer", "first: x; more: z", loop_bound=3)
    inner = node("inner", "first: x; more: z", outputs="y again up done", loop_bound=9)
    edges = (
        "x>outer.first.x outer.y>inner.first.x inner.again>inner.more.z inner.up>outer.more.z "
        "inner.y>step inner.done>end"
    )
    drive = Driven(graph((outer, inner), edges, outputs="step end"))
    drive.admit(x="v")
    assert drive.run("outer", "o0") == ["start inner first(x=o0)"]
    assert drive.run("inner", {"again": 1, "y": "s0"}) == ["emit step=s0", "start inner#1 more(z=1)"]
    assert drive.run("inner#1", {"up": 2, "y": "s1"}) == ["emit step=s1", "start outer#1 more(z=2)"]
    assert drive.run("outer#1", "o1") == ["start inner#2 first(x=o1)"]
    assert drive.run("inner#2", {"again": 3}) == ["start inner#3 more(z=3)"]
    assert drive.give("inner#3", y="s2", done="all") == ["emit step=s2", "emit end=all"]
    assert drive.finish("inner#3") == ["finish stop", "release"]
    assert [event.origin_path for event in drive.emitted] == [
        (0, 0, 0),
        (0, 0, 0, 0),
        (0, 0, 0, 0, 0, 0, 0),
        (0, 0, 0, 0, 0, 0, 0),
    ]


def test_loop_bound_of_a_join_counts_its_rounds() -> None:
    a = node("a", "first: x; more: z", loop_bound=2)
    nodes = (a, node("b"), node("c"), node("j", "b c", outputs="y again"))
    drive = Driven(graph(nodes, "x>a.first.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.again>a.more.z j.y>out"))
    drive.admit(x="v")
    for name in ("", "#1"):
        drive.run(f"a{name}", "a")
        drive.run(f"b{name}", "b")
        drive.run(f"c{name}", "c")
        commands = drive.give(f"j{name}", again=1)
    assert commands == ["cancel", "fail LOOP_BOUND_EXCEEDED"]
    assert drive.stop_all() == ["release"]
