"""Session-ordered nodes: their activations run one at a time, in the order of the yields that caused them."""

from __future__ import annotations

from typing import Any

import pytest

from omniflow_core.graph.spec import GraphSpec, OnFailure, OnImpossible
from tests.core.scenarios.driven import BROKEN, Driven
from tests.support.graphs import graph, node


def by_two_routes(**options: Any) -> GraphSpec:
    """p -> {embed -> gen.text, {vit, vae} -> gen.image}; what p gives as side reaches nothing gated."""
    gen = node("gen", "text: emb; image: vit vae", is_session_ordered=True, **options)
    nodes = (node("p", outputs="text image side"), node("embed"), node("vit"), node("vae"), node("u"), gen)
    edges = (
        "x>p.x p.text>embed.x embed.y>gen.emb p.image>vit.x p.image>vae.x vit.y>gen.vit vae.y>gen.vae "
        "p.side>u.x u.y>aside gen.y>out"
    )
    return graph(nodes, edges, unordered="aside")


def line(**options: Any) -> GraphSpec:
    """p -> v -> gen"""
    gen = node("gen", is_session_ordered=True)
    return graph((node("p"), node("v", **options), gen), "x>p.x p.y>v.x v.y>gen.x gen.y>out")


def test_session_gate_keeps_yield_order() -> None:
    """The image of the second yield is ready first; it waits until the text of the first has been generated."""
    drive = Driven(by_two_routes())
    drive.admit(x="v")
    drive.give("p", text="t0")
    drive.give("p", image="i1")
    drive.give("p", text="t2")
    drive.finish("p")
    drive.run("vit", "vit1")
    assert drive.run("vae", "vae1") == []
    assert drive.run("embed#1", "e2") == []
    assert drive.scheduler.held_count == 2
    assert drive.give("embed", y="e0") == ["start gen text(emb=e0)"]
    assert drive.finish("embed") == []
    assert drive.run("gen", "r0") == ["emit out=r0", "start gen#1 image(vae=vae1,vit=vit1)"]
    assert drive.run("gen#1", "r1") == ["emit out=r1", "start gen#2 text(emb=e2)"]
    assert drive.run("gen#2", "r2") == ["emit out=r2", "finish stop", "release"]


def test_session_gate_runs_one_at_a_time() -> None:
    """Yields of one activation too."""
    drive = Driven(line())
    drive.admit(x="v")
    drive.run("p", "a")
    assert drive.give("v", y="v0") == ["start gen main(x=v0)"]
    assert drive.give("v", y="v1") == []
    assert drive.give("v", y="v2") == []
    assert drive.give("gen", y="r") == ["emit out=r"]
    assert drive.finish("gen") == ["start gen#1 main(x=v1)"]
    assert drive.finish("gen#1") == ["start gen#2 main(x=v2)"]


def test_session_gate_waits_for_work_that_may_still_come_first() -> None:
    """The first v has given nothing yet, but it may."""
    drive = Driven(line())
    drive.admit(x="v")
    drive.run("p", "a", "b")
    assert drive.run("v#1", "v1") == []
    assert drive.give("v", y="v0") == ["start gen main(x=v0)"]
    assert drive.finish("gen") == []
    assert drive.give("v", y="more") == ["start gen#1 main(x=more)"]
    assert drive.finish("v") == []
    assert drive.finish("gen#1") == ["start gen#2 main(x=v1)"]


@pytest.mark.parametrize("failing", ["gen", "v"])
def test_session_gate_releases_on_failure(failing: str) -> None:
    gen = node("gen", is_session_ordered=True, on_failure=OnFailure.SKIP)
    nodes = (node("p"), node("v", on_failure=OnFailure.SKIP), gen)
    drive = Driven(graph(nodes, "x>p.x p.y>v.x v.y>gen.x gen.y>out"))
    drive.admit(x="v")
    drive.run("p", "a", "b")
    if failing == "gen":
        drive.run("v", "v0")
        assert drive.run("v#1", "v1") == []
        assert drive.fail("gen") == ["start gen#1 main(x=v1)"]
    else:
        assert drive.run("v#1", "v1") == []
        assert drive.fail("v") == ["start gen main(x=v1)"]


def test_session_gate_of_a_failed_call_starts_nothing_more() -> None:
    drive = Driven(line())
    drive.admit(x="v")
    drive.run("p", "a", "b")
    drive.run("v", "v0")
    drive.run("v#1", "v1")
    assert drive.fail("gen") == ["fail INTERFACE_FAILED", "release"]
    assert drive.error == BROKEN
    assert "gen#1" not in drive.starts


def test_gate_passes_vacant_occurrence() -> None:
    """Both encoders leave the first image out: its bucket never comes to be, and the next goes on."""
    drive = Driven(by_two_routes())
    drive.admit(x="v")
    drive.run("p", {"image": "i0"}, {"text": "t1"})
    assert drive.run("embed", "e1") == []
    assert drive.run("vit", {}) == []
    assert drive.run("vae") == ["start gen text(emb=e1)"]


def test_gate_passes_impossible_occurrence() -> None:
    drive = Driven(by_two_routes(on_impossible=OnImpossible.SKIP))
    drive.admit(x="v")
    drive.run("p", {"image": "i0"}, {"text": "t1"})
    assert drive.run("embed", "e1") == []
    assert drive.run("vit", "only one") == []
    assert drive.run("vae") == ["start gen text(emb=e1)"]


def test_session_gate_skips_unactivated_yield() -> None:
    """The first yield feeds nothing that reaches gen; the second does, but comes to nothing; the third runs."""
    drive = Driven(by_two_routes())
    drive.admit(x="v")
    drive.run("p", {"side": "s0"}, {"text": "t1"}, {"text": "t2"})
    assert drive.run("embed#1", "e2") == []
    assert drive.finish("embed") == ["start gen text(emb=e2)"]
    assert "u" in drive.running


def test_session_gate_orders_by_the_origin_that_its_groups_share() -> None:
    """Routes of one and the same yield have no order: the first that is ready goes first."""
    drive = Driven(by_two_routes())
    drive.admit(x="v")
    drive.run("p", {"text": "t0", "image": "i0"})
    drive.run("vae", "vae0")
    assert drive.run("vit", "vit0") == ["start gen image(vae=vae0,vit=vit0)"]
    assert drive.run("embed", "e0") == []
    assert drive.finish("gen") == ["start gen#1 text(emb=e0)"]


def test_session_gate_order_does_not_depend_on_the_order_of_results() -> None:
    """Twenty yields, answered from the last to the first, run from the first to the last."""
    drive = Driven(line())
    drive.admit(x="v")
    drive.run("p", *range(20))
    names = [name for name in drive.running if name.startswith("v")]
    for name in reversed(names):
        drive.run(name, drive.starts[name].fields["x"][0])
    ran = []
    while "gen" in {name.partition("#")[0] for name in drive.running}:
        (name,) = drive.running
        ran.append(drive.starts[name].fields["x"][0])
        drive.finish(name)
    assert ran == list(range(20))
    assert drive.is_released


def test_gated_node_in_front_of_a_join_holds_its_bucket() -> None:
    """A start that waits for its turn is work of the bucket too."""
    gen = node("gen", is_session_ordered=True)
    nodes = (node("p"), node("v"), node("w"), gen, node("j", "g w"))
    drive = Driven(graph(nodes, "x>p.x p.y>v.x p.y>w.x v.y>gen.x gen.y>j.g w.y>j.w j.y>out"))
    drive.admit(x="v")
    drive.run("p", "a", "b")
    drive.run("w#1", "w1")
    drive.run("w", "w0")
    drive.run("v#1", "v1")
    drive.run("v", "v0")
    assert drive.scheduler.held_count == 1
    assert drive.run("gen", "g0") == ["start gen#1 main(x=v1)", "start j main(g=g0,w=w0)"]
    assert drive.run("gen#1", "g1") == ["start j#1 main(g=g1,w=w1)"]


def test_cancel_leaves_no_start_that_waits_for_its_turn() -> None:
    drive = Driven(line())
    drive.admit(x="v")
    drive.run("p", "a")
    drive.run("v", "v0", "v1", "v2")
    assert drive.scheduler.held_count == 2
    assert drive.cancel() == ["cancel", "fail CALL_CANCELLED"]
    assert drive.stop_all() == ["release"]


def test_view_of_a_gate_names_what_runs_and_what_waits() -> None:
    drive = Driven(line())
    drive.admit(x="v")
    drive.run("p", "a")
    drive.run("v", "v0", "v1", "v2")
    (gate,) = drive.scheduler.inspect().gates
    assert (gate.node, gate.running) == ("gen", drive.starts["gen"].activation_id)
    held = [a.activation_id for a in drive.scheduler.inspect().activations if a.state == "held"]
    assert list(gate.waiting) == held
    assert len(held) == 2
