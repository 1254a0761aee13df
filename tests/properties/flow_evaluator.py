"""A slow, obviously correct evaluator of a call, on whole token paths.

Written apart from the planner and the scheduler, on purpose. It knows no leases, windows, ids or commands and follows no
order of events: a node's activations are computed anew from all yields of the nodes that feed it, node after node, until
nothing changes. The content of a bucket is then simply whatever descends from its anchor's token.

    yields of A:  A0  A1                     paths      A0        A1
    yields of B:  A0.B0  A0.B1  A1.B0                   A0.B0 ... descend from A0, so they are J's bucket of A0
    J:            one activation for A0 (B0, B1), one for A1 (B0)

Only what a count join selects is a matter of chance: for it the order is given in which yields were handled.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from omniflow_core.graph.spec import ChunkSpec, EdgeSpec, NodeSpec, OnFailure, OnImpossible
from tests.properties.flow_chunks import chunks_of
from tests.properties.flow_counts import Admission, decide
from tests.properties.flow_paths import Event, Path, Token, common_prefix, last_token_of, ordinals
from tests.properties.flow_routes import Kind, Routes, port_of
from tests.properties.flow_values import Activation, Identities, Inputs, Value, Yielded, facet


@dataclass(frozen=True, slots=True)
class Script:
    """What an activation does: the fields of its yields, and whether it fails after them."""

    yields: tuple[Mapping[str, Value], ...]
    fails: bool = False


class Fault(NamedTuple):
    """A way in which a call must fail. `group` and `missing` are those of impossible input."""

    reason: str
    node: str
    group: str = ""
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Place:
    """Where an activation stands: its output path, and the yield that it stands below in trees of order."""

    path: Path
    below: Yielded | None
    """None for what has no order with anything else: the call's source and count joins."""
    kind: Kind | None
    """None for the call's source."""
    cause: Yielded | None
    """The yield with which it can run; None for prefix joins and for chunks that wait for the end of their producer."""


@dataclass(slots=True)
class Outcome:
    """All that a call does."""

    places: dict[Activation, Place] = field(default_factory=dict)
    events: dict[Yielded, Event] = field(default_factory=dict)
    emissions: dict[str, list[Value]] = field(default_factory=lambda: defaultdict(list))
    """By graph output; those of one yield in the order of the graph's edges."""
    faults: set[Fault] = field(default_factory=set)
    impossible: list[tuple[str, str, Yielded]] = field(default_factory=list)
    """Node, group and occurrence of input that got some but not all fields, where that fails the call."""


class TooLargeError(Exception):
    """The call would start more activations than a test wants to follow."""


class UnnamedError(Exception):
    """Two activations without inputs cannot be told apart by the ordinals of their paths."""


def evaluate(
    routes: Routes,
    source: Sequence[tuple[Activation, int, Mapping[str, Value]]],
    script: Callable[[Activation], Script],
    identities: Identities,
    admitted: Mapping[Yielded, int],
    *,
    limit: int = 80,
) -> Outcome:
    """The call whose source yields `source`: (port, ordinal, values). `admitted` says when each yield was handled.

    Yields that were never handled count as handled last.
    """
    return _Evaluation(routes, source, script, identities, admitted, limit).run()


@dataclass(slots=True)
class _Started:
    activation: Activation
    place: Place


@dataclass(slots=True)
class _Evaluation:
    routes: Routes
    source: Sequence[tuple[Activation, int, Mapping[str, Value]]]
    script: Callable[[Activation], Script]
    identities: Identities
    admitted: Mapping[Yielded, int]
    limit: int
    started: dict[str, list[_Started]] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=dict)
    """By node or port; yields of an activation together and in order."""
    faults: dict[str, set[Fault]] = field(default_factory=dict)
    impossible: dict[str, list[tuple[str, str, Yielded]]] = field(default_factory=dict)

    def run(self) -> Outcome:
        self.events = {name: [] for name in self.routes.successors}
        for port, ordinal, fields in self.source:
            self.events.setdefault(port.node, []).append(Event((Token(port.node, port, ordinal),), fields))
        changed = set(self.routes.order)
        passes = 0
        while changed:
            passes += 1
            assert passes < 200, "the evaluation does not come to rest"
            for name in self.routes.order:
                if name in changed:
                    changed.discard(name)
                    if self._recompute(self.routes.nodes[name]):
                        changed.update(self.routes.successors[name])
        return self._outcome()

    def _recompute(self, node: NodeSpec) -> bool:
        """Computes the node's activations from its sources' yields; says whether they are others than before."""
        self.faults[node.name] = set()
        self.impossible[node.name] = []
        started = [s for group in self._groups(node) for s in self._start(node, group)]
        if len(started) > self.limit:
            raise TooLargeError
        if len({s.activation for s in started}) < len(started):
            raise UnnamedError
        before, self.started[node.name] = self.started.get(node.name, []), started
        if [(s.activation, s.place.path) for s in started] == [(s.activation, s.place.path) for s in before]:
            return False  # the path too: one that goes on without inputs is named alike whatever it descends from
        self.events[node.name] = [
            Event((*s.place.path, Token(node.name, s.activation, ordinal)), fields)
            for s in started
            for ordinal, fields in enumerate(self.script(s.activation).yields)
        ]
        return True

    def _groups(self, node: NodeSpec) -> list[str]:
        """Connected groups; a count join's come as one, named after the first."""
        names = [g.name for g in node.groups if (node.name, g.name) in self.routes.edges_into]
        return names[:1] if node.activate_by_count else names

    def _start(self, node: NodeSpec, group: str) -> Iterator[_Started]:
        match self.routes.kinds[node.name, group]:
            case Kind.SINGLE:
                return self._single(node, group)
            case Kind.CHUNKS:
                return self._chunked(node, group)
            case Kind.PREFIX:
                return self._prefix(node, group)
            case Kind.COUNT:
                return self._count(node)

    def _sources(self, node: str, group: str) -> list[str]:
        edges = self.routes.edges_into[node, group]
        return list(dict.fromkeys(e.source_node or port_of(self.routes.spec, e.source_field) for _, e in edges))

    def _taken(self, node: str, group: str, event: Event) -> list[tuple[int, str, Value]]:
        """What a group takes from a yield: (edge, field, value), by edge."""
        return [
            (i, edge.target_field, event.fields[edge.source_field])
            for i, edge in self.routes.edges_into[node, group]
            if _comes_from(edge, event) and edge.source_field in event.fields
        ]

    def _can_run(self, node: NodeSpec, group: str, occurrence: Yielded, given: set[str]) -> bool:
        """Whether the fields that were given are enough; notes the fault when they are some but not all."""
        required = {f.name for g in node.groups if g.name == group for f in g.fields if not f.is_optional}
        missing = required - given
        if missing and given and node.on_impossible is OnImpossible.FAIL:
            self.faults[node.name].add(Fault("IMPOSSIBLE_INPUT", node.name, group, frozenset(missing)))
            self.impossible[node.name].append((node.name, group, occurrence))
        return bool(given) and not missing

    # --- the four ways to come about --------------------------------------------------------------------------------

    def _single(self, node: NodeSpec, group: str) -> Iterator[_Started]:
        for source in self._sources(node.name, group):
            for event in self.events[source]:
                taken = self._taken(node.name, group, event)
                if self._can_run(node, group, event.key, {name for _, name, _ in taken}):
                    inputs = (facet(group, _by_field(taken)),)
                    yield self._started(node, inputs, Place(event.path, event.key, Kind.SINGLE, event.key))

    def _chunked(self, node: NodeSpec, group: str) -> Iterator[_Started]:
        (policy,) = {edge.chunks for _, edge in self.routes.edges_into[node.name, group]}
        assert policy is not None
        (source,) = self._sources(node.name, group)
        for producer, place, yields in self._producers(source):
            counted = [
                event
                for event in yields
                if self._can_run(node, group, event.key, {n for _, n, _ in self._taken(node.name, group, event)})
            ]
            yield from self._chunks(node, group, policy, counted)
            if policy.continues and counted:  # a stream that carried nothing is skipped
                end = (producer, len(yields))
                path = (*place, Token(source, *end))
                inputs = (facet(group, {}),)
                yield self._started(node, inputs, Place(path, end, Kind.CHUNKS, None))

    def _producers(self, source: str) -> Iterator[tuple[Activation, Path, list[Event]]]:
        """Activations of a node, or the port itself, each with its path and yields."""
        if source in self.started:
            for started in self.started[source]:
                own = [e for e in self.events[source] if e.key[0] is started.activation]
                yield started.activation, started.place.path, own
        elif self.events[source]:
            yield self.events[source][0].key[0], (), self.events[source]

    def _chunks(self, node: NodeSpec, group: str, policy: ChunkSpec, counted: list[Event]) -> Iterator[_Started]:
        for context_start, start, end, is_rest in chunks_of(policy, len(counted)):
            context = [t for event in counted[context_start:start] for t in self._taken(node.name, group, event)]
            taken = [t for event in counted[start:end] for t in self._taken(node.name, group, event)]
            repeats = {name: len(values) for name, values in _by_field(context).items()}
            inputs = (facet(group, _by_field(context + taken), repeats),)
            last = counted[end - 1]
            yield self._started(node, inputs, Place(last.path, last.key, Kind.CHUNKS, None if is_rest else last.key))

    def _prefix(self, node: NodeSpec, group: str) -> Iterator[_Started]:
        buckets: dict[Yielded, list[tuple[Event, int, str, Value]]] = {}
        for source in self._sources(node.name, group):
            for event in self.events[source]:
                taken = self._taken(node.name, group, event)
                if taken:
                    bucket = buckets.setdefault(self._occurrence(node.name, group, event.path), [])
                    bucket += [(event, *t) for t in taken]
        for occurrence, bucket in buckets.items():
            if self._can_run(node, group, occurrence, {name for _, _, name, _ in bucket}):
                bucket.sort(key=lambda c: (c[1], self._rank_below(occurrence, c[0].path)))
                inputs = (facet(group, _by_field([(i, name, value) for _, i, name, value in bucket])),)
                path = common_prefix([event.path for event, *_ in bucket])
                yield self._started(node, inputs, Place(path, occurrence, Kind.PREFIX, None))

    def _occurrence(self, node: str, group: str, path: Path) -> Yielded:
        """The anchor's yield that a path descends from."""
        anchor = self.routes.anchors[node, group]
        token = last_token_of(anchor, path)
        if token is not None:
            return (token.activation, token.ordinal)
        only = self.events[anchor]  # a count join that selects nothing forgets its path; its anchor yields only once
        assert len(only) == 1, f"{path} does not descend from {anchor}"
        return only[0].key

    def _rank_below(self, occurrence: Yielded, path: Path) -> list[tuple[int, int, int]]:
        """A path below its anchor's token, outermost first: (node, group, ordinal) by place in the definition."""
        names = list(self.routes.nodes)
        above = [i for i, token in enumerate(path) if (token.activation, token.ordinal) == occurrence]
        rank = []
        for token in path[above[-1] + 1 if above else 0 :]:
            groups = [g.name for g in self.routes.nodes[token.node].groups]
            group = groups.index(token.activation.groups[0]) if token.activation.groups else 0
            rank.append((names.index(token.node), group, token.ordinal))
        return rank

    def _count(self, node: NodeSpec) -> Iterator[_Started]:
        groups = [g.name for g in node.groups if (node.name, g.name) in self.routes.edges_into]
        sources = list(dict.fromkeys(s for group in groups for s in self._sources(node.name, group)))
        events = [event for source in sources for event in self.events[source]]
        events.sort(key=lambda e: (self.admitted.get(e.key, math.inf), e.key[0].digest, e.key[1]))
        admissions = []
        for event in events:
            facets = {g: _by_field(self._taken(node.name, g, event)) for g in groups}
            if any(facets.values()):
                admissions.append(Admission(event, facets))
        connected = {g: frozenset(e.target_field for _, e in self.routes.edges_into[node.name, g]) for g in groups}
        decision = decide(node, connected, admissions)
        self.faults[node.name] |= {Fault(reason, node.name) for reason, _ in decision.faults}
        if decision.inputs is not None and decision.cause is not None:
            yield self._started(node, decision.inputs, Place(decision.path, None, Kind.COUNT, decision.cause.key))

    def _started(self, node: NodeSpec, inputs: Inputs, place: Place) -> _Started:
        return _Started(self.identities.activation(node.name, inputs, ordinals(place.path)), place)

    # --- what comes of it ---------------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        outcome = Outcome()
        for port, _, _ in self.source:
            outcome.places[port] = Place((), None, None, None)
        for name, started in self.started.items():
            for each in started:
                outcome.places[each.activation] = each.place
                self._judge(self.routes.nodes[name], each.activation)
            bound = self.routes.nodes[name].loop_bound
            if bound and len(started) > bound:
                self.faults[name].add(Fault("LOOP_BOUND_EXCEEDED", name))
        if len(outcome.places) > self.limit:
            raise TooLargeError
        for faults in self.faults.values():
            outcome.faults |= faults
        outcome.impossible = [found for each in self.impossible.values() for found in each]
        for events in self.events.values():
            for event in events:
                outcome.events[event.key] = event
                for edge in self.routes.spec.edges:
                    if not edge.target_node and _comes_from(edge, event) and edge.source_field in event.fields:
                        outcome.emissions[edge.target_field].append(event.fields[edge.source_field])
        return outcome

    def _judge(self, node: NodeSpec, activation: Activation) -> None:
        """Notes how the activation itself fails the call."""
        if self.script(activation).fails and node.on_failure is OnFailure.FAIL_CALL:
            self.faults[node.name].add(Fault("INTERFACE_FAILED", node.name))


def _comes_from(edge: EdgeSpec, event: Event) -> bool:
    node = event.path[-1].node
    return edge.source_node == node if edge.source_node else node.startswith("@")


def _by_field(taken: Sequence[tuple[int, str, Value]]) -> dict[str, list[Value]]:
    fields: dict[str, list[Value]] = {}
    for _, name, value in taken:
        fields.setdefault(name, []).append(value)
    return fields
