"""What the scheduler makes of a pipeline that its replicas run: one activation, and exits with whole paths."""

from __future__ import annotations

from typing import Any

import pytest

from omniflow_core.control.commands import CallUsage, Emit, FinishCall
from omniflow_core.control.events import ActivationFinished, Event, ExitYielded
from omniflow_core.graph.spec import GraphSpec, NodeSpec
from tests.core.scenarios.driven import BROKEN, STOP, Driven
from tests.support.graphs import graph, node


def of(role: str, name: str, inputs: str = "x", outputs: str = "y", **options: Any) -> NodeSpec:
    return node(name, inputs, outputs, is_inline=False, role=role, **options)


A, B = of("r", "a"), of("s", "b")
SPOKEN = graph((A, B), "x>a.x a.y>b.x b.y>out")
"""b speaks what a says."""
BESIDE = graph((A, B, node("k"), node("l")), "x>a.x a.y>b.x b.y>p x>k.x k.y>l.x l.y>q", outputs="p q")
"""A pipeline beside a chain that is none."""


def admitted(spec: GraphSpec = SPOKEN, **options: Any) -> Driven:
    drive = Driven(spec, **options)
    assert drive.plan.pipelines
    drive.admit(x="v")
    return drive


# --- exits ------------------------------------------------------------------------------------------------------------


def test_exits_are_what_the_last_node_gives_at_the_paths_that_they_come_with() -> None:
    drive = admitted()
    assert drive.accept("a") == []
    assert drive.give_out("a", below=(0, 0), y="one") == ["emit out=one"]
    assert drive.give_out("a", below=(0, 1), y="two") == ["emit out=two"]
    assert drive.give_out("a", below=(3, 0), y="three") == ["emit out=three"]
    assert drive.emitted == [
        Emit("out", "b", (0, 0, 0), "one"),
        Emit("out", "b", (0, 0, 1), "two"),
        Emit("out", "b", (0, 3, 0), "three"),
    ]
    assert drive.finish("a", started=4) == ["finish stop", "release"]


def test_exit_gives_each_of_its_fields_to_its_outputs_in_the_order_of_the_graph() -> None:
    spec = graph((A, of("s", "b", outputs="y z")), "x>a.x b.z>q a.y>b.x b.y>p b.y>r", outputs="p q", unordered="r")
    drive = admitted(spec)
    assert drive.give_out("a", below=(0, 0), y="one", z="two") == ["emit q=two", "emit p=one", "emit r=one"]
    assert drive.give_out("a", below=(1, 0), z="three") == ["emit q=three"]
    assert drive.give_out("a", below=(2, 0)) == []
    assert drive.finish("a") == ["finish stop", "release"]


def test_path_of_an_exit_goes_on_from_that_of_the_first_node() -> None:
    nodes = (node("k", is_streaming=False), A, B, of("t", "c"))
    drive = admitted(graph(nodes, "x>k.x k.y>a.x a.y>b.x b.y>c.x c.y>out"))
    drive.run("k", "v")
    drive.give_out("a", below=(2, 0, 1), y="w")
    assert drive.emitted == [Emit("out", "c", (0, 0, 2, 0, 1), "w")]
    assert drive.finish("a", started=2) == ["finish stop", "release"]


def test_first_exit_says_that_the_activation_was_accepted() -> None:
    nodes = (node("k", is_streaming=False, yield_window=2), A, B)
    drive = admitted(graph(nodes, "x>k.x k.y>a.x a.y>b.x b.y>out"))
    drive.give("k", y="v")
    assert drive.give_out("a", below=(0, 0), y="w") == ["ack k<1", "emit out=w"]
    assert drive.accept("a") == []


def test_exits_are_acknowledged_at_half_the_window_of_the_first_node() -> None:
    drive = admitted(graph((of("r", "a", yield_window=4), B), "x>a.x a.y>b.x b.y>out"))
    shown = [drive.give_out("a", below=(i, 0), y=i) for i in range(4)]
    assert shown == [["emit out=0"], ["emit out=1", "ack a<2"], ["emit out=2"], ["emit out=3", "ack a<4"]]


def test_exits_are_acknowledged_at_half_the_window_of_the_last_node_when_that_is_smaller() -> None:
    """One activation of the last node may give no more than its window, and waits for these acknowledgements."""
    nodes = (of("r", "a", yield_window=64), of("t", "c", yield_window=1), of("s", "b", yield_window=4))
    drive = admitted(graph(nodes, "x>a.x a.y>c.x c.y>b.x b.y>out"))
    shown = [drive.give_out("a", below=(0, 0, i), y=i) for i in range(4)]
    assert shown == [["emit out=0"], ["emit out=1", "ack a<2"], ["emit out=2"], ["emit out=3", "ack a<4"]]


def test_exits_are_acknowledged_at_half_the_byte_credit_here_and_elsewhere() -> None:
    drive = admitted(yield_window=64, byte_credit=1000)
    assert drive.give_out("a", 400, below=(0, 0), y="v") == ["emit out=v"]
    number = drive.starts["a"].activation_id
    drive.running["a"] += 1
    assert drive(ExitYielded(number, 1, {"y": "w"}, (0, 1, 0), 10, stored_bytes=90)) == ["emit out=w", "ack a<2"]


def test_exits_of_pipelines_side_by_side_do_not_wait_for_each_other() -> None:
    nodes = (A, B, of("r", "d"), of("s", "e"))
    drive = admitted(graph(nodes, "x>a.x a.y>b.x b.y>p x>d.x d.y>e.x e.y>q", outputs="p q"))
    assert drive.give_out("d", below=(0, 0), y="w") == ["emit q=w"]
    assert drive.give_out("a", below=(0, 0), y="v") == ["emit p=v"]
    assert drive.finish("d") == []
    assert drive.finish("a") == ["finish stop", "release"]


def test_pipeline_leaves_nothing_in_the_order_of_its_output() -> None:
    drive = admitted(BESIDE)
    for i in range(3):
        drive.give_out("a", below=(i, 0), y=i)
    tree = drive.scheduler._work.trees[0]
    assert [node.cursor for slot in tree.root.slots.values() for node in slot.children] == [3]
    drive.finish("a", started=3)
    assert tree.root.slots == {}


def test_call_may_run_the_same_graph_node_by_node() -> None:
    drive = admitted()
    assert drive.give("a", y="w") == ["start b main(x=w)"]
    assert drive.run("b", "z") == ["emit out=z"]
    assert drive.finish("a") == ["finish stop", "release"]
    assert drive.emitted == [Emit("out", "b", (0, 0, 0), "z")]


# --- what is not so ---------------------------------------------------------------------------------------------------


def test_exit_that_came_already_changes_nothing() -> None:
    drive = admitted()
    drive.give_out("a", below=(0, 0), y="v")
    drive.give_out("a", below=(1, 0), y="w")
    number = drive.starts["a"].activation_id
    for ordinal in (0, 1):
        assert drive(ExitYielded(number, ordinal, {"y": "again"}, (0, ordinal, 0))) == []
    assert drive.finish("a") == ["finish stop", "release"]


@pytest.mark.parametrize(
    "event",
    [
        ExitYielded(7, 0, {"y": "v"}, (0, 0, 0)),
        ExitYielded(1, 0, {"y": "v"}, (0, 0, 0), attempt=2),
    ],
)
def test_exit_of_an_activation_that_does_not_run_changes_nothing(event: Event) -> None:
    drive = admitted()
    assert drive(event) == []
    assert drive.finish("a") == ["finish stop", "release"]
    assert drive(ExitYielded(1, 0, {"y": "v"}, (0, 0, 0))) == []


def test_exit_after_the_end_of_the_call_changes_nothing() -> None:
    drive = admitted()
    assert drive.cancel() == ["cancel", "fail CALL_CANCELLED"]
    assert drive(ExitYielded(1, 0, {"y": "v"}, (0, 0, 0))) == []
    assert drive.fail("a", STOP) == ["release"]


def test_exit_that_is_left_out_breaks_the_call() -> None:
    drive = admitted()
    drive.give_out("a", below=(0, 0), y="v")
    number = drive.starts["a"].activation_id
    assert drive(ExitYielded(number, 2, {"y": "v"}, (0, 2, 0))) == ["cancel", "fail INTERNAL"]
    assert "skipped from exit 1 to 2" in drive.error.message


def test_exit_of_a_node_that_is_the_first_of_no_pipeline_breaks_the_call() -> None:
    drive = Driven(graph((A, node("b")), "x>a.x a.y>b.x b.y>out"))
    drive.admit(x="v")
    assert drive(ExitYielded(1, 0, {"y": "v"}, (0, 0, 0))) == ["cancel", "fail INTERNAL"]
    assert drive.error.metadata == {"node": "a"}


@pytest.mark.parametrize("path", [(), (0, 0), (1, 0, 0), (0, 0, 0, 0)])
def test_exit_at_a_path_that_does_not_lead_through_the_pipeline_breaks_the_call(path: tuple[int, ...]) -> None:
    drive = admitted()
    assert drive(ExitYielded(1, 0, {"y": "v"}, path)) == ["cancel", "fail INTERNAL"]
    assert drive.emitted == []


def test_end_that_counts_other_exits_than_came_breaks_the_call() -> None:
    drive = admitted()
    drive.give_out("a", below=(0, 0), y="v")
    assert drive(ActivationFinished(1, 2)) == ["fail INTERNAL", "release"]


def test_failure_of_a_pipeline_fails_the_call() -> None:
    drive = admitted()
    drive.give_out("a", below=(0, 0), y="v")
    assert drive.fail("a", BROKEN) == ["fail INTERFACE_FAILED", "release"]


# --- what the end counts ----------------------------------------------------------------------------------------------


def test_end_adds_what_was_started_below_it_to_the_usage() -> None:
    drive = admitted()
    finished = ActivationFinished(1, 0, "length", 3, 1, 5)
    finished.started_activations = 6
    assert drive(finished) == ["finish length", "release"]
    assert drive.terminal == FinishCall(
        "length", CallUsage(input_tokens=3, cached_input_tokens=1, output_tokens=5, activations=7)
    )
    inspection = drive.scheduler.inspect()
    assert (inspection.started, inspection.finished) == (7, 7)


def test_what_was_started_below_an_end_counts_towards_the_limit_of_the_call() -> None:
    drive = admitted(BESIDE, max_activations=6)
    drive.finish("a", started=3)
    assert drive.give("k", y="v") == ["start l main(x=v)"]
    assert drive.give("k", y="v") == ["cancel", "fail LOOP_BOUND_EXCEEDED"]


def test_activations_that_start_later_have_other_identifiers_than_all_before() -> None:
    drive = admitted(BESIDE)
    drive.give("k", y="v")
    drive.finish("a", started=5)
    drive.give("k", y="w")
    numbers = [start.activation_id for start in drive.starts.values()]
    assert len(set(numbers)) == len(numbers) == 4
