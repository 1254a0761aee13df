"""Prefix joins: which contributions meet, when a bucket closes, and what becomes of one that lacks a field."""

from __future__ import annotations

from itertools import permutations

import pytest

from omniflow_core.graph.spec import GraphSpec, OnImpossible
from tests.core.scenarios.driven import BROKEN, Driven
from tests.support.graphs import graph, node

FIGURE_5 = graph(
    (node("a"), node("c"), node("d"), node("h"), node("k"), node("j", "h k")),
    "x>a.x a.y>c.x c.y>d.x c.y>k.x d.y>h.x h.y>j.h k.y>j.k j.y>out",
)
"""a -> c -> {d -> h, k} -> j"""


def diamond(joined: str = "b c", sources: str = "p q", on_impossible: OnImpossible = OnImpossible.FAIL) -> GraphSpec:
    """a -> {b, c} -> j, of which a can leave one out."""
    return graph(
        (node("a", outputs=sources), node("b"), node("c"), node("j", joined, on_impossible=on_impossible)),
        "x>a.x a.p>b.x a.q>c.x b.y>j.b c.y>j.c j.y>out",
    )


BOTH = {"p": "p", "q": "q"}


# --- grouping ---------------------------------------------------------------------------------------------------------


def test_figure5_h1_before_h0() -> None:
    drive = Driven(FIGURE_5)
    drive.admit(x="v")
    drive.run("a", "go")
    assert drive.give("c", y="c0") == ["start d main(x=c0)", "start k main(x=c0)"]
    assert drive.give("c", y="c1") == ["start d#1 main(x=c1)", "start k#1 main(x=c1)"]
    assert drive.run("d", "d0", "d1") == ["start h main(x=d0)", "start h#1 main(x=d1)"]
    assert drive.run("h#1", "h1") == []
    assert drive.run("k", "k0") == []
    assert drive.give("h", y="h0") == []
    assert drive.finish("h") == ["start j main(h=h0+h1,k=k0)"]
    assert drive.starts["j"].origin_path == (0, 0, 0)
    drive.run("d#1", "d2")
    drive.run("k#1", "k1")
    assert drive.run("h#2", "h2") == ["start j#1 main(h=h2,k=k1)"]
    assert drive.starts["j#1"].origin_path == (0, 0, 1)
    drive.finish("c")
    assert drive.run("j#1", "second") == []
    assert drive.run("j", "first") == ["emit out=first", "emit out=second", "finish stop", "release"]
    assert [event.origin_path for event in drive.emitted] == [(0, 0, 0, 0), (0, 0, 1, 0)]


@pytest.mark.parametrize("order", list(permutations(["b", "c", "b#1", "c#1"])))
def test_a1_source_repeats(order: tuple[str, ...]) -> None:
    drive = Driven(diamond())
    drive.admit(x="v")
    drive.run("a", {"p": "p0", "q": "q0"}, {"p": "p1", "q": "q1"})
    for name in order:
        drive.run(name, f"{name} y")
    assert drive.inputs_of("j") == [
        ((0, 0), {"b": ("b y",), "c": ("c y",)}),
        ((0, 1), {"b": ("b#1 y",), "c": ("c#1 y",)}),
    ]


@pytest.mark.parametrize("order", list(permutations(["b", "c"])))
def test_a1_intermediate_repeats(order: tuple[str, ...]) -> None:
    drive = Driven(diamond())
    drive.admit(x="v")
    drive.run("a", BOTH)
    given = {"b": ["b0", "b1"], "c": ["c0", "c1", "c2"]}
    drive.run(order[0], *given[order[0]])
    assert drive.run(order[1], *given[order[1]]) == ["start j main(b=b0+b1,c=c0+c1+c2)"]
    assert drive.inputs_of("j") == [((0, 0), {"b": ("b0", "b1"), "c": ("c0", "c1", "c2")})]


@pytest.mark.parametrize("order", list(permutations(["b", "c", "b#1", "c#1"])))
def test_a1_both_repeat(order: tuple[str, ...]) -> None:
    drive = Driven(diamond())
    drive.admit(x="v")
    drive.run("a", BOTH, BOTH)
    given = {"b": ["b0", "b1"], "c": ["c0"], "b#1": ["b2", "b3", "b4"], "c#1": ["c1", "c2"]}
    for name in order:
        drive.run(name, *given[name])
    assert drive.inputs_of("j") == [
        ((0, 0), {"b": ("b0", "b1"), "c": ("c0",)}),
        ((0, 1), {"b": ("b2", "b3", "b4"), "c": ("c1", "c2")}),
    ]


def test_list_fed_by_two_routes_is_concatenated_in_edge_order() -> None:
    nodes = (node("a"), node("b"), node("c"), node("j", "p"))
    drive = Driven(graph(nodes, "x>a.x a.y>b.x a.y>c.x c.y>j.p b.y>j.p j.y>out"))
    drive.admit(x="v")
    drive.run("a", "go")
    drive.run("b", "b0", "b1")
    assert drive.run("c", "c0", "c1") == ["start j main(p=c0+c1+b0+b1)"]


def test_field_fed_twice_by_one_source_needs_one_of_them() -> None:
    spec = graph((node("a", outputs="y z"), node("b")), "x>a.x a.z>b.x a.y>b.x b.y>out")
    drive = Driven(spec)
    drive.admit(x="v")
    assert drive.give("a", y="y") == ["start b main(x=y)"]
    assert drive.give("a", y="y", z="z") == ["start b#1 main(x=z+y)"]


def test_join_of_an_input_and_what_is_made_from_it() -> None:
    """Each value of an open input meets only what descends from itself."""
    nodes = (node("a"), node("j", "p q"))
    drive = Driven(graph(nodes, "s>a.x s>j.q a.y>j.p j.y>out", inputs="", streaming="s"))
    drive.admit()
    assert drive.push("s", "s0") == ["start a main(x=s0)"]
    assert drive.push("s", "s1", last=True) == ["start a#1 main(x=s1)"]
    assert drive.run("a#1", "a1") == ["start j main(p=a1,q=s1)"]
    assert drive.run("a", "a0") == ["start j#1 main(p=a0,q=s0)"]
    assert [drive.starts[name].origin_path for name in ("j", "j#1")] == [(1,), (0,)]
    drive.run("j", "second")
    assert drive.run("j#1", "first") == ["emit out=first", "emit out=second", "finish stop", "release"]


def test_join_of_single_inputs_runs_once_a_call() -> None:
    nodes = (node("a"), node("b"), node("j", "p q r"))
    drive = Driven(graph(nodes, "x>a.x z>b.x a.y>j.p b.y>j.q z>j.r j.y>out", inputs="x z"))
    assert drive.admit(x="x", z="z") == ["start a main(x=x)", "start b main(x=z)"]
    drive.run("b", "b0", "b1")
    assert drive.run("a", "a0") == ["start j main(p=a0,q=b0+b1,r=z)"]
    assert drive.starts["j"].origin_path == (0,)


def test_contributions_are_ordered_outermost_first() -> None:
    """The second yield of the first d comes before the first yield of the second d."""
    nodes = (node("a"), node("c"), node("d"), node("h"), node("k"), node("j", "h k"))
    drive = Driven(graph(nodes, "x>a.x a.y>c.x a.y>k.x c.y>d.x d.y>h.x h.y>j.h k.y>j.k j.y>out"))
    drive.admit(x="v")
    drive.run("a", "go")
    drive.run("k", "k")
    drive.run("c", "c0", "c1")
    drive.run("d#1", "d2", "d3")
    drive.run("d", "d0", "d1")
    made_from = {drive.starts[name].fields["x"][0]: name for name in ("h", "h#1", "h#2", "h#3")}
    for value in ("d3", "d1", "d2"):
        drive.run(made_from[value], f"{value}/0", f"{value}/1")
    assert drive.run(made_from["d0"], "d0/0") == ["start j main(h=d0/0+d1/0+d1/1+d2/0+d2/1+d3/0+d3/1,k=k)"]


# --- closure ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["a", "b"])
def test_branch_not_taken(first: str) -> None:
    """The step in which the last lease closes says so; it is the finish of b, whatever a still does."""
    drive = Driven(diamond())
    drive.admit(x="v")
    drive.give("a", p="p")
    if first == "a":
        drive.finish("a")
    assert drive.give("b", y="b0") == []
    expected = ["fail IMPOSSIBLE_INPUT", "release"] if first == "a" else ["cancel", "fail IMPOSSIBLE_INPUT"]
    assert drive.finish("b") == expected
    assert drive.error.metadata == {"node": "j", "group": "main", "missing": "c", "path": "0.0"}
    assert drive.error.code.name == "FAILED_PRECONDITION"
    assert "j" in drive.error.message
    assert "c" in drive.error.message


@pytest.mark.parametrize("last", ["b", "c"])
def test_branch_yields_zero_times(last: str) -> None:
    drive = Driven(diamond())
    drive.admit(x="v")
    drive.run("a", BOTH)
    given = {"b": ["b0"], "c": []}
    first = "c" if last == "b" else "b"
    assert drive.run(first, *given[first]) == []
    assert drive.run(last, *given[last]) == ["fail IMPOSSIBLE_INPUT", "release"]
    assert drive.error.metadata == {"node": "j", "group": "main", "missing": "c", "path": "0.0"}


def test_branch_raises() -> None:
    """A branch that fails is a failure, not a missing field."""
    drive = Driven(diamond())
    drive.admit(x="v")
    drive.run("a", BOTH)
    drive.run("b", "b0")
    assert drive.fail("c") == ["fail INTERFACE_FAILED", "release"]
    assert drive.error == BROKEN


def test_optional_field_skipped() -> None:
    drive = Driven(diamond("b c?"))
    drive.admit(x="v")
    drive.run("a", BOTH, {"p": "p"})
    drive.run("b", "b0")
    assert drive.run("c") == ["start j main(b=b0)"]
    assert drive.run("b#1", "b1") == ["start j#1 main(b=b1)"]


def test_optional_field_of_a_single_source_skipped() -> None:
    spec = graph((node("a", outputs="y z"), node("b", inputs="p q?")), "x>a.x a.y>b.p a.z>b.q b.y>out")
    drive = Driven(spec)
    drive.admit(x="v")
    assert drive.give("a", y="w") == ["start b main(p=w)"]


@pytest.mark.parametrize(("given", "missing"), [({"y": 1}, "q"), ({"z": 1}, "p,r")])
def test_partial_yield_is_impossible(given: dict[str, int], missing: str) -> None:
    spec = graph((node("a", outputs="y z"), node("b", inputs="p q r")), "x>a.x a.y>b.p a.z>b.q a.y>b.r b.y>out")
    drive = Driven(spec)
    drive.admit(x="v")
    assert drive.give("a", **given) == ["cancel", "fail IMPOSSIBLE_INPUT"]
    assert drive.error.metadata == {"node": "b", "group": "main", "missing": missing, "path": "0.0"}


def test_on_impossible_skip_passes_on() -> None:
    """The join m waits for j, which becomes impossible and passes on as skipped, so m runs without it."""
    j = node("j", "d e", on_impossible=OnImpossible.SKIP)
    nodes = (node("a"), node("b", outputs="p q"), node("c"), node("d"), node("e"), j, node("m", "j? c"))
    edges = "x>a.x a.y>b.x a.y>c.x b.p>d.x b.q>e.x d.y>j.d e.y>j.e j.y>m.j c.y>m.c m.y>out"
    drive = Driven(graph(nodes, edges))
    drive.admit(x="v")
    drive.run("a", "go")
    drive.run("c", "c0")
    drive.run("b", {"p": "p"})
    assert drive.run("d", "d0") == ["start m main(c=c0)"]
    assert drive.run("m", "r") == ["emit out=r", "finish stop", "release"]


def test_partial_yield_of_a_single_source_passes_on_when_its_node_says_so() -> None:
    b = node("b", inputs="p q", on_impossible=OnImpossible.SKIP)
    drive = Driven(graph((node("a", outputs="y z"), b), "x>a.x a.y>b.p a.z>b.q b.y>out"))
    drive.admit(x="v")
    assert drive.run("a", {"y": "w"}) == ["finish stop", "release"]


def test_figure4_text_frame_leaves_image_group_vacant() -> None:
    gen = node("gen", "text: emb; image: vit vae")
    nodes = (node("parser", outputs="text image"), node("embed"), node("vit"), node("vae"), gen)
    edges = (
        "x>parser.x parser.text>embed.x embed.y>gen.emb parser.image>vit.x parser.image>vae.x "
        "vit.y>gen.vit vae.y>gen.vae gen.y>out"
    )
    drive = Driven(graph(nodes, edges))
    drive.admit(x="v")
    assert drive.give("parser", text="t") == ["start embed main(x=t)"]
    assert drive.run("embed", "e") == ["start gen text(emb=e)"]
    assert drive.scheduler.open_buckets == 0
    assert drive.give("parser", image="i") == ["start vit main(x=i)", "start vae main(x=i)"]
    drive.finish("parser")
    drive.run("vae", "latent")
    assert drive.run("vit", "embedding") == ["start gen#1 image(vae=latent,vit=embedding)"]
    drive.run("gen", "one")
    assert drive.run("gen#1", "two") == ["emit out=two", "finish stop", "release"]


def test_join_that_nothing_reaches_neither_runs_nor_fails() -> None:
    drive = Driven(diamond())
    drive.admit(x="v")
    drive.run("a", BOTH)
    assert drive.run("b") == []
    assert drive.run("c", {}) == ["finish stop", "release"]
    assert drive.leftovers == {}


# --- what does not hold a bucket --------------------------------------------------------------------------------------


def test_late_anchor_does_not_block() -> None:
    """The first bucket closes while its anchor goes on and the second one is open."""
    drive = Driven(diamond())
    drive.admit(x="v")
    drive.give("a", p="p0", q="q0")
    drive.give("a", p="p1", q="q1")
    drive.give("b#1", y="b1")
    drive.run("b", "b0")
    assert drive.run("c", "c0") == ["start j main(b=b0,c=c0)"]
    assert {"a", "b#1", "c#1"} <= drive.running.keys()
    assert drive.scheduler.open_buckets == 1


def test_unrelated_work_does_not_hold_bucket() -> None:
    """u and w run below the same yields as the bucket's contributions, but lead to no input of j."""
    nodes = (node("a"), node("b"), node("c"), node("u"), node("w"), node("j", "b c"))
    edges = "x>a.x a.y>b.x a.y>c.x a.y>u.x b.y>w.x b.y>j.b c.y>j.c u.y>out w.y>out j.y>out"
    drive = Driven(graph(nodes, edges, outputs="", unordered="out"))
    drive.admit(x="v")
    drive.run("a", "go")
    assert drive.run("b", "b0") == ["start w main(x=b0)"]
    assert drive.run("c", "c0") == ["start j main(b=b0,c=c0)"]
    assert drive.running.keys() == {"u", "w", "j"}
    assert drive.scheduler.lease_count == 0


def test_bucket_id_fixed_while_lcp_changes() -> None:
    """The common prefix shrinks from d's yield to c's with each contribution; the bucket stays."""
    drive = Driven(FIGURE_5)
    drive.admit(x="v")
    drive.run("a", "go")
    drive.give("c", y="c0")
    drive.run("d", "d0", "d1")
    seen = []
    for name, value in (("h#1", "h1"), ("h", "h0"), ("k", "k0")):
        drive.give(name, y=value)
        (bucket,) = drive.scheduler.inspect().buckets
        seen.append((bucket.bucket_id, bucket.node, bucket.group, bucket.kind, bucket.anchor_path, dict(bucket.fields)))
    bucket_id = seen[0][0]
    assert seen == [
        (bucket_id, "j", "main", "prefix", (0, 0, 0), {"h": 1}),
        (bucket_id, "j", "main", "prefix", (0, 0, 0), {"h": 2}),
        (bucket_id, "j", "main", "prefix", (0, 0, 0), {"h": 2, "k": 1}),
    ]


def test_output_path_of_a_join_is_what_all_contributions_share() -> None:
    """Both contributions descend from one yield of b, which is more than the anchor a."""
    nodes = (node("a", outputs="p q"), node("b"), node("c"), node("d"), node("e"), node("j", "c? d e"))
    edges = "x>a.x a.p>b.x a.q>c.x b.y>d.x b.y>e.x c.y>j.c d.y>j.d e.y>j.e j.y>out"
    drive = Driven(graph(nodes, edges))
    drive.admit(x="v")
    drive.run("a", {}, {"p": "p"})
    drive.run("b", "b0")
    drive.run("d", "d0")
    assert drive.run("e", "e0") == ["start j main(d=d0,e=e0)"]
    assert drive.starts["j"].origin_path == (0, 1, 0)
    drive.run("j", "r")
    assert [event.origin_path for event in drive.emitted] == [(0, 1, 0, 0)]


def test_nested_diamonds() -> None:
    """The inner join runs once per yield of b, the outer one once per yield of a; paths keep the outer anchor."""
    nodes = (node("a"), node("b"), node("c"), node("d"), node("e"), node("i", "d e"), node("j", "i c"))
    edges = "x>a.x a.y>b.x a.y>c.x b.y>d.x b.y>e.x d.y>i.d e.y>i.e i.y>inner i.y>j.i c.y>j.c j.y>outer"
    drive = Driven(graph(nodes, edges, outputs="outer", unordered="inner"))
    drive.admit(x="v")
    drive.run("a", "a0", "a1")
    for name in ("c#1", "c"):
        drive.run(name, name)
    drive.run("b", "b0", "b1")
    drive.run("b#1", "b2")
    for name in ("e#2", "d#1", "d#2", "e", "e#1", "d"):
        drive.run(name, name)
    assert drive.inputs_of("i") == [
        ((0, 0, 0), {"d": ("d",), "e": ("e",)}),
        ((0, 0, 1), {"d": ("d#1",), "e": ("e#1",)}),
        ((0, 1, 0), {"d": ("d#2",), "e": ("e#2",)}),
    ]
    of_path = {start.origin_path: name for name, start in drive.starts.items() if start.node.name == "i"}
    drive.run(of_path[0, 0, 1], "i1")
    drive.run(of_path[0, 1, 0], "i2")
    drive.run(of_path[0, 0, 0], "i0")
    assert {event.origin_path for event in drive.emitted} == {(0, 0, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0)}
    assert drive.inputs_of("j") == [
        ((0, 0), {"i": ("i0", "i1"), "c": ("c",)}),
        ((0, 1), {"i": ("i2",), "c": ("c#1",)}),
    ]


def test_impossible_join_names_the_yield_that_it_lacks() -> None:
    """Only the second yield of a leaves c out: the error says which."""
    drive = Driven(diamond())
    drive.admit(x="v")
    drive.run("a", BOTH, {"p": "p"})
    assert drive.run("b#1", "b1") == ["cancel", "fail IMPOSSIBLE_INPUT"]
    assert drive.error.metadata["path"] == "0.1"
