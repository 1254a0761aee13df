"""Nothing happens later than it could: starts, releases of outputs, and errors, by the steps in which things happened.

When an activation can run follows from the evaluator's outcome: a single source with its yield, a chunk with its last yield or
its producer's end, a prefix join when all work that could still contribute has ended. Gates and ordered outputs may wait
for earlier siblings, and for nothing else.
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


def check_promptness(shape: Shape, record: Record, outcome: Outcome) -> None:
    """For calls without count joins, which may wait for the whole call."""
    _Promptness(shape, record, outcome).check()


@dataclass(slots=True)
class _Promptness:
    shape: Shape
    record: Record
    outcome: Outcome
    chains: Chains = field(init=False)
    ready: dict[Activation, tuple[int | None, int | None]] = field(default_factory=dict)
    """The first step in which an activation may be able to run, and the first in which it surely is; None for never."""

    def __post_init__(self) -> None:
        self.chains = Chains(self.outcome)

    def check(self) -> None:
        for activation, place in self.outcome.places.items():
            if place.kind is not None:
                self.ready[activation] = self._ready(activation, place.kind)
        for activation, ready in self.ready.items():
            if not self.shape.has_gate(activation.node):
                self._check_step(activation, ready, self.record.times.started.get(activation))
        for node, group, occurrence in self.outcome.impossible:
            _, dead = self._settled(node, group, occurrence)
            assert dead is None or dead >= self.record.times.terminal, f"{node}.{group} was impossible from step {dead} on"
        for node in self.shape.spec.nodes:
            if self.shape.has_gate(node.name):
                self._check_gate(node.name)
        for output in self.shape.spec.outputs:
            self._check_output(output.field.name, is_ordered=not output.is_unordered)

    def _check_step(self, activation: Activation, ready: tuple[int | None, int | None], started: int | None) -> None:
        first, last = ready
        assert started is None or (first is not None and first <= started), f"{activation} started before it could"
        if last is not None and last < self.record.times.terminal:
            assert started is not None, f"{activation} could start in step {last}, and never did"
            assert started <= last, f"{activation} could start in step {last}, but did in {started}"

    # --- when something can run ---------------------------------------------------------------------------------------

    def _ready(self, activation: Activation, kind: Kind) -> tuple[int | None, int | None]:
        below = self.outcome.places[activation].below
        assert below is not None, "a call without count joins"
        if kind is Kind.CHUNKS and not self._is_full(activation, below):
            step = self.record.times.ended.get(below[0])
            return step, step
        return self._settled(activation.node, activation.groups[0], below)

    def _came(self, key: Yielded) -> int | None:
        """When a yield came, or the end of its producer if it stands for that."""
        times = self.record.times
        return times.yielded.get(key) if key in self.outcome.events else times.ended.get(key[0])

    def _is_full(self, activation: Activation, last: Yielded) -> bool:
        """Whether a chunk was given with its last yield, rather than at its producer's end."""
        (group,) = activation.groups
        (policy,) = {edge.chunks for _, edge in self.shape.routes.edges_into[activation.node, group]}
        assert policy is not None
        ((_, fields, context),) = activation.inputs
        if not fields:
            return False
        ordinals = {v.ordinal for _, values in fields for v in values[:]}
        repeated = {v.ordinal for name, values in fields for v in values[: dict(context).get(name, 0)]}
        is_first = not any(
            other is not activation and other.node == activation.node and place.below and place.below[0] is last[0]
            and other.groups == activation.groups and other.inputs[0][1] and place.below[1] < last[1]
            for other, place in self.outcome.places.items()
        )
        return len(ordinals - repeated) == ((policy.first or policy.size) if is_first else policy.size)

    def _settled(self, node: str, group: str, occurrence: Yielded) -> tuple[int | None, int | None]:
        """The step in which the last work ended that could contribute; of other groups that of the yield itself.

        Where the anchor's own yields go into chunks, any of them may be the last of one until its producer ends.
        """
        times = self.record.times
        if self.shape.routes.kinds[node, group] is not Kind.PREFIX:
            return self._came(occurrence), self._came(occurrence)
        anchor = self.shape.routes.anchors[node, group]
        feeders = self.shape.routes.feeders(node, group)
        steps = [self._came(occurrence)]
        for activation, place in self.outcome.places.items():
            if activation.node in feeders:
                token = last_token_of(anchor, place.path)
                if token is not None and (token.activation, token.ordinal) == occurrence:
                    steps.append(times.ended.get(activation))
        buffers = self.shape.routes.chunked_by(anchor, feeders)
        return _last(steps), _last([*steps, times.ended.get(occurrence[0])] if buffers else steps)

    # --- what waits for earlier siblings --------------------------------------------------------------------------------

    def _check_gate(self, node: str) -> None:
        """A start waits only while its turn has not come, or another activation of the node runs."""
        times = self.record.times
        settled = self._subtrees({node} | {n for n in self.shape.routes.nodes if self.shape.routes.reaches(n, node)})
        runs = [(times.started[a], times.ended.get(a, times.terminal)) for a in self.ready if a.node == node and a in times.started]
        for activation, (first, last) in self.ready.items():
            if activation.node != node:
                continue
            self._check_step(activation, (first, None), times.started.get(activation))
            started = times.started.get(activation, times.terminal)
            free = _last([last, *self._earlier(settled, self.chains.above(activation))])
            if free is None:
                continue
            idle = [s for s in range(free, started) if not any(start <= s < end for start, end in runs)]
            assert not idle, f"{activation} waited from step {free} to {started}, but {node} was idle in {idle[0]}"

    def _check_output(self, output: str, *, is_ordered: bool) -> None:
        times = self.record.times
        feeding = {e.source_node for e in self.shape.spec.edges if not e.target_node and e.target_field == output}
        reaching = feeding | {n for n in self.shape.routes.nodes if any(self.shape.routes.reaches(n, f) for f in feeding)}
        settled = self._subtrees(reaching) if is_ordered else {}
        for value in self.outcome.emissions.get(output, []):
            key = (value.producer, value.ordinal)
            free = _last([self._came(key), *self._earlier(settled, self.chains[key])])
            came = times.emitted.get((output, value))
            if free is not None and free < times.terminal:
                assert came is not None, f"output {output} never gave {value}, free from step {free} on"
                assert came <= free, f"output {output} gave {value} in step {came}, it was free in {free}"

    def _subtrees(self, nodes: set[str]) -> dict[Activation, dict[int, int | None]]:
        """When all work of these nodes below a yield has ended, by activation and ordinal; None for never.

        The yields of what chunks draw on stay open until their producer ends, as each may be the last of a chunk.
        """
        steps: dict[Activation, dict[int, int | None]] = {}
        for activation, place in self.outcome.places.items():
            ended = self.record.times.ended.get(activation)
            if activation.node in nodes:
                for above, ordinal in self.chains.above(activation):
                    _raise(steps, self._root(above), ordinal, ended)
            if self.shape.routes.chunked_by(activation.node, nodes):
                for key in self.outcome.events:
                    if key[0] is activation:
                        for above, ordinal in self.chains[key]:
                            _raise(steps, self._root(above), ordinal, ended)
        return steps

    def _earlier(self, steps: dict[Activation, dict[int, int | None]], chain: Chain) -> Iterator[int | None]:
        """When the earlier siblings of each step of a chain had settled."""
        for activation, ordinal in chain:
            root = self._root(activation)
            yield from (step for sibling, step in steps.get(root, {}).items() if sibling < ordinal)

    def _root(self, activation: Activation) -> Activation:
        """The activation, or one that stands for all ports of the call."""
        return self.shape.source[0][0] if self.chains.is_port(activation) else activation


def _raise(steps: dict[Activation, dict[int, int | None]], activation: Activation, ordinal: int, step: int | None) -> None:
    known = steps.setdefault(activation, {})
    known[ordinal] = _last([known.get(ordinal, 0), step])


def _last(steps: Iterable[int | None]) -> int | None:
    """The last of some steps; None when one has not come."""
    found = 0
    for step in steps:
        if step is None:
            return None
        found = max(found, step)
    return found
