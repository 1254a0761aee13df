"""Nothing happens later than it could: starts, releases of outputs, and errors, by the steps in which things happened.

When an activation can run follows from the evaluator's outcome: a single source with its yield, a chunk with its last yield
or its producer's end, a count join with the event that it waits for, a prefix join when all work that could still
contribute has ended. Gates and ordered outputs may wait for earlier siblings, and for nothing else. Only what may wait for
count joins that never fire is left out: those are given up when nothing else runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.properties.flow_evaluator import Outcome
from tests.properties.flow_graphs import Shape
from tests.properties.flow_order import Chain, Chains
from tests.properties.flow_paths import last_token_of
from tests.properties.flow_record import Record
from tests.properties.flow_routes import Kind
from tests.properties.flow_values import Activation, Yielded

Step = int | None
"""The step in which something happened; None when the call ended before."""

Settled = dict[Activation, dict[int, Step]]
"""When all work below a yield had ended, by activation and ordinal."""


def check_promptness(shape: Shape, record: Record, outcome: Outcome) -> None:
    """Raises AssertionError for what came too late, or too early."""
    _Promptness(shape, record, outcome).check()


@dataclass(slots=True)
class _Promptness:
    shape: Shape
    record: Record
    outcome: Outcome
    chains: Chains = field(init=False)
    ready: dict[Activation, tuple[Step, Step]] = field(default_factory=dict)
    """The first step in which an activation may be able to run, and the first in which it surely is."""

    def __post_init__(self) -> None:
        self.chains = Chains(self.outcome)

    def check(self) -> None:
        for activation, place in self.outcome.places.items():
            if place.kind is not None:
                self.ready[activation] = self._ready(activation)
        for activation, (first, last) in self.ready.items():
            is_gated = self.shape.has_gate(activation.node)
            self._check_start(activation, first, None if is_gated else last)
        for name, group, occurrence in self.outcome.impossible:
            _, dead = self._settled(name, group, occurrence)
            is_late = dead is not None and dead < self.record.times.terminal
            assert not is_late, f"{name}.{group} was impossible from step {dead} on"
        for node in self.shape.spec.nodes:
            if self.shape.has_gate(node.name) and not self._may_wait_for_counts({node.name}):
                self._check_gate(node.name)
        for output in self.shape.spec.outputs:
            self._check_output(output.field.name, is_ordered=not output.is_unordered)

    def _check_start(self, activation: Activation, first: Step, last: Step) -> None:
        started = self.record.times.started.get(activation)
        is_early = started is not None and (first is None or started < first)
        assert not is_early, f"{activation} started in step {started}, before it could"
        if last is not None and last < self.record.times.terminal:
            assert started is not None, f"{activation} could start in step {last}, and never did"
            assert started <= last, f"{activation} could start in step {last}, but did in {started}"

    # --- when something can run ---------------------------------------------------------------------------------------

    def _ready(self, activation: Activation) -> tuple[Step, Step]:
        place = self.outcome.places[activation]
        if place.cause is not None:
            return self._came(place.cause), self._came(place.cause)
        assert place.below is not None, "a count join has a cause"
        if place.kind is Kind.PREFIX:
            return self._settled(activation.node, activation.groups[0], place.below)
        ended = self.record.times.ended.get(place.below[0])
        return ended, ended

    def _came(self, key: Yielded) -> Step:
        """When a yield came, or the end of its producer if it stands for that."""
        times = self.record.times
        return times.yielded.get(key) if key in self.outcome.events else times.ended.get(key[0])

    def _settled(self, node: str, group: str, occurrence: Yielded) -> tuple[Step, Step]:
        """When the last work ended that could contribute to a bucket; of other groups, when the yield came.

        Where the anchor's own yields go into chunks, any of them may be the last of one until its producer ends.
        """
        came, routes, times = self._came(occurrence), self.shape.routes, self.record.times
        if routes.kinds[node, group] is not Kind.PREFIX:
            return came, came
        anchor, feeders = routes.anchors[node, group], routes.feeders(node, group)
        steps = [came]
        for activation, place in self.outcome.places.items():
            if activation.node in feeders:
                token = last_token_of(anchor, place.path)
                if token is None or (token.activation, token.ordinal) == occurrence:
                    steps.append(times.ended.get(activation))
        first = last = _last(steps)
        if routes.chunked_by(anchor, feeders):
            last = _last([*steps, times.ended.get(occurrence[0])])
        return first, None if routes.waits_for_count_joins(node, group) else last

    # --- what waits for earlier siblings --------------------------------------------------------------------------------

    def _check_gate(self, node: str) -> None:
        """A start waits only while its turn has not come, or another activation of the node runs."""
        times = self.record.times
        settled = self._subtrees(self._reaching({node}))
        own = [a for a in self.ready if a.node == node]
        runs = [(times.started[a], times.ended.get(a, times.terminal)) for a in own if a in times.started]
        for activation in own:
            started = times.started.get(activation, times.terminal)
            free = _last([self.ready[activation][1], *self._earlier(settled, self.chains.above(activation))])
            if free is not None:
                idle = [s for s in range(free, started) if not any(start <= s < end for start, end in runs)]
                assert not idle, f"{activation} could start in step {idle[0]}, but did in {started}"

    def _check_output(self, output: str, *, is_ordered: bool) -> None:
        times = self.record.times
        feeding = {e.source_node for e in self.shape.spec.edges if (e.target_node, e.target_field) == ("", output)}
        if is_ordered and self._may_wait_for_counts(feeding):
            return
        settled = self._subtrees(self._reaching(feeding)) if is_ordered else {}
        for value in self.outcome.emissions.get(output, []):
            key = (value.producer, value.ordinal)
            free = _last([self._came(key), *self._earlier(settled, self.chains[key])])
            came = times.emitted.get((output, value))
            if free is not None and free < times.terminal:
                assert came is not None, f"output {output} could give {value} in step {free}, and never did"
                assert came <= free, f"output {output} could give {value} in step {free}, but did in {came}"

    def _reaching(self, targets: set[str]) -> set[str]:
        """The targets and all nodes on the way to them."""
        routes = self.shape.routes
        return targets | {name for name in routes.nodes if any(routes.reaches(name, t) for t in targets if t)}

    def _may_wait_for_counts(self, targets: set[str]) -> bool:
        """Whether a bucket on the way may be open until count joins are given up."""
        routes, nodes = self.shape.routes, self._reaching(targets)
        joins = [key for key, kind in routes.kinds.items() if kind is Kind.PREFIX and key[0] in nodes]
        return any(routes.waits_for_count_joins(*key) for key in joins)

    def _subtrees(self, nodes: set[str]) -> Settled:
        """When all work of these nodes below each yield had ended.

        Yields that go into chunks are open until their producer ends, as each may be the last of a chunk.
        """
        settled: Settled = {}
        for activation in self.outcome.places:
            ended = self.record.times.ended.get(activation)
            chains = [self.chains.above(activation)] if activation.node in nodes else []
            if self.shape.routes.chunked_by(activation.node, nodes):
                chains += [self.chains[key] for key in self.outcome.events if key[0] is activation]
            for chain in chains:
                for above, ordinal in chain:
                    known = settled.setdefault(self._root(above), {})
                    known[ordinal] = _last([known.get(ordinal, 0), ended])
        return settled

    def _earlier(self, settled: Settled, chain: Chain) -> Iterator[Step]:
        """When the earlier siblings of each step of a chain had settled."""
        for activation, ordinal in chain:
            siblings = settled.get(self._root(activation), {})
            yield from (step for sibling, step in siblings.items() if sibling < ordinal)

    def _root(self, activation: Activation) -> Activation:
        """The activation, or one that stands for all ports of the call."""
        return self.shape.source[0][0] if self.chains.is_port(activation) else activation


def _last(steps: Iterable[Step]) -> Step:
    """The last of some steps; None when one of them has not come."""
    found = 0
    for step in steps:
        if step is None:
            return None
        found = max(found, step)
    return found
