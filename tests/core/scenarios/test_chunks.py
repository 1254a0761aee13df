"""Chunk policies: which yields a consumer is given together, and what it is given at the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from omniflow_core.control.commands import Facet
from omniflow_core.graph.spec import ChunkSpec, GraphSpec, OnFailure
from tests.core.scenarios.driven import Driven
from tests.support.graphs import graph, node


def chunked(**policy: int | bool) -> GraphSpec:
    """a -> b in chunks"""
    policy_spec = ChunkSpec(**policy)  # type: ignore[arg-type]
    return graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out", chunks={"a.y>b.x": policy_spec})


def facets_of(drive: Driven, node_name: str = "b") -> list[Facet]:
    return [start.facets[0] for start in drive.starts.values() if start.node.name == node_name]


def chunks_of(count: int, **policy: int | bool) -> list[tuple[object, ...]]:
    """What b is given of `count` yields of a."""
    drive = Driven(chunked(**policy))
    drive.admit(x="v")
    drive.run("a", *range(count))
    return [facet.fields["x"] for facet in facets_of(drive)]


def test_chunks_sliding() -> None:
    """Each chunk is given with its last yield, has the path of that yield, and every value its own path."""
    drive = Driven(chunked(size=4, stride=2))
    drive.admit(x="v")
    started = [drive.give("a", y=i) for i in range(9)]
    assert started == [
        *([[]] * 3),
        ["start b main(x=0+1+2+3)"],
        [],
        ["start b#1 main(x=2+3+4+5)"],
        [],
        ["start b#2 main(x=4+5+6+7)"],
        [],
    ]
    assert drive.finish("a") == ["start b#3 main(x=6+7+8)"]
    assert [start.origin_path for start in drive.starts.values()] == [(0,), (0, 3), (0, 5), (0, 7), (0, 8)]
    assert facets_of(drive)[1] == Facet(
        "main", {"x": (2, 3, 4, 5)}, {"x": ((0, 2), (0, 3), (0, 4), (0, 5))}, facets_of(drive)[1].context
    )
    assert [sum(facet.context.values()) for facet in facets_of(drive)] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("policy", "count", "expected"),
    [
        ({"size": 2}, 4, [(0, 1), (2, 3)]),
        ({"size": 1}, 3, [(0,), (1,), (2,)]),
        ({"first": 1, "size": 3}, 7, [(0,), (1, 2, 3), (4, 5, 6)]),
        ({"first": 5, "size": 2}, 9, [(0, 1, 2, 3, 4), (5, 6), (7, 8)]),
        ({"first": 2, "size": 4, "stride": 2}, 6, [(0, 1), (0, 1, 2, 3), (2, 3, 4, 5)]),
        ({"size": 4, "stride": 2}, 8, [(0, 1, 2, 3), (2, 3, 4, 5), (4, 5, 6, 7)]),
        ({"size": 4, "stride": 1}, 6, [(0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5)]),
    ],
)
def test_chunks_follow_first_size_and_stride(
    policy: dict[str, int], count: int, expected: list[tuple[int, ...]]
) -> None:
    assert chunks_of(count, **policy) == expected


@pytest.mark.parametrize("context", [0, 1, 2, 5])
@pytest.mark.parametrize("policy", [{"size": 3}, {"size": 1}, {"first": 1, "size": 4}, {"first": 4, "size": 2}])
@pytest.mark.parametrize("count", [1, 4, 8, 13])
def test_chunks_left_context_matches_offline(policy: dict[str, int], context: int, count: int) -> None:
    """A causal filter over `context` earlier values gives, chunk by chunk, what it gives over the whole."""
    drive = Driven(chunked(left_context=context, **policy))
    drive.admit(x="v")
    inputs = [i * i for i in range(count)]
    drive.run("a", *inputs)
    given: list[int] = []
    for facet in facets_of(drive):
        repeats = facet.context.get("x", 0)
        assert repeats == min(context, len(given))
        given += moving_sums([int(str(v)) for v in facet.fields["x"]], context)[repeats:]
    assert given == moving_sums(inputs, context)


def moving_sums(values: Sequence[int], context: int) -> list[int]:
    return [sum(values[max(0, i - context) : i + 1]) for i in range(len(values))]


@pytest.mark.parametrize(
    ("policy", "count", "tail"),
    [
        ({"size": 3}, 7, (6,)),
        ({"size": 3}, 8, (6, 7)),
        ({"size": 3}, 9, None),
        ({"size": 3}, 0, None),
        ({"size": 3}, 2, (0, 1)),
        ({"size": 4, "stride": 2}, 9, (6, 7, 8)),
        ({"size": 4, "stride": 2}, 8, None),
        ({"first": 5, "size": 2}, 3, (0, 1, 2)),
        ({"size": 3, "left_context": 2}, 7, (4, 5, 6)),
    ],
)
def test_chunks_flush_tail(policy: dict[str, int], count: int, tail: tuple[int, ...] | None) -> None:
    """The rest is given at the end of the producer when it holds a yield that no chunk has held."""
    drive = Driven(chunked(**policy))
    drive.admit(x="v")
    for i in range(count):
        drive.give("a", y=i)
    before = len(facets_of(drive))
    drive.finish("a")
    assert [facet.fields["x"] for facet in facets_of(drive)[before:]] == ([tail] if tail else [])
    whole = len(facets_of(drive))
    drive = Driven(chunked(flush=False, **policy))
    drive.admit(x="v")
    drive.run("a", *range(count))
    assert len(facets_of(drive)) == whole - (tail is not None)


def test_chunks_flush_tail_of_a_call_that_has_nothing_else() -> None:
    drive = Driven(chunked(size=3))
    drive.admit(x="v")
    assert drive.run("a", 0) == ["start b main(x=0)"]
    assert drive.run("b", "r") == ["emit out=r", "finish stop", "release"]
    assert drive.emitted[0].origin_path == (0, 0, 0)


def test_chunks_that_are_not_flushed_are_dropped() -> None:
    drive = Driven(chunked(size=3, flush=False))
    drive.admit(x="v")
    assert drive.run("a", 0, 1) == ["finish stop", "release"]


def continuing() -> GraphSpec:
    """a -> b in chunks of two; b goes on by itself when a has ended."""
    b = node("b", "main: x?; more: z", outputs="y again", loop_bound=20)
    return graph(
        (node("a"), b),
        "x>a.x a.y>b.main.x b.again>b.more.z b.y>out",
        chunks={"a.y>b.main.x": ChunkSpec(size=2, continues=True)},
    )


def test_chunks_drain_continue() -> None:
    drive = Driven(continuing())
    drive.admit(x="v")
    assert drive.run("a", 0, 1, 2) == [
        "start b main(x=0+1)",
        "start b#1 main(x=2)",
        "start b#2 main()",
    ]
    assert drive.starts["b#2"].facets[0].fields == {}
    assert [start.origin_path for start in drive.starts.values()] == [(0,), (0, 1), (0, 2), (0, 3)]
    assert drive.run("b#2", {"y": "d0", "again": 1}) == ["start b#3 more(z=1)"]
    assert drive.run("b#3", {"y": "d1", "again": 2}) == ["start b#4 more(z=2)"]
    assert drive.run("b#4", "d2") == []
    assert drive.run("b", "p0") == ["emit out=p0"]
    assert drive.run("b#1", "p1") == [
        *(f"emit out={value}" for value in ("p1", "d0", "d1", "d2")),
        "finish stop",
        "release",
    ]


def test_chunks_drain_of_two_consumers_has_no_order_between_them() -> None:
    """Both go on below the one place after the producer's last yield, so neither holds up what the other gives."""
    nodes = [node(name, "main: x?; more: z", outputs="y again", loop_bound=20) for name in ("b", "c")]
    policy = ChunkSpec(size=1, continues=True)
    edges = "x>a.x a.y>b.main.x a.y>c.main.x b.again>b.more.z c.again>c.more.z b.y>out c.y>out"
    drive = Driven(graph((node("a"), *nodes), edges, chunks={"a.y>b.main.x": policy, "a.y>c.main.x": policy}))
    drive.admit(x="v")
    assert drive.run("a", 0) == ["start b main(x=0)", "start c main(x=0)", "start b#1 main()", "start c#1 main()"]
    drive.run("b", "b0")
    drive.run("c", "c0")
    assert drive.run("c#1", "c1") == ["emit out=c1"]
    assert drive.run("b#1", "b1") == ["emit out=b1", "finish stop", "release"]


def test_chunks_drain_of_a_producer_that_gave_nothing_is_skipped() -> None:
    drive = Driven(continuing())
    drive.admit(x="v")
    assert drive.run("a", {}, {}) == ["finish stop", "release"]


def test_chunk_never_spans_two_activations_of_its_producer() -> None:
    spec = graph(
        (node("s"), node("a"), node("b")),
        "x>s.x s.y>a.x a.y>b.x b.y>out",
        chunks={"a.y>b.x": ChunkSpec(size=2)},
    )
    drive = Driven(spec)
    drive.admit(x="v")
    drive.run("s", "s0", "s1")
    for i in range(3):
        drive.give("a", y=f"p{i}")
        drive.give("a#1", y=f"q{i}")
    drive.finish("a#1")
    drive.finish("a")
    assert [facet.fields["x"] for facet in facets_of(drive)] == [("p0", "p1"), ("q0", "q1"), ("q2",), ("p2",)]


def test_chunk_counts_only_yields_that_carry_its_fields() -> None:
    spec = graph(
        (node("a", outputs="y z w"), node("b", "p q?")),
        "x>a.x a.y>b.p a.z>b.q a.w>side b.y>out",
        outputs="out side",
        chunks={"a.y>b.p": ChunkSpec(size=2), "a.z>b.q": ChunkSpec(size=2)},
    )
    drive = Driven(spec)
    drive.admit(x="v")
    drive.give("a", y=0, z=0)
    assert drive.give("a", w="w") == ["emit side=w"]
    assert drive.give("a") == []
    assert drive.give("a", y=1) == ["start b main(p=0+1,q=0)"]
    paths = drive.starts["b"].facets[0].paths
    assert paths == {"p": ((0, 0), (0, 3)), "q": ((0, 0),)}


def test_chunk_yield_without_a_required_field_is_impossible() -> None:
    spec = graph(
        (node("a", outputs="y z"), node("b", "p q")),
        "x>a.x a.y>b.p a.z>b.q b.y>out",
        chunks={"a.y>b.p": ChunkSpec(size=2), "a.z>b.q": ChunkSpec(size=2)},
    )
    drive = Driven(spec)
    drive.admit(x="v")
    assert drive.give("a", y=0) == ["cancel", "fail IMPOSSIBLE_INPUT"]
    assert drive.error.metadata["missing"] == "q"


def test_chunk_rest_is_given_when_a_producer_that_may_fail_has_failed() -> None:
    spec = graph(
        (node("a", on_failure=OnFailure.SKIP), node("b")),
        "x>a.x a.y>b.x b.y>out",
        chunks={"a.y>b.x": ChunkSpec(size=2)},
    )
    drive = Driven(spec)
    drive.admit(x="v")
    for i in range(3):
        drive.give("a", y=i)
    assert drive.fail("a") == ["start b#1 main(x=2)"]


def test_chunk_consumer_is_tracked_by_the_joins_below_it() -> None:
    """The rest of a producer still contributes to a bucket: it does not close with the producer."""
    spec = graph(
        (node("s"), node("a"), node("b"), node("c"), node("j", "b c")),
        "x>s.x s.y>a.x s.y>c.x a.y>b.x b.y>j.b c.y>j.c j.y>out",
        chunks={"a.y>b.x": ChunkSpec(size=2)},
    )
    drive = Driven(spec)
    drive.admit(x="v")
    drive.run("s", "s0")
    drive.run("c", "c0")
    for i in range(3):
        drive.give("a", y=i)
    drive.run("b", "b0")
    assert drive.finish("a") == ["start b#1 main(x=2)"]
    assert drive.run("b#1", "b1") == ["start j main(b=b0+b1,c=c0)"]
    assert drive.starts["j"].origin_path == (0, 0)


def test_chunks_of_an_input_are_flushed_when_it_ends_though_others_go_on() -> None:
    spec = graph((node("a"),), "s>a.x t>out a.y>out", inputs="", streaming="s t", chunks={"s>a.x": ChunkSpec(size=2)})
    drive = Driven(spec)
    drive.admit()
    assert drive.push("s", 0) == []
    assert drive.push("s", last=True) == ["start a main(x=0)"]
    assert drive.push("t", "t0") == [], "it comes after what the input before it leads to"
    assert drive.run("a", "a0") == ["emit out=a0", "emit out=t0"]
    assert drive.push("t", last=True) == ["finish stop", "release"]


def test_chunk_whose_start_is_held_at_a_gate_does_not_hold_up_its_producer() -> None:
    nodes = (node("a", yield_window=1), node("b", is_session_ordered=True))
    spec = graph(nodes, "x>a.x a.y>b.x b.y>out", chunks={"a.y>b.x": ChunkSpec(size=1)})
    drive = Driven(spec)
    drive.admit(x="v")
    assert drive.give("a", y=0) == ["start b main(x=0)"], "not acknowledged: its replica has not accepted"
    assert drive.accept("b") == ["ack a<1"]
    assert drive.give("a", y=1) == ["ack a<2"], "held until b has ended"
    assert drive.run("b", "b0") == ["emit out=b0", "start b#1 main(x=1)"]
