"""What a count join does with the deliveries it gets, decided from the whole list of them in order of admission."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from omniflow_core.graph.spec import NodeSpec, OnImpossible
from tests.properties.flow_paths import Event, Path, common_prefix, is_prefix, stable_order
from tests.properties.flow_values import FacetInputs, Inputs, Value, facet


@dataclass(frozen=True, slots=True)
class Admission:
    """One event with what each of the node's groups takes from it: group -> field -> values, one per edge."""

    event: Event
    facets: Mapping[str, Mapping[str, Sequence[Value]]]


@dataclass(slots=True)
class Decision:
    """Whether the join fires, on what, and the ways in which it must fail the call."""

    inputs: Inputs | None = None
    path: Path = ()
    cause: Event | None = None
    """The event with which it fires."""
    faults: set[tuple[str, str]] = field(default_factory=set)
    """(reason, field)"""


class _TieError(Exception):
    """Two companions are equally near; the argument names the field."""


def decide(node: NodeSpec, connected: Mapping[str, frozenset[str]], admissions: Sequence[Admission]) -> Decision:
    """`connected` names the fields of each group that edges feed."""
    join = _CountJoin(node, connected)
    decision = Decision()
    had_data = False
    for length, admission in enumerate(admissions, 1):
        had_data = had_data or any(join.is_data(name) for fields in admission.facets.values() for name in fields)
        decision.faults |= set(join.count_faults(admissions[:length]))
        if decision.faults:
            return decision
        if had_data and decision.inputs is None:
            try:
                fired = join.fire(admissions[:length])
            except _TieError as tie:
                decision.faults.add(("AMBIGUOUS_COMPANION", str(tie)))
                return decision
            if fired is not None:
                decision.inputs, decision.path = fired
                decision.cause = admission.event
    if decision.inputs is None and had_data and node.on_impossible is OnImpossible.FAIL:
        decision.faults |= {("COUNT_NOT_REACHED", name) for name in join.unmet(admissions)}
    return decision


@dataclass(slots=True)
class _CountJoin:
    node: NodeSpec
    connected: Mapping[str, frozenset[str]]
    triggers: list[str] = field(init=False)
    count_fields: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.triggers = [t.field for t in self.node.activate_by_count]
        self.count_fields = {t.field: t.count_field for t in self.node.activate_by_count if t.count_field}

    def is_data(self, name: str) -> bool:
        return name not in self.count_fields.values()

    def companions(self, group: str) -> list[str]:
        spec = next(g for g in self.node.groups if g.name == group)
        names = [f.name for f in spec.fields if not f.is_optional and f.name in self.connected.get(group, ())]
        return [n for n in names if n not in self.triggers and self.is_data(n)]

    def count_values(self, admissions: Sequence[Admission], count_field: str) -> list[int | None]:
        return [
            value.counted
            for admission in admissions
            for fields in admission.facets.values()
            for value in fields.get(count_field, ())
        ]

    def count_faults(self, admissions: Sequence[Admission]) -> Iterator[tuple[str, str]]:
        for name in self.count_fields.values():
            values = self.count_values(admissions, name)
            if any(v is None or v < 0 for v in values):
                yield "INVALID_FIELD", name
            elif len(set(values)) > 1:
                yield "COUNT_CONFLICT", name

    def wanted(self, admissions: Sequence[Admission]) -> dict[str, int | None]:
        """The count of each trigger field, None while it is not known."""
        counts: dict[str, int | None] = {}
        for trigger in self.node.activate_by_count:
            counts[trigger.field] = trigger.constant
            if trigger.count_field:
                counts[trigger.field] = next(iter(self.count_values(admissions, trigger.count_field)), None)
        return counts

    def distinct(self, admissions: Sequence[Admission], name: str) -> list[tuple[Event, str, Sequence[Value]]]:
        """The distinct events of a trigger field: each with the first group it came through."""
        found = []
        for admission in admissions:
            for group in (g.name for g in self.node.groups):
                if name in admission.facets.get(group, {}):
                    found.append((admission.event, group, admission.facets[group][name]))
                    break
        return found

    def fire(self, admissions: Sequence[Admission]) -> tuple[Inputs, Path] | None:
        """The facets and the path when everything is there."""
        selected = {}
        for name, count in self.wanted(admissions).items():
            events = self.distinct(admissions, name)
            if count is None or len(events) < count:
                return None
            selected[name] = events[:count]
        facets: list[FacetInputs] = []
        paths: list[Path] = []
        ties: list[str] = []
        for group in (g.name for g in self.node.groups):
            chosen = {name: [e for e, through, _ in events if through == group] for name, events in selected.items()}
            if not any(chosen.values()):
                continue
            fields = {
                name: [
                    value for e in stable_order(events) for f, _, values in selected[name] if f is e for value in values
                ]
                for name, events in chosen.items()
            }
            anchors = [a.event for a in admissions if any(a.event in events for events in chosen.values())]
            paths += [event.path for event in anchors]
            for name in self.companions(group):
                values: list[Value] = []
                for anchor in stable_order(anchors):
                    found = _nearest(anchor, [a for a in admissions if name in a.facets.get(group, {})])
                    if not found:
                        return None
                    ties += [name] if len(found) > 1 else []
                    values += found[0].facets[group][name]
                    paths.append(found[0].event.path)
                fields[name] = values
            facets.append(facet(group, fields))
        if ties:
            raise _TieError(ties[0])
        return tuple(facets), common_prefix(paths)

    def unmet(self, admissions: Sequence[Admission]) -> Iterator[str]:
        """Fields that the join waits for in vain."""
        wanted = self.wanted(admissions)
        short = [n for n, count in wanted.items() if count is None or len(self.distinct(admissions, n)) < count]
        yield from short
        if not short:
            yield from {name for group in self.connected for name in self.companions(group)}


def _nearest(anchor: Event, candidates: Sequence[Admission]) -> list[Admission]:
    """The nearest of the candidates that lie above or below the anchor; several when they are equally near."""
    related = [c for c in candidates if is_prefix(c.event.path, anchor.path) or is_prefix(anchor.path, c.event.path)]
    distance = [abs(len(c.event.path) - len(anchor.path)) for c in related]
    return [c for c, d in zip(related, distance, strict=True) if d == min(distance)]
