"""The order in which outputs come back, whatever the order in which they are made."""

from __future__ import annotations

import random

import pytest

from tests.core.scenarios.driven import Driven
from tests.support.graphs import graph, node


@pytest.mark.parametrize("seed", range(4))
def test_return_order_under_shuffled_transport(seed: int) -> None:
    """1,000 tokens over two branches arrive once each in order, whichever branch answers first."""
    spec = graph((node("a", outputs="even odd"), node("b"), node("c")), "x>a.x a.even>b.x a.odd>c.x b.y>out c.y>out")
    drive = Driven(spec, checks_every_step=False)
    drive.admit(x="v")
    drive.run("a", *({"odd" if i % 2 else "even": i} for i in range(1000)))
    names = list(drive.running)
    random.Random(seed).shuffle(names)
    for name in names:
        drive.run(name, drive.starts[name].fields["x"][0])
    assert drive.values() == list(range(1000))
    assert drive.is_released


def test_sentence_audio_keeps_sentence_order() -> None:
    """llm -> splitter -> tts: the second sentence is spoken first, and heard second."""
    nodes = (node("llm"), node("splitter"), node("tts"))
    drive = Driven(
        graph(nodes, "x>llm.x llm.y>splitter.x llm.y>text splitter.y>tts.x tts.y>audio", outputs="text audio")
    )
    drive.admit(x="question")
    assert drive.run("llm", "One. Two.") == ["emit text=One. Two.", "start splitter main(x=One. Two.)"]
    assert drive.run("splitter", "One.", "Two.") == ["start tts main(x=One.)", "start tts#1 main(x=Two.)"]
    assert drive.run("tts#1", "2a", "2b") == []
    assert drive.give("tts", y="1a") == ["emit audio=1a"]
    assert drive.give("tts", y="1b") == ["emit audio=1b"]
    assert drive.finish("tts") == ["emit audio=2a", "emit audio=2b", "finish stop", "release"]
    assert [event.origin_path for event in drive.emitted if event.output == "audio"] == [
        (0, 0, 0, 0),
        (0, 0, 0, 1),
        (0, 0, 1, 0),
        (0, 0, 1, 1),
    ]


def test_unordered_output_keeps_activation_order() -> None:
    drive = Driven(graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out", outputs="", unordered="out"))
    drive.admit(x="v")
    drive.run("a", "a", "b")
    assert drive.give("b#1", y="q0") == ["emit out=q0"]
    assert drive.give("b", y="p0") == ["emit out=p0"]
    assert drive.give("b#1", y="q1") == ["emit out=q1"]
    assert drive.give("b", y="p1") == ["emit out=p1"]


DIAMOND = graph((node("a"), node("b"), node("c"), node("j", "b c")), "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>out")


def test_join_stands_below_the_yield_of_its_anchor() -> None:
    """While the first bucket is open, what the second join gives waits; a join that never runs lets it go."""
    drive = Driven(DIAMOND)
    drive.admit(x="v")
    drive.run("a", "a0", "a1")
    drive.run("c#1", "c1")
    drive.run("b#1", "b1")
    assert drive.run("j", "second") == []
    drive.run("b")
    assert drive.run("c") == ["emit out=second", "finish stop", "release"]


def test_join_gives_as_it_runs_once_earlier_ones_have_closed() -> None:
    drive = Driven(DIAMOND)
    drive.admit(x="v")
    drive.run("a", "a0", "a1")
    for name in ("b", "c", "b#1", "c#1"):
        drive.run(name, name)
    assert drive.give("j#1", y="2") == []
    assert drive.give("j", y="1") == ["emit out=1"]
    assert drive.finish("j") == ["emit out=2"]
    assert drive.give("j#1", y="3") == ["emit out=3"]


def test_branches_of_one_yield_have_no_order() -> None:
    drive = Driven(graph((node("a"), node("b"), node("c")), "x>a.x a.y>b.x a.y>c.x b.y>out c.y>out"))
    drive.admit(x="v")
    drive.run("a", "a0")
    assert drive.give("c", y="c0") == ["emit out=c0"]
    assert drive.give("b", y="b0") == ["emit out=b0"]
    assert drive.give("c", y="c1") == ["emit out=c1"]


def test_output_of_a_count_join_waits_for_nobody() -> None:
    """Its inputs descend from the second yield of p; the first still works on the same output."""
    nodes = (node("p", outputs="y z"), node("v"), node("d", "img", counts="img=1"))
    drive = Driven(graph(nodes, "x>p.x p.y>v.x v.y>out p.z>d.img d.y>out"))
    drive.admit(x="v")
    drive.give("p", y="a")
    assert drive.give("p", z="b") == ["start d main(img=b)"]
    assert drive.give("d", y="d0") == ["emit out=d0"]
    assert drive.give("v", y="v0") == ["emit out=v0"]


def test_each_output_has_an_order_of_its_own() -> None:
    nodes = (node("a", outputs="p q"), node("b"), node("c"))
    drive = Driven(graph(nodes, "x>a.x a.p>b.x a.q>c.x b.y>left c.y>right", outputs="left right"))
    drive.admit(x="v")
    drive.run("a", {"p": 0}, {"q": 1}, {"p": 2})
    assert drive.give("c", y="c") == ["emit right=c"]
    assert drive.give("b#1", y="late") == []
    assert drive.run("b", "early") == ["emit left=early", "emit left=late"]
