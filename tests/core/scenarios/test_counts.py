"""Count joins: which events are selected, what accompanies them, and when the join fires."""

from __future__ import annotations

from typing import Any

import pytest

from omniflow_core.graph.spec import GraphSpec, OnImpossible
from tests.core.scenarios.driven import Driven
from tests.support.graphs import graph, node


def collecting(
    inputs: str = "img n#", counts: str = "img=n", extra: str = "", outputs: str = "y n# z", **options: Any
) -> GraphSpec:
    """p -> v -> d.img, with the count from p; `extra` are further edges."""
    nodes = (node("p", outputs=outputs), node("v"), node("d", inputs, counts=counts, **options))
    return graph(nodes, f"x>p.x p.y>v.x p.n>d.n v.y>d.img d.y>out {extra}")


# --- counts -----------------------------------------------------------------------------------------------------------


def test_count_known_last() -> None:
    drive = Driven(collecting())
    drive.admit(x="v")
    drive.give("p", y="a")
    drive.give("p", y="b")
    assert drive.run("v", "i0") == []
    assert drive.run("v#1", "i1") == []
    assert drive.scheduler.open_buckets == 1
    assert drive.give("p", n=2) == ["start d main(img=i0+i1)"]
    assert drive.scheduler.open_buckets == 0
    assert drive.starts["d"].origin_path == (0,)


def test_count_known_first() -> None:
    drive = Driven(collecting())
    drive.admit(x="v")
    assert drive.give("p", n=2) == []
    drive.give("p", y="a")
    drive.give("p", y="b")
    assert drive.run("v", "i0") == []
    assert drive.give("v#1", y="i1") == ["start d main(img=i0+i1)"]
    drive.finish("p")
    drive.finish("v#1")
    assert drive.run("d", "r") == ["emit out=r", "finish stop", "release"]


@pytest.mark.parametrize("is_count_first", [True, False])
def test_count_zero_all(is_count_first: bool) -> None:
    """With a data event it fires once, on nothing."""
    drive = Driven(collecting())
    drive.admit(x="v")
    drive.give("p", y="a")
    drive.give("p", y="b")
    if is_count_first:
        assert drive.give("p", n=0) == []
        assert drive.give("v", y="i0") == ["start d"]
    else:
        assert drive.give("v", y="i0") == []
        assert drive.give("p", n=0) == ["start d"]
    assert drive.starts["d"].facets == ()
    assert drive.starts["d"].origin_path == ()
    assert drive.run("v#1", "i1") == []
    drive.finish("v")
    drive.finish("p")
    assert drive.run("d", "r") == ["emit out=r", "finish stop", "release"]


def test_count_zero_one_field() -> None:
    inputs, counts = "img aud n#", "img=n aud=0"
    drive = Driven(collecting(inputs, counts, "p.z>d.aud"))
    drive.admit(x="v")
    drive.give("p", y="a")
    drive.give("p", z="sound")
    assert drive.give("p", n=1) == []
    assert drive.give("v", y="i0") == ["start d main(img=i0)"]
    (facet,) = drive.starts["d"].facets
    assert facet.fields.get("aud", ()) == ()


def test_count_zero_unvisited_stays_idle() -> None:
    """The count alone activates nothing, and the call ends well."""
    drive = Driven(collecting())
    drive.admit(x="v")
    assert drive.give("p", n=0) == []
    assert drive.finish("p") == ["finish stop", "release"]


def test_count_zero_waits_for_completion() -> None:
    """No images are wanted, but the completion signal is: it fires when that comes."""
    drive = Driven(collecting("img done n#", "img=n done=1", "p.z>d.done"))
    drive.admit(x="v")
    assert drive.give("p", n=0) == []
    drive.give("p", y="a")
    assert drive.run("v", "i0") == []
    assert drive.scheduler.open_buckets == 1
    assert drive.give("p", z="finished") == ["start d main(done=finished)"]


def test_count_exceeded_freezes() -> None:
    """The first two that are admitted stay selected, though a later one sorts before both."""
    drive = Driven(collecting())
    drive.admit(x="v")
    for value in ("a", "b", "c"):
        drive.give("p", y=value)
    drive.run("v#2", "i2")
    drive.run("v#1", "i1")
    drive.run("v", "i0")
    assert drive.give("p", n=2) == ["start d main(img=i1+i2)"]


def test_count_exceeded_after_it_fired_changes_nothing() -> None:
    drive = Driven(collecting())
    drive.admit(x="v")
    drive.give("p", n=1)
    for value in ("a", "b"):
        drive.give("p", y=value)
    assert drive.run("v#1", "i1") == ["start d main(img=i1)"]
    assert drive.run("v", "i0") == []
    drive.finish("p")
    assert drive.run("d", "r") == ["emit out=r", "finish stop", "release"]


def test_count_never_reached() -> None:
    """Known once all work has closed; until then one more could come."""
    drive = Driven(collecting())
    drive.admit(x="v")
    drive.give("p", n=3)
    for value in ("a", "b"):
        drive.give("p", y=value)
    drive.run("v", "i0")
    drive.finish("p")
    drive.give("v#1", y="i1")
    assert drive.finish("v#1") == ["fail COUNT_NOT_REACHED", "release"]
    assert drive.error.metadata == {"node": "d", "field": "img", "have": "2", "want": "3"}
    for word in ("d", "img", "2", "3"):
        assert word in drive.error.message


def test_count_never_reached_passes_on_when_its_node_says_so() -> None:
    drive = Driven(collecting(on_impossible=OnImpossible.SKIP))
    drive.admit(x="v")
    drive.give("p", n=3)
    drive.give("p", y="a")
    drive.run("v", "i0")
    assert drive.finish("p") == ["finish stop", "release"]


def test_count_never_reached_without_a_data_event_is_nothing() -> None:
    drive = Driven(collecting())
    drive.admit(x="v")
    drive.give("p", n=3)
    drive.give("p", y="a")
    drive.finish("p")
    assert drive.run("v", {}) == ["finish stop", "release"]


def test_count_that_never_comes_fails_a_join_that_has_data() -> None:
    drive = Driven(collecting())
    drive.admit(x="v")
    drive.give("p", y="a")
    drive.run("v", "i0")
    assert drive.finish("p") == ["fail COUNT_NOT_REACHED", "release"]
    assert drive.error.metadata == {"node": "d", "field": "img", "have": "1", "want": "unknown"}


def test_count_conflict_is_error() -> None:
    drive = Driven(collecting())
    drive.admit(x="v")
    assert drive.give("p", n=2) == []
    assert drive.give("p", n=2) == [], "the same count twice is no conflict"
    assert drive.give("p", n=3) == ["cancel", "fail COUNT_CONFLICT"]
    assert drive.error.metadata == {"node": "d", "field": "n"}


@pytest.mark.parametrize("count", [-1, "two", 1.5, None, True])
def test_count_that_is_no_number_is_refused_naming_node_and_field(count: object) -> None:
    drive = Driven(collecting())
    drive.admit(x="v")
    assert drive.give("p", n=count) == ["cancel", "fail INVALID_FIELD"]
    assert drive.error.metadata == {"node": "d", "field": "n"}


# --- companions -------------------------------------------------------------------------------------------------------


def accompanied(*, tail: bool = False) -> GraphSpec:
    """a -> b -> v -> d.img; a, b, v and, with `tail`, w below v give d.meta; the count comes from c."""
    marks = "y m"
    nodes = (
        node("a", outputs=marks),
        node("b", outputs=marks),
        node("v", outputs=marks),
        node("w"),
        node("c", outputs="n#"),
        node("d", "img meta n#", counts="img=n"),
    )
    edges = "x>a.x x>c.x a.y>b.x b.y>v.x v.y>w.x v.y>d.img a.m>d.meta b.m>d.meta v.m>d.meta c.n>d.n d.y>out"
    return graph(nodes, f"{edges} w.y>{'d.meta' if tail else 'side'}", outputs="out", unordered="side?")


def test_companion_nearest_wins() -> None:
    drive = Driven(accompanied())
    drive.admit(x="v")
    drive.run("a", {"y": "a", "m": "far"}, {"m": "of another yield"})
    drive.run("b", {"y": "b", "m": "near"}, {"y": "b", "m": "of a sibling"})
    drive.run("v", "i0")
    assert drive.give("c", n=1) == ["start d main(img=i0,meta=near)"]
    assert drive.starts["d"].origin_path == (0, 0, 0)


def test_companion_of_the_same_event_is_nearest_of_all() -> None:
    drive = Driven(accompanied())
    drive.admit(x="v")
    drive.run("a", {"y": "a", "m": "far"})
    drive.run("b", {"y": "b", "m": "near"})
    drive.run("v", {"y": "i0", "m": "own"})
    assert drive.give("c", n=1) == ["start d main(img=i0,meta=own)"]


def test_companion_that_comes_last_completes_the_join() -> None:
    """A descendant accompanies its ancestor; until it is there the join waits, whatever the counts say."""
    drive = Driven(accompanied(tail=True))
    drive.admit(x="v")
    drive.give("c", n=1)
    drive.run("a", {"y": "a"})
    drive.run("b", {"y": "b"})
    assert drive.run("v", "i0") == ["start w main(x=i0)"]
    assert drive.run("w", "below") == ["start d main(img=i0,meta=below)"]


def test_companion_tie_is_error() -> None:
    """The yield above and the yield below are equally near."""
    drive = Driven(accompanied(tail=True))
    drive.admit(x="v")
    drive.run("a", {"y": "a"})
    drive.run("b", {"y": "b", "m": "above"})
    drive.run("v", "i0")
    drive.run("w", "below")
    assert drive.give("c", n=1) == ["cancel", "fail AMBIGUOUS_COMPANION"]
    assert drive.error.metadata == {"node": "d", "group": "main", "field": "meta", "path": "0.0.0.0"}


def test_companion_tie_between_two_below_is_error() -> None:
    drive = Driven(accompanied(tail=True))
    drive.admit(x="v")
    drive.run("a", {"y": "a"})
    drive.run("b", {"y": "b"})
    drive.run("v", "i0")
    drive.run("w", "one", "two")
    assert drive.give("c", n=1) == ["cancel", "fail AMBIGUOUS_COMPANION"]


def test_companion_tie_further_away_does_not_matter() -> None:
    """Two below are equally near, but the event has a companion of its own."""
    drive = Driven(accompanied(tail=True))
    drive.admit(x="v")
    drive.run("a", {"y": "a", "m": "far"})
    drive.run("b", {"y": "b"})
    drive.run("v", {"y": "i0", "m": "own"})
    drive.run("w", "one", "two")
    assert drive.give("c", n=1) == ["start d main(img=i0,meta=own)"]


def test_companion_below_that_is_nearest_wins() -> None:
    """w's is one step below, a's two steps above."""
    drive = Driven(accompanied(tail=True))
    drive.admit(x="v")
    drive.run("a", {"y": "a", "m": "far"})
    drive.run("b", {"y": "b"})
    drive.run("v", "i0")
    drive.run("w", "below")
    assert drive.give("c", n=1) == ["start d main(img=i0,meta=below)"]
    assert drive.starts["d"].origin_path == (0, 0, 0, 0)


def test_companion_that_never_comes_is_named() -> None:
    drive = Driven(accompanied())
    drive.admit(x="v")
    drive.run("c", {"n": 1})
    drive.run("a", {"y": "a"})
    drive.run("b", {"y": "b"})
    drive.run("v", "i0")
    assert drive.run("w", "side") == ["emit side=side", "fail COUNT_NOT_REACHED", "release"]
    assert drive.error.metadata == {"node": "d", "group": "main", "field": "meta", "have": "0", "want": "1"}


def test_one_ancestor_serves_many() -> None:
    drive = Driven(accompanied())
    drive.admit(x="v")
    drive.run("a", {"y": "a", "m": "frame"}, {"y": "a", "m": "next"})
    drive.run("b", {"y": "b"}, {"y": "b"})
    drive.run("b#1", {"y": "b"})
    drive.run("v#2", "i2")
    drive.run("v", "i0")
    drive.run("v#1", "i1")
    assert drive.give("c", n=3) == ["start d main(img=i0+i1+i2,meta=frame+frame+next)"]


# --- facets -----------------------------------------------------------------------------------------------------------


def test_same_event_two_groups_counts_once() -> None:
    """Two events through both groups are two events; they are listed where they came first."""
    d = node("d", "one: img; two: img", counts="img=3")
    nodes = (node("p"), node("v"), node("w"), d)
    drive = Driven(graph(nodes, "x>p.x p.y>v.x p.y>w.x v.y>d.one.img v.y>d.two.img w.y>d.two.img d.y>out"))
    drive.admit(x="v")
    drive.run("p", "a")
    assert drive.run("v", "i0", "i1") == []
    assert drive.run("w", "j0") == ["start d one(img=i0+i1) two(img=j0)"]


def test_same_event_two_groups_is_one_facet_when_nothing_else_came() -> None:
    d = node("d", "one: img; two: img", counts="img=2")
    drive = Driven(graph((node("v"), d), "x>v.x v.y>d.one.img v.y>d.two.img d.y>out"))
    drive.admit(x="v")
    assert drive.give("v", y="i0") == []
    assert drive.give("v", y="i1") == ["start d one(img=i0+i1)"]


def test_facet_without_trigger_gives_no_group() -> None:
    """No sound is selected, so its group needs no companion and is not given."""
    d = node("d", "pictures: img meta; sounds: aud note", counts="img=1 aud=0")
    nodes = (node("p", outputs="i a m"), node("u"), d)
    edges = "x>p.x p.i>d.pictures.img p.m>d.pictures.meta p.a>d.sounds.aud p.a>u.x u.y>d.sounds.note d.y>out"
    drive = Driven(graph(nodes, edges))
    drive.admit(x="v")
    drive.give("p", a="sound")
    assert drive.give("p", i="image", m="meta") == ["start d pictures(img=image,meta=meta)"]
    assert [facet.group for facet in drive.starts["d"].facets] == ["pictures"]
    drive.run("u", "late")
    drive.finish("p")
    assert drive.finish("d") == ["finish stop", "release"]


def test_facets_stay_apart_and_come_in_order_of_the_groups() -> None:
    d = node("d", "pictures: img; sounds: aud", counts="img=1 aud=1")
    drive = Driven(graph((node("p", outputs="i a"), d), "x>p.x p.i>d.pictures.img p.a>d.sounds.aud d.y>out"))
    drive.admit(x="v")
    assert drive.give("p", a="sound") == []
    assert drive.give("p", i="image") == ["start d pictures(img=image) sounds(aud=sound)"]


# --- order ------------------------------------------------------------------------------------------------------------


def test_incomparable_paths_keep_admission_order() -> None:
    """v's two are put in order; u's, of another shape, goes first as it was admitted before the earlier of them."""
    nodes = (node("p"), node("v"), node("t"), node("u"), node("d", "img", counts="img=3"))
    drive = Driven(graph(nodes, "x>p.x p.y>v.x p.y>t.x t.y>u.x v.y>d.img u.y>d.img d.y>out"))
    drive.admit(x="v")
    drive.run("p", "a", "b")
    drive.run("t", "t")
    drive.run("v#1", "v1")
    drive.run("u", "u0")
    assert drive.run("v", "v0") == ["start d main(img=u0+v0+v1)"]


def test_paths_of_one_shape_are_ordered_whatever_came_first() -> None:
    nodes = (node("p"), node("v"), node("d", "img", counts="img=4"))
    drive = Driven(graph(nodes, "x>p.x p.y>v.x v.y>d.img d.y>out"))
    drive.admit(x="v")
    drive.run("p", "a", "b", "c")
    drive.run("v#2", "2.0")
    drive.run("v", "0.0", "0.1")
    assert drive.run("v#1", "1.0") == ["start d main(img=0.0+0.1+1.0+2.0)"]


def test_count_join_output_path_is_the_common_prefix_of_what_it_selected() -> None:
    drive = Driven(collecting())
    drive.admit(x="v")
    drive.give("p", y="a")
    drive.give("p", y="b")
    drive.run("v#1", "i0", "i1")
    drive.give("p", n=2)
    assert drive.starts["d"].origin_path == (0, 1)
    drive.run("d", "r")
    assert [event.origin_path for event in drive.emitted] == [(0, 1, 0)]


# --- what does not matter ---------------------------------------------------------------------------------------------


def test_count_join_ignores_leases_and_gate() -> None:
    """Its inputs come from two open inputs, everything that gave them still runs, and it is session-ordered."""
    d = node("d", "img aud", counts="img=1 aud=1", is_session_ordered=True)
    spec = graph((node("v"), node("w"), d), "s>v.x t>w.x v.y>d.img w.y>d.aud d.y>out", inputs="", streaming="s t")
    drive = Driven(spec)
    assert drive.plan.gates == ()
    drive.admit()
    drive.push("s", 1)
    drive.push("s", 2)
    drive.push("t", 1)
    drive.give("w", y="a0")
    assert drive.give("v#1", y="i1") == ["start d main(aud=a0,img=i1)"]
    assert (drive.scheduler.lease_count, drive.scheduler.held_count) == (0, 0)
    assert drive.running.keys() == {"v", "v#1", "w", "d"}
    assert drive.give("d", y="r") == ["emit out=r"], "no order holds its outputs back"


def test_count_join_runs_beside_an_activation_of_a_gated_node() -> None:
    gen = node("gen", is_session_ordered=True)
    spec = graph((node("p"), gen, node("d", "img", counts="img=2")), "x>p.x p.y>gen.x p.y>d.img d.y>out gen.y>out")
    drive = Driven(spec)
    drive.admit(x="v")
    assert drive.give("p", y="a") == ["start gen main(x=a)"]
    assert drive.give("p", y="b") == ["start d main(img=a+b)"]
    assert drive.scheduler.held_count == 1


@pytest.mark.parametrize("count", [1, 2])
def test_count_join_of_a_later_join_settles_first(count: int) -> None:
    """Two count joins in a row: the second cannot be reached once the first is known not to fire."""
    nodes = (
        node("p", outputs="y z"),
        node("d", "img", counts=f"img={count}", on_impossible=OnImpossible.SKIP),
        node("e", "made other", counts="made=1 other=1"),
    )
    drive = Driven(graph(nodes, "x>p.x p.y>d.img d.y>e.made p.z>e.other e.y>out"))
    drive.admit(x="v")
    drive.give("p", y="i", z="o")
    if count == 1:
        drive.finish("p")
        assert drive.run("d", "m") == ["start e main(made=m,other=o)"]
    else:
        assert drive.finish("p") == ["fail COUNT_NOT_REACHED", "release"]
        assert drive.error.metadata == {"node": "e", "field": "made", "have": "0", "want": "1"}


@pytest.mark.parametrize("is_enough", [True, False])
def test_join_below_a_count_join_waits_until_it_has_fired_or_never_will(is_enough: bool) -> None:
    """a yields once a call, so what d gathers descends from that yield, and the bucket below it is d's too."""
    d = node("d", "img", counts="img=2", on_impossible=OnImpossible.SKIP)
    nodes = (node("a", is_streaming=False), node("v"), d, node("c"), node("j", "p? q"))
    drive = Driven(graph(nodes, "x>a.x a.y>v.x v.y>d.img a.y>c.x d.y>j.p c.y>j.q j.y>out"))
    drive.admit(x="v")
    drive.run("a", "a0")
    assert drive.run("c", "c0") == []
    if is_enough:
        assert drive.run("v", "i0", "i1") == ["start d main(img=i0+i1)"]
        assert drive.run("d", "made") == ["start j main(p=made,q=c0)"]
    else:
        assert drive.run("v", "i0") == ["start j main(q=c0)"]
    assert drive.run("j", "r") == ["emit out=r", "finish stop", "release"]


@pytest.mark.parametrize(("count", "shown"), [(0, "start d"), (1, "start d main(img=x)")])
def test_count_join_of_the_inputs_of_a_call_fires_with_their_one_yield(count: int, shown: str) -> None:
    """Trigger and count come together; all of the yield is admitted before it is looked at."""
    d = node("d", "img n#", counts="img=n")
    assert Driven(graph((d,), "x>d.img n>d.n d.y>out", inputs="x n#")).admit(x="x", n=count) == [shown]
