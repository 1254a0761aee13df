"""Segments that cannot run: refused before anything has, with the field that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omniflow.codec.error import status_from_proto
from omniflow.common.v1 import value_pb2
from omniflow.interface import Context, Inputs, Outputs
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.errors import Reason
from omniflow_core.graph.inside import segment_graph
from omniflow_roles.harness import segment_graphs
from omniflow_roles.noop import Step
from tests.roles.driver import kinds
from tests.roles.running import driving
from tests.roles.segments import chain, item, segment_command, story

Spoil = Callable[[messages.StartActivation], object]


class Runs(Step):
    """Notes that it has run."""

    name = "test.runs"

    def __init__(self) -> None:
        self.nodes: list[str] = []

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        self.nodes.append(context.node)
        return await super().run(inputs, context)


def rename(start: messages.StartActivation, **names: str) -> None:
    for name, value in names.items():
        setattr(start.activation, name, value)


def reinterface(start: messages.StartActivation) -> None:
    start.segment.nodes[1].interface = "test.walks"


def redirect(start: messages.StartActivation) -> None:
    start.segment.edges[0].target_node = "z"


def retype(start: messages.StartActivation) -> None:
    start.segment.nodes[1].input_groups[0].fields[0].type = value_pb2.VALUE_TYPE_TEXT


def double(start: messages.StartActivation) -> None:
    start.segment.nodes[1].name = "a"


def empty(start: messages.StartActivation) -> None:
    start.segment.Clear()
    start.segment.SetInParent()


def unbound(start: messages.StartActivation) -> None:
    start.segment.edges.add(
        source_node="b", source_field="item", target_node="a", target_group="main", target_field="item"
    )


@pytest.mark.parametrize(
    ("spoil", "reason", "field"),
    [
        (lambda start: rename(start, node="z"), Reason.INVALID_FIELD, "start.activation.node"),
        (empty, Reason.INVALID_FIELD, "start.activation.node"),
        (lambda start: rename(start, interface="noop.step"), Reason.INVALID_FIELD, "start.activation.interface"),
        (reinterface, Reason.UNKNOWN_INTERFACE, "start.segment.nodes[1].interface"),
        (redirect, Reason.INVALID_GRAPH, "start.segment.edges[0].target_node"),
        (retype, Reason.INVALID_GRAPH, "start.segment.edges[0]"),
        (double, Reason.INVALID_GRAPH, "start.segment.nodes[1].name"),
        (unbound, Reason.INVALID_GRAPH, "start.segment.nodes[0].loop_bound"),
        (
            lambda start: start.segment.nodes[1].activate_by_count.add(field="item", constant=1),
            Reason.UNIMPLEMENTED,
            "start.segment.nodes[1].activate_by_count",
        ),
        (
            lambda start: start.segment.edges[0].chunks.SetInParent(),
            Reason.UNIMPLEMENTED,
            "start.segment.edges[0].chunks",
        ),
        (
            lambda start: start.segment.exits.add(node="z", fields=["item"]),
            Reason.INVALID_FIELD,
            "start.segment.exits[1].node",
        ),
        (
            lambda start: start.segment.exits[0].fields.append("itme"),
            Reason.INVALID_FIELD,
            "start.segment.exits[0].fields[1]",
        ),
        (lambda start: start.delivered_yields.add(), Reason.INVALID_FIELD, "start.delivered_yields"),
    ],
)
async def test_malformed_segment_is_refused_and_its_field_named(
    tmp_path: Path, spoil: Spoil, reason: Reason, field: str
) -> None:
    runs = Runs()
    command = segment_command(1, chain(Runs, Runs), "a", item())
    spoil(command.start)
    async with driving(tmp_path, runs, Step()) as (server, driver):
        await driver.send(command)
        results = await driver.finish(1)
        assert kinds(results) == ["failed"]
        await driver.send(segment_command(2, chain(Runs, Runs), "a", item()))
        assert kinds(await driver.finish(2))[-1] == "completed"
        await server.host.wait_idle()
    error = status_from_proto(results[0].failed.status)
    assert error.reason is reason
    assert field in [violation.field for violation in error.violations]
    assert field in error.message
    assert not results[0].failed.is_retryable
    assert runs.nodes == ["a", "b"]


async def test_input_of_the_entry_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    command = segment_command(1, chain(Step, Step), "a", item())
    command.start.facets[0].fields["item"].values[0].value.Clear()
    async with driving(tmp_path, Step()) as (_, driver):
        await driver.send(command)
        error, _ = await driver.error(1)
    assert error.reason is Reason.INVALID_FIELD
    assert "start.facets[0].fields[item].values[0]" in error.message


async def test_segment_is_planned_once_for_all_of_its_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []

    def planning(nodes: Any, edges: Any, entry: str) -> Any:
        planned.append(entry)
        return segment_graph(nodes, edges, entry)

    monkeypatch.setattr(segment_graphs, "segment_graph", planning)
    async with driving(tmp_path, Step()) as (_, driver):
        for handle, segment_id in enumerate(("one", "one", "two", "one", "", ""), start=1):
            command = segment_command(handle, chain(Step, Step), "a", item())
            command.start.segment.segment_id = segment_id
            await driver.send(command)
            assert story(await driver.finish(handle))[-1] == "!b1"
    assert len(planned) == 4  # one, two, and those without an id


async def test_segment_that_was_planned_does_not_vouch_for_another_entry(tmp_path: Path) -> None:
    async with driving(tmp_path, Step()) as (_, driver):
        for handle, node in ((1, "a"), (2, "z")):
            command = segment_command(handle, chain(Step, Step), "a", item())
            command.start.segment.segment_id = "one"
            command.start.activation.node = node
            await driver.send(command)
        assert kinds(await driver.finish(1))[-1] == "completed"
        error, _ = await driver.error(2)
    assert error.reason is Reason.INVALID_FIELD
