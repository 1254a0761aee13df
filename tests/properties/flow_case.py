"""One fuzz case: a graph from a seed, and several interleavings of a call of it."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from omniflow_core.control.commands import FailCall
from tests.properties.flow_compare import compare
from tests.properties.flow_driver import FlowDriver
from tests.properties.flow_evaluator import Outcome, TooLargeError, UnnamedError
from tests.properties.flow_graphs import Refusals, Shape, random_shape
from tests.properties.flow_record import UNLIMITED, Plan, Record
from tests.properties.flow_routes import STATIC, Kind
from tests.properties.flow_values import Activation

INTERLEAVINGS = 8
"""Per graph, so that making and planning it costs little beside them."""


class Difference(Exception):  # noqa: N818  # it is what the fuzzer looks for, not a fault of its own
    """An interleaving whose call went wrong."""

    def __init__(self, seed: int, turn: int, error: Exception, driver: FlowDriver) -> None:
        self.message = f"{type(error).__name__}: {error}"
        super().__init__(f"case {seed}, interleaving {turn}: {self.message}")
        self.seed = seed
        self.turn = turn
        self.driver = driver
        *_, last = traceback.walk_tb(error.__traceback__)
        self.is_crash = "tests" not in last[0].f_code.co_filename.split("/")
        """The core itself raised, so nothing was left to compare."""


@dataclass(slots=True)
class Mix:
    """What was exercised, counted by interleavings."""

    interleavings: int = 0
    unjudged: int = 0
    """Interleavings beside them that the evaluator does not follow: too large, or with activations that look alike."""
    features: Counter[str] = field(default_factory=Counter)
    refusals: Refusals = field(default_factory=Refusals)

    def add(self, shape: Shape, record: Record, outcome: Outcome) -> None:
        self.interleavings += 1
        self.features.update(set(_features(shape, record, outcome)))


Plans = Callable[[random.Random], Plan]


def run_case(seed: int, mix: Mix, *, turns: int = INTERLEAVINGS, plans: Plans | None = None) -> None:
    """Raises Difference."""
    chance = random.Random(seed)
    shape = random_shape(chance, mix.refusals)
    for turn in range(turns):
        plan = (plans or random_plan)(chance)
        driver = FlowDriver(shape, random.Random(chance.getrandbits(32)), plan)
        try:
            outcome = run_interleaving(driver, seed, turn)
        except (TooLargeError, UnnamedError):
            mix.unjudged += 1
            continue
        mix.add(shape, driver.record, outcome)


def random_plan(chance: random.Random) -> Plan:
    """Mostly none but repeats; some calls are cancelled, in some an activation fails or loses its replica."""
    fate = chance.random()
    return Plan(
        repeats=chance.choice([0.0, 0.1, 0.3]),
        stop_after=chance.randint(0, 60) if fate < 0.08 else None,
        injure_after=chance.randint(1, 40) if 0.08 <= fate < 0.16 else None,
        losses=chance.choice([0.02, 0.1]) if 0.16 <= fate < 0.26 else 0.0,
        input_window=chance.randint(1, 4),
        default_window=chance.choice([1, 2, 4, 64]),
        byte_credit=chance.choice([1, 2, 4, UNLIMITED, UNLIMITED]),
        workers=chance.choice([1, 1, 2, UNLIMITED]),
        store_limit=chance.randint(1, 12) if chance.random() < 0.1 else UNLIMITED,
        **random_hosts(chance),
    )


def random_hosts(chance: random.Random) -> dict[str, Any]:
    """How many segments and pipelines replicas run themselves, and how late the control plane hears of it."""
    return {
        "hosts": chance.choice([0.0, 0.5, 1.0, 1.0]),
        "lag": chance.choice([0.0, 0.5, 0.9]),
        "pipes": chance.choice([0.0, 0.5, 1.0, 1.0]),
    }


def run_interleaving(driver: FlowDriver, seed: int = 0, turn: int = 0) -> Outcome:
    """Drives a call to its end and compares it. Raises Difference, also for what the scheduler itself raises."""
    try:
        driver.run()
        return compare(driver.shape, driver.plan, driver.record)
    except (TooLargeError, UnnamedError):
        raise  # a failure in the middle can make of a call one that the evaluator does not follow to its end
    except Exception as error:
        raise Difference(seed, turn, error, driver) from error


def _features(shape: Shape, record: Record, outcome: Outcome) -> Iterator[str]:
    """Names of what the call really did."""
    for start in record.started:
        yield from _features_of(start.activation, outcome.places[start.activation].kind)
    if isinstance(record.terminal, FailCall):
        yield f"fails {record.terminal.error.reason.value}"
    if shape.has_count_join and not any(p.kind is Kind.COUNT for p in outcome.places.values()):
        yield "count not fired"
    if record.most_held:
        yield "gate held"
    if record.cuts:
        yield "injured"
    if record.retried:
        yield "replica lost"
    if any(place.kind is not None and shape.script(a).fails for a, place in outcome.places.items()):
        yield "failed activation"
    if record.broken_hosts:
        yield "hosted segment stopped"
    if record.most_hosts > 1:
        yield "hosted segments at a time"
    yield from _features_of_hosts(shape, record, outcome)
    yield from _features_of_pipes(record)
    if len(shape.source) > 1:
        yield "streaming input"
    if any(place.kind is None and a.node == STATIC for a, place in outcome.places.items()):
        yield "single input"


def _features_of_hosts(shape: Shape, record: Record, outcome: Outcome) -> Iterator[str]:
    """Of what replicas started themselves."""
    for activation, segment in record.hosted.items():
        yield "hosted segment"
        is_join = outcome.places[activation].kind is Kind.PREFIX
        if is_join:
            yield "hosted join"
        if activation.depths[activation.node] > 1:
            yield "hosted loop"
            if is_join:
                yield "hosted join in loop"
            exits = segment.exits.get(activation.node, ())
            if any(name in fields for fields in shape.script(activation).yields for name in exits):
                yield "exit in a loop"


def _features_of_pipes(record: Record) -> Iterator[str]:
    if record.piped:
        yield "pipeline"
        if max(record.piped.values()) > 1:
            yield "pipeline of three"
    if record.most_pipes > 1:
        yield "pipelines at a time"
    if record.skipped_in_pipe:
        yield "yield skipped in a pipeline"
    if record.broken_pipes:
        yield "pipeline failed"


def _features_of(activation: Activation, kind: Kind | None) -> Iterator[str]:
    assert kind is not None, "only the source has no kind"
    yield kind.value
    values = [values for _, fields, _ in activation.inputs for _, values in fields]
    names = {name for _, fields, _ in activation.inputs for name, _ in fields}
    if activation.depths[activation.node] > 1:
        yield "loop"
        yield f"{kind.value} in loop"
    if len(activation.inputs) > 1:
        yield "count of several facets"
    if kind is Kind.COUNT and not activation.inputs:
        yield "count of nothing"
    if kind is Kind.COUNT and any(name.startswith("c") for name in names):
        yield "count with companions"
    if kind is Kind.PREFIX and any(len(v) > 1 for v in values):
        yield "prefix of lists"
    if kind is Kind.CHUNKS and any(context for _, _, context in activation.inputs):
        yield "chunks with left context"
    if kind is Kind.CHUNKS and not values:
        yield "chunks drained"
