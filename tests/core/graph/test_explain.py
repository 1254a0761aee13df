"""A plan as text."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from omniflow_core.graph.explain import explain
from omniflow_core.graph.plan import plan_graph
from omniflow_core.graph.spec import ChunkSpec, GraphSpec, OnFailure, OnImpossible, Replay
from tests.support.graphs import graph, node

DIAMOND = graph((node("a"), node("b"), node("c"), node("j", "p q")), "x>a.x a.y>b.x a.y>c.x b.y>j.p c.y>j.q j.y>out")


def lines(spec: GraphSpec) -> list[str]:
    return explain(plan_graph(spec)).splitlines()


def test_explain_tells_a_whole_graph() -> None:
    assert lines(DIAMOND) == [
        "graphs/test: 4 nodes, 6 edges, 5 dependency edges",
        "  input  x: TEXT",
        "  call starts a.main [single source] with x->x",
        "  node   a: test.a (inline, streaming)",
        "    takes main [single source: the call] x",
        "    each yield starts b.main [single source] with y->x",
        "    each yield starts c.main [single source] with y->x",
        "  node   b: test.b (inline, streaming)",
        "    takes main [single source: a] x",
        "    each yield joins into j.main [prefix join of a] with y->p",
        "  node   c: test.c (inline, streaming)",
        "    takes main [single source: a] x",
        "    each yield joins into j.main [prefix join of a] with y->q",
        "  node   j: test.j (inline, streaming)",
        "    takes main [prefix join below each yield of a]",
        "      route a > b gives p",
        "      route a > c gives q",
        "    each yield gives output out from y",
        "  output out: TEXT, ordered",
        "  dependencies (5)",
        "    call -> a.main",
        "    a -> b.main",
        "    a -> c.main",
        "    b -> j.main",
        "    c -> j.main",
    ]


def test_explain_tells_segments_and_pipelines() -> None:
    served: dict[str, Any] = {"is_inline": False, "role": "r"}
    nodes = (node("c", **served), node("a", **served), node("b", is_inline=False, role="s"), node("d", **served))
    shown = lines(graph(nodes, "x>a.x a.y>b.x b.y>p x>c.x c.y>d.x d.y>q", outputs="p q"))
    at = shown.index("  segment on role r: c > d")
    assert shown[at + 1] == "  pipeline (with control.pipelines): a > b"


def test_explain_tells_inputs_and_outputs() -> None:
    spec = graph((node("a", inputs="x? s?"),), "s>a.s a.y>out", inputs="", streaming="s", outputs="", unordered="out")
    shown = lines(spec)
    assert "  input  s: TEXT, streaming" in shown
    assert "  output out: TEXT, unordered" in shown


def test_explain_tells_a_count_join() -> None:
    counted = node("k", "img n# done", counts="img=n done=1")
    spec = graph((node("a", outputs="y n# z"), counted), "x>a.x a.y>k.img a.n>k.n a.z>k.done k.y>out")
    shown = lines(spec)
    assert "    takes main [count join over the whole call; img: as many as n says, done: 1]" in shown
    assert "      route a gives img, n, done" in shown
    assert "    each yield counts for k.main [count join] with y->img, n->n, z->done" in shown


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (ChunkSpec(size=4), "chunks of 4"),
        (ChunkSpec(size=4, first=4, stride=4), "chunks of 4"),
        (
            ChunkSpec(size=4, first=2, stride=3, left_context=1, flush=False),
            "chunks of 4, the first of 2, every 3, after 1 repeated, without the rest",
        ),
    ],
)
def test_explain_tells_a_chunk_policy(policy: ChunkSpec, text: str) -> None:
    spec = graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out", chunks={"a.y>b.x": policy})
    assert f"    takes main [single source: a, {text}] x" in lines(spec)


def test_explain_tells_a_loop_that_goes_on_without_its_chunks() -> None:
    loop = node("b", inputs="first: x?; more: z", outputs="y again", loop_bound=3)
    policy = ChunkSpec(size=2, continues=True)
    spec = graph((node("a"), loop), "x>a.x a.y>b.first.x b.again>b.more.z b.y>out", chunks={"a.y>b.first.x": policy})
    shown = lines(spec)
    assert "    takes first [single source: a, chunks of 2, then on without] x" in shown
    assert "  node   b: test.b (inline, streaming, at most 3 iterations)" in shown


def test_explain_tells_gates() -> None:
    nodes = tuple(dataclasses.replace(n, is_session_ordered=n.name == "j") for n in DIAMOND.nodes)
    assert "  gate   j: one activation of a session at a time" in lines(dataclasses.replace(DIAMOND, nodes=nodes))


def test_explain_tells_what_is_special_about_a_node() -> None:
    special = node(
        "a",
        is_inline=False,
        role="r",
        is_streaming=False,
        is_deterministic=True,
        is_spread=True,
        replay=Replay.RESTART,
        on_impossible=OnImpossible.SKIP,
        on_failure=OnFailure.SKIP,
        timeout_s=1.5,
    )
    shown = lines(graph((special,), "x>a.x a.y>out"))
    assert (
        "  node   a: test.a (role r, deterministic, spread, replay restart, skipped when incomplete, "
        "skipped when it fails, at most 1.5 s)" in shown
    )
