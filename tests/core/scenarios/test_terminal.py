"""A call ends once, whatever ends it. The driver checks each step: nothing but the release follows the terminal event."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from omniflow_core.control.commands import FailCall, FinishCall
from omniflow_core.control.events import Value
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.spec import ChunkSpec, GraphSpec
from tests.core.scenarios.driven import BROKEN, STOP, Driven
from tests.core.scenarios.playing import Player
from tests.support.graphs import graph, node

DEADLINE = ErrorInfo(reason=Reason.DEADLINE_EXCEEDED, message="too late")


def everything() -> GraphSpec:
    """A producer, a diamond, a loop, a count join, a gate and chunks: p is where they part."""
    nodes = (
        node("p", outputs="y n#"),
        node("v", yield_window=2),
        node("w", yield_window=2),
        node("join", "v w"),
        node("count", "v n#", counts="v=n"),
        node("gate", is_session_ordered=True),
        node("chunk"),
        node("loop", "first: x; more: z", outputs="y again", loop_bound=100),
    )
    edges = (
        "x>p.x p.y>v.x p.y>w.x v.y>join.v w.y>join.w v.y>count.v p.n>count.n v.y>gate.x v.y>chunk.x "
        "p.y>loop.first.x loop.again>loop.more.z join.y>out count.y>out gate.y>out chunk.y>out loop.y>out"
    )
    return graph(nodes, edges, chunks={"v.y>chunk.x": ChunkSpec(size=2)})


NODES = ("p", "v", "w", "join", "count", "gate", "chunk", "loop")


def script(name: str, group: str) -> Sequence[Value]:
    """Two frames, three values of v and two of w each; the loop goes round once."""
    match name.partition("#")[0], group:
        case "p", _:
            return ["f0", "f1", {"n": 4}]
        case "v", _:
            return [f"{name}.{i}" for i in range(3)]
        case "loop", "first":
            return [{"again": 1}]
        case _:
            return [name, f"{name} again"]


def player(seed: int = 0) -> Player:
    made = Player(Driven(everything()), script, workers=2)
    made.pick = random.Random(seed).choice
    return made


def whole_length() -> int:
    counted = player()
    steps = 0
    counted.drive.admit(x="v")
    while not counted.drive.is_released:
        counted.step()
        steps += 1
    return steps


def terminals(drive: Driven) -> list[object]:
    return [command for command in drive.commands if isinstance(command, FinishCall | FailCall)]


@pytest.mark.parametrize("seed", range(10))
def test_exactly_one_terminal(seed: int) -> None:
    """Success: every node has run, and the call finishes."""
    played = player(seed)
    played.run(x="v")
    assert terminals(played.drive) == [played.drive.terminal]
    assert isinstance(played.drive.terminal, FinishCall)
    runs = {name: sum(1 for n in played.drive.starts if n.partition("#")[0] == name) for name in NODES}
    assert runs == {"p": 1, "v": 2, "w": 2, "join": 2, "count": 1, "gate": 6, "chunk": 4, "loop": 4}
    assert len(played.drive.emitted) == 2 * (2 + 1 + 6 + 4 + 2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("failing", NODES)
def test_exactly_one_terminal_when_a_node_fails(failing: str, seed: int) -> None:
    played = player(seed)
    drive = played.drive
    drive.admit(x="v")
    while failing not in drive.running:
        played.step()
    assert drive.fail(failing)[-1 if drive.running else -2] == "fail INTERFACE_FAILED"
    assert drive.error == BROKEN
    drive.stop_all()
    assert terminals(drive) == [drive.terminal]
    assert drive.is_released


@pytest.mark.parametrize("ending", [STOP, DEADLINE], ids=["cancel", "deadline"])
def test_exactly_one_terminal_when_it_is_stopped_after_any_step(ending: ErrorInfo) -> None:
    for steps in range(whole_length()):
        played = player()
        drive = played.drive
        played.run(x="v", steps=steps)
        assert drive.cancel(ending)[:2] == ["cancel", f"fail {ending.reason}"]
        assert drive.cancel(ending) == []
        while drive.running:
            played.step() if steps % 2 else drive.stop_all()
        assert terminals(drive) == [drive.terminal]
        assert drive.error == ending
        assert drive.is_released


@pytest.mark.parametrize("ending", [STOP, DEADLINE], ids=["cancel", "deadline"])
def test_exactly_one_terminal_when_it_is_stopped_before_it_runs(ending: ErrorInfo) -> None:
    drive = Driven(everything())
    assert drive.cancel(ending) == [f"fail {ending.reason}", "release"]
    assert drive.admit(x="v") == []


def test_exactly_one_terminal_when_two_things_fail_at_once() -> None:
    """A yield that makes one group impossible and whose activation then fails: the first reason stays."""
    spec = graph((node("a", outputs="y z"), node("b", "p q")), "x>a.x a.y>b.p a.z>b.q b.y>out")
    drive = Driven(spec)
    drive.admit(x="v")
    assert drive.give("a", y=1) == ["cancel", "fail IMPOSSIBLE_INPUT"]
    assert drive.fail("a") == ["release"]
    assert drive.error.reason is Reason.IMPOSSIBLE_INPUT


def test_terminal_waits_for_an_open_input() -> None:
    drive = Driven(graph((node("a"),), "s>a.x a.y>out", inputs="", streaming="s"))
    assert drive.admit() == []
    assert drive.push("s", 1) == ["start a main(x=1)"]
    assert drive.run("a", "r") == ["emit out=r"]
    assert drive.push("s", last=True) == ["finish stop", "release"]


def test_non_streaming_node_that_yields_twice_fails() -> None:
    drive = Driven(graph((node("a", is_streaming=False),), "x>a.x a.y>out"))
    drive.admit(x="v")
    assert drive.give("a", y="one") == ["emit out=one"]
    assert drive.give("a", y="two") == ["cancel", "fail INTERNAL"]
    assert drive.finish("a") == ["release"]
    assert drive.error.metadata["node"] == "a"
