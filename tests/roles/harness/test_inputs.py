"""What a replica gives to an interface: facets, left context, and the yields of an attempt that was lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from omniflow.codec.common import value_to_proto
from omniflow.common.v1 import value_pb2
from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import Json, Tensor, ValueType
from omniflow_core.errors import Reason
from omniflow_roles.noop import Large, Swallow
from tests.roles.driver import Driver, Result, kinds, start_command, values
from tests.roles.running import driving, eventually

pytestmark = pytest.mark.usefixtures("transport")

TEXT = Field(ValueType.TEXT)


class Tells(Interface):
    """What it was given, facet by facet."""

    name = "test.tells"
    inputs = groups(("left", {"text": TEXT}), ("right", {"text": TEXT, "more": TEXT}))
    outputs = {"told": Field(ValueType.JSON)}

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        facets = [
            {"group": facet.group, **{name: list(map(str, facet.all(name))) for name in facet}}
            for facet in inputs.facets
        ]
        return {"told": Json({"facets": facets, "group": inputs.group, "context": inputs.context_count("text")})}


class GoesOn(Interface):
    """Five texts, of which the later ones know how many were delivered before."""

    name = "test.goes_on"
    inputs = groups(text=TEXT)
    outputs = {"text": TEXT}

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        for ordinal in range(len(context.delivered), 5):
            yield {"text": f"{ordinal} after {[str(outputs['text']) for outputs in context.delivered]}"}


def facet(start: messages.StartActivation, group: str, *, context_count: int = 0, **fields: list[Any]) -> None:
    """Adds a facet of Python values or of messages."""
    made = start.facets.add(input_group=group)
    for name, items in fields.items():
        made.fields[name].context_count = context_count
        for item in items:
            made.fields[name].values.add(value=item if isinstance(item, value_pb2.Value) else value_to_proto(item))


def start_of(interface: str, *delivered: str) -> messages.ExecuteCommand:
    """A start without inputs, and with an earlier attempt's yields of texts."""
    command = start_command(1, interface, {})
    del command.start.facets[:]
    for ordinal, text in enumerate(delivered):
        command.start.delivered_yields.add(ordinal=ordinal).fields["text"].CopyFrom(value_to_proto(text))
    return command


async def told(driver: Driver, command: messages.ExecuteCommand) -> Any:
    await driver.send(command)
    (answer,) = values(await driver.finish(1), "told")
    assert isinstance(answer, Json)
    return answer.value


async def test_facets_of_a_count_join_stay_apart_and_in_order(tmp_path: Path) -> None:
    command = start_of("test.tells")
    facet(command.start, "right", text=["c"], more=["d", "e"])
    facet(command.start, "left", text=["a", "b"])
    async with driving(tmp_path, Tells()) as (_, driver):
        assert await told(driver, command) == {
            "facets": [{"group": "right", "text": ["c"], "more": ["d", "e"]}, {"group": "left", "text": ["a", "b"]}],
            "group": "right",
            "context": 0,
        }


async def test_count_join_of_nothing_runs_without_a_facet(tmp_path: Path) -> None:
    async with driving(tmp_path, Tells()) as (_, driver):
        assert await told(driver, start_of("test.tells")) == {"facets": [], "group": "", "context": 0}


async def test_left_context_is_told_apart_from_what_is_new(tmp_path: Path) -> None:
    command = start_of("test.tells")
    facet(command.start, "left", context_count=2, text=["a", "b", "c"])
    async with driving(tmp_path, Tells()) as (_, driver):
        assert (await told(driver, command))["context"] == 2


def _ordinals(results: list[Result]) -> list[int]:
    return [getattr(result, "yield").ordinal for result in results if result.WhichOneof("result") == "yield"]


async def test_attempt_that_goes_on_knows_what_was_delivered_and_counts_from_there(tmp_path: Path) -> None:
    command = start_of("test.goes_on", "a", "b", "c")
    facet(command.start, "main", text=["x"])
    command.start.yield_window = 1
    async with driving(tmp_path, GoesOn(), acks=False) as (_, driver):
        await driver.send(command)
        await eventually(lambda: driver.pending(1) == 2)  # accepted, and one yield: the delivered ones are acknowledged
        await driver.ack(1, 4)
        results = await driver.finish(1)
        assert _ordinals(results) == [3, 4]
        assert str(getattr(results[1], "yield").fields["text"].text) == "3 after ['a', 'b', 'c']"
        assert results[-1].completed.yield_count == 5


async def test_value_that_is_given_several_times_is_fetched_once(tmp_path: Path) -> None:
    class Compares(Interface):
        name = "test.compares"
        inputs = groups(tensor=Field(ValueType.TENSOR))
        outputs = {"told": Field(ValueType.JSON)}

        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            first, *others = inputs.all("tensor")
            return {"told": Json([other is first for other in others])}

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with driving(tmp_path / "a", Large()) as (_, maker), driving(tmp_path / "b", Compares()) as (_, taker):
        await maker.parameters(1, "noop.large", {"size_bytes": 100_000, "count": 2})
        one, other = (getattr(result, "yield").fields["tensor"] for result in (await maker.finish(1))[1:3])
        command = start_of("test.compares")
        facet(command.start, "main", tensor=[one, one, other])
        assert await told(taker, command) == [True, False]


async def test_delivered_yield_kept_by_another_process_is_fetched(tmp_path: Path) -> None:
    class Resumes(Interface):
        name = "test.resumes"
        inputs = groups(text=TEXT)
        outputs = {"tensor": Field(ValueType.TENSOR), "told": Field(ValueType.JSON)}

        async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
            (before,) = context.delivered
            tensor = before["tensor"]
            assert isinstance(tensor, Tensor)
            yield {"told": Json(list(tensor.shape))}

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with driving(tmp_path / "a", Large()) as (_, maker), driving(tmp_path / "b", Resumes()) as (_, taker):
        await maker.parameters(1, "noop.large", {"size_bytes": 100_000})
        command = start_of("test.resumes")
        facet(command.start, "main", text=["x"])
        command.start.delivered_yields.add().fields["tensor"].CopyFrom(
            getattr((await maker.finish(1))[1], "yield").fields["tensor"]
        )
        await taker.send(command)
        results = await taker.finish(1)
        assert kinds(results) == ["accepted", "yield", "completed"]
        assert _ordinals(results) == [1]


async def test_input_whose_keeper_is_gone_says_so_and_not_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with driving(tmp_path / "b", Swallow()) as (_, taker):
        async with driving(tmp_path / "a", Large()) as (_, maker):
            await maker.parameters(1, "noop.large", {"size_bytes": 100_000})
            tensor = getattr((await maker.finish(1))[1], "yield").fields["tensor"]
        await taker.start(1, "noop.swallow", {"tensor": tensor})
        error, is_retryable = await taker.error(1)
        assert (error.reason, is_retryable) == (Reason.REPLICA_LOST, True)
        assert "unix:" not in error.message


@pytest.mark.parametrize(
    ("spoil", "path"),
    [
        (lambda start: facet(start, "left", context_count=3, text=["a", "b"]), "facets[0].fields[text].context_count"),
        (lambda start: start.delivered_yields.add(ordinal=1), "delivered_yields[0].ordinal"),
    ],
)
async def test_start_that_contradicts_itself_is_refused_and_named(
    tmp_path: Path, spoil: Callable[[messages.StartActivation], None], path: str
) -> None:
    command = start_of("test.tells")
    spoil(command.start)
    async with driving(tmp_path, Tells()) as (_, driver):
        await driver.send(command)
        error, is_retryable = await driver.error(1)
        assert (error.reason, is_retryable) == (Reason.INVALID_FIELD, False)
        assert f"start.{path}" in error.message
