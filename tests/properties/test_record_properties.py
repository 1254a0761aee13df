"""Any call can be run again from its record: the same commands, and every value in its place."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from omniflow_core.control.commands import Command, Emit, FailCall, StartActivation
from omniflow_core.control.events import (
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    Event,
    ExitYielded,
    InputArrived,
)
from omniflow_core.control.replay import StandIn, replay
from omniflow_core.control.scheduler import CallScheduler, digest_of_text
from omniflow_server.control.recording import CallRecorder, events_of
from tests.properties.flow_case import random_plan
from tests.properties.flow_driver import FlowDriver
from tests.properties.flow_graphs import random_shape
from tests.properties.flow_values import Value

OPTIONS = {"yield_window": 4, "byte_credit": 1 << 20, "store_limit_bytes": 1 << 20}


@given(st.integers(min_value=0, max_value=2**40))
def test_any_call_is_run_again_from_its_record(seed: int) -> None:
    chance = random.Random(seed)
    driver = FlowDriver(random_shape(chance), chance, random_plan(chance))
    events = _events_of(driver)
    recorder = CallRecorder(limit_bytes=1 << 24, began_ns=0, now_ns=lambda: 0)
    scheduler = CallScheduler(
        driver.shape.plan,
        **OPTIONS,
        count_of=recorder.counting(lambda value: cast("Value", value).counted),
        digest_of=recorder.digesting(digest_of_text),
    )
    made = [recorder.handle(scheduler, event) for event in events]
    steps = list(replay(driver.shape.plan, OPTIONS, events_of(recorder.entries, recorder.texts)))
    assert all(step.agrees for step in steps)
    came = {(index, name): value for index, event in enumerate(events) for name, value in _values_of(event).items()}
    assert [[_restored(command, came) for command in step.commands] for step in steps] == [
        [_plain(command) for command in commands] for commands in made
    ]


def _events_of(driver: FlowDriver) -> list[Event]:
    """The events of a whole call."""
    events: list[Event] = []
    handle = driver.scheduler.handle

    def listen(event: Event) -> list[Command]:
        events.append(event)
        return handle(event)

    driver.scheduler.handle = listen  # type: ignore[method-assign]
    driver.run()
    return events


def _values_of(event: Event) -> Mapping[str, object]:
    match event:
        case CallAdmitted():
            return event.inputs
        case InputArrived():
            return {event.name: event.value}
        case ActivationYielded() | ExitYielded():
            return event.fields
        case ActivationFinished():
            return event.last or {}
        case _:
            return {}


def _restored(command: Command, came: Mapping[tuple[int, str], object]) -> Any:
    """The command with the values that its stand-ins stand for."""

    def value(stand_in: object) -> object:
        assert isinstance(stand_in, StandIn)
        return came[stand_in.event, stand_in.field]

    match command:
        case Emit():
            return dataclasses.replace(command, value=value(command.value))
        case StartActivation():
            facets = tuple(
                dataclasses.replace(
                    facet, fields={name: tuple(map(value, values)) for name, values in facet.fields.items()}
                )
                for facet in command.facets
            )
            return _plain(dataclasses.replace(command, facets=facets))
        case _:
            return _plain(command)


def _plain(command: Command) -> Any:
    """Plans are made anew, and a record keeps of an error what its caller needs to recognise it."""
    match command:
        case StartActivation():
            return (command.activation_id, command.node.name, command.facets, command.origin_path, command.attempt)
        case FailCall():
            return (command.error.reason, command.usage)
        case _:
            return command
