"""One fuzz case: a graph from a seed, and several interleavings of a call of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from omniflow_core.control.commands import FailCall
from tests.properties.flow_compare import compare
from tests.properties.flow_driver import FlowDriver, Plan
from tests.properties.flow_evaluator import Outcome
from tests.properties.flow_graphs import Refusals, Shape, random_shape
from tests.properties.flow_routes import Kind

INTERLEAVINGS = 8
"""Per graph, so that making and planning it costs little beside them."""


class Difference(Exception):  # noqa: N818  # it is what the fuzzer looks for, not a fault of its own
    """An interleaving whose call went wrong."""

    def __init__(self, seed: int, turn: int, message: str, driver: FlowDriver) -> None:
        super().__init__(f"case {seed}, interleaving {turn}: {message}")
        self.seed = seed
        self.turn = turn
        self.message = message
        self.driver = driver


@dataclass(slots=True)
class Mix:
    """What was exercised, counted by interleavings."""

    interleavings: int = 0
    features: Counter[str] = field(default_factory=Counter)
    refusals: Refusals = field(default_factory=Refusals)

    def add(self, driver: FlowDriver, outcome: Outcome) -> None:
        self.interleavings += 1
        self.features.update(set(_features(driver, outcome)))


def run_case(seed: int, mix: Mix, *, turns: int = INTERLEAVINGS) -> None:
    """Raises Difference."""
    chance = random.Random(seed)
    shape = random_shape(chance, mix.refusals)
    for turn in range(turns):
        driver = FlowDriver(shape, random.Random(chance.getrandbits(32)), random_plan(chance))
        mix.add(driver, run_interleaving(driver, seed, turn))


def random_plan(chance: random.Random) -> Plan:
    """Mostly none but repeats; some calls are cancelled, in some an activation fails."""
    fate = chance.random()
    return Plan(
        repeats=chance.choice([0.0, 0.1, 0.3]),
        stop_after=chance.randint(0, 60) if fate < 0.08 else None,
        injure_after=chance.randint(1, 40) if 0.08 <= fate < 0.2 else None,
        input_window=chance.randint(1, 4),
        default_window=chance.choice([1, 2, 4, 64]),
    )


def run_interleaving(driver: FlowDriver, seed: int = 0, turn: int = 0) -> Outcome:
    """Drives a call to its end and compares it. Raises Difference, also for what the scheduler itself raises."""
    try:
        driver.run()
        return compare(driver)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise Difference(seed, turn, message, driver) from error


def _features(driver: FlowDriver, outcome: Outcome) -> Iterator[str]:
    """Names of what the call really did."""
    spec = driver.shape.spec
    for start in driver.started:
        place = outcome.places[start.activation]
        assert place.kind is not None, "only the source has no kind"
        yield place.kind.value
        values = [values for _, fields, _ in start.activation.inputs for _, values in fields]
        if place.kind is Kind.PREFIX:
            yield from ("prefix list",) if any(len(v) > 1 for v in values) else ()
        if start.activation.depths[start.activation.node] > 1:
            yield "loop"
            yield from ("prefix in loop",) if place.kind is Kind.PREFIX else ()
        if place.kind is Kind.COUNT:
            yield from ("count facets",) if len(start.activation.inputs) > 1 else ()
            yield from (
                ("count companions",)
                if any(n.startswith("c") for _, f, _ in start.activation.inputs for n, _ in f)
                else ()
            )
            yield from ("count of nothing",) if not start.activation.inputs else ()
        if place.kind is Kind.CHUNKS:
            yield from ("left context",) if any(context for _, _, context in start.activation.inputs) else ()
            yield from ("drained",) if not values else ()
    if isinstance(driver.terminal, FailCall):
        yield f"fails {driver.terminal.error.reason.value}"
    if any(n.activate_by_count for n in spec.nodes) and not any(p.kind is Kind.COUNT for p in outcome.places.values()):
        yield "count not fired"
    if driver.most_held:
        yield "gate held"
    if driver.cuts:
        yield "injured"
    if any(place.kind is not None and driver.shape.script(a).fails for a, place in outcome.places.items()):
        yield "failed activation"
    if len(driver.shape.source) > 1:
        yield "streaming input"
