"""Random graphs that use every part of the control flow, and deterministic fake interfaces for them.

Built from blocks that each go from one node to one node, so that nearly all of them can be planned: steps, diamonds, loops
(all of them nested), alternatives and count joins. A block is mostly served by one role, so that it can be a segment. Some
graphs get stray edges on top, kept when the planner takes them.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from omniflow_core.graph.findings import InvalidGraphError
from omniflow_core.graph.plan import GraphPlan, plan_graph
from omniflow_core.graph.spec import (
    SOURCE,
    ChunkSpec,
    CountTriggerSpec,
    EdgeSpec,
    FieldSpec,
    GraphSpec,
    GroupSpec,
    NodeSpec,
    OnFailure,
    OnImpossible,
    OutputSpec,
    PlaceholderSpec,
    Replay,
)
from tests.properties.flow_evaluator import Outcome, Script, TooLargeError, UnnamedError, evaluate
from tests.properties.flow_routes import STATIC, Routes, port_of
from tests.properties.flow_values import Activation, Identities, Value, Yielded, name_digest

MOST_NODES = 13
MOST_ACTIVATIONS = 80
MOST_LOOPS = 3
"""Iterations that a fake interface asks for before it stops."""
MOST_FATAL = 0.05
"""Chance that an activation fails whose failure ends the call, so that not all calls end early."""


@dataclass(slots=True)
class Shape:
    """A planned graph, what a call of it is given, and deterministic interfaces for it."""

    spec: GraphSpec
    seed: int
    most_yields: int
    fullness: float
    """Chance that a yield carries a field."""
    failures: float
    """Chance that an activation fails."""
    given: tuple[tuple[str, ...], ...]
    """Placeholders of each yield of the call: the single ones together first, then one streamed value each."""
    plan: GraphPlan = field(init=False)
    routes: Routes = field(init=False)
    identities: Identities = field(default_factory=Identities)
    source: list[tuple[Activation, int, Mapping[str, Value]]] = field(init=False)
    _cyclic: set[str] = field(init=False)
    _scripts: dict[Activation, Script] = field(default_factory=dict)
    _outcomes: dict[tuple[Yielded, ...], Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = plan_graph(self.spec)
        self.routes = Routes(self.spec)
        self._cyclic = {name for name in self.routes.nodes if self.routes.reaches(name, name)}
        self.source = []
        for ordinal, names in enumerate(self.given):
            port = self.identities.activation(port_of(self.spec, names[0]), ())
            self.source.append((port, ordinal, {n: self._value(port, ordinal, n) for n in names}))

    @property
    def has_count_join(self) -> bool:
        return any(n.activate_by_count for n in self.spec.nodes)

    def has_gate(self, node: str) -> bool:
        """Activations of the node run one at a time and in order."""
        spec = self.routes.nodes[node]
        return spec.is_session_ordered and not spec.activate_by_count

    def is_cyclic(self, node: str) -> bool:
        return node in self._cyclic

    def outcome(
        self, handled: Mapping[Yielded, int] | None = None, cuts: Mapping[Activation, Script] | None = None
    ) -> Outcome:
        """What must come of it. `handled` matters to count joins only; `cuts` are activations that ended otherwise."""
        admitted = handled if handled and self.has_count_join else {}
        key = tuple(admitted)
        if cuts:
            return self._evaluate(admitted, cuts)
        if key not in self._outcomes:
            self._outcomes[key] = self._evaluate(admitted, {})
        return self._outcomes[key]

    def _evaluate(self, admitted: Mapping[Yielded, int], cuts: Mapping[Activation, Script]) -> Outcome:
        # other selections and other failures make other calls
        limit = 10 * MOST_ACTIVATIONS if admitted or cuts else MOST_ACTIVATIONS

        def script(activation: Activation) -> Script:
            return cuts[activation] if activation in cuts else self.script(activation)

        return evaluate(self.routes, self.source, script, self.identities, admitted, limit=limit)

    def script(self, activation: Activation) -> Script:
        """Yields of an activation; what they are follows from what it was given alone."""
        found = self._scripts.get(activation)
        if found is None:
            found = self._scripts[activation] = self._write(activation)
        return found

    def _write(self, activation: Activation) -> Script:
        chance = random.Random(hash((self.seed, activation.digest)))
        spec = self.routes.nodes[activation.node]
        depth = activation.depths[spec.name]
        names = [f.name for f in spec.outputs if depth < (MOST_LOOPS if f.name == "again" else 2 * MOST_LOOPS)]
        count = 0 if chance.random() < 0.08 else chance.randint(1, self.most_yields) if spec.is_streaming else 1
        yields = tuple(
            {n: self._value(activation, i, n) for n in names if chance.random() < self._likelihood(n, i)}
            for i in range(count)
        )
        failures = self.failures if spec.on_failure is OnFailure.SKIP else min(self.failures, MOST_FATAL)
        return Script(yields, chance.random() < failures)

    def _likelihood(self, name: str, ordinal: int) -> float:
        """Loops go on from few yields, so that calls stay small."""
        return (0.7 if ordinal == 0 else 0.2) if name == "again" else self.fullness

    def _value(self, activation: Activation, ordinal: int, name: str) -> Value:
        if not name.startswith("n"):
            return Value(activation, ordinal, name)
        chance = random.Random(hash((self.seed, name_digest(activation.node), name_digest(name))))
        count = chance.choice([0, 1, 1, 1, 1, 2, 2, 3])
        odd = random.Random(hash((self.seed, activation.digest, ordinal))).random()
        if self.failures and odd < 0.03:
            count = chance.choice([-1, count + 1])
        return Value(activation, ordinal, name, count)


@dataclass(slots=True)
class Refusals:
    """What was generated and thrown away."""

    made: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """By the planner, by reason."""
    too_large: int = 0
    unnamed: int = 0


def random_shape(chance: random.Random, refusals: Refusals | None = None) -> Shape:
    """A graph that can be planned with a call that stays small."""
    refusals = refusals if refusals is not None else Refusals()
    while True:
        refusals.made += 1
        is_strict = chance.random() < 0.3
        try:
            spec = _Sketch(chance, is_strict).spec()
            shape = Shape(
                spec,
                chance.getrandbits(32),
                chance.choice([1, 2, 3, 3]),
                chance.choice([1.0, 0.95, 0.9, 0.7]),
                chance.choice([0.0, 0.05]) if is_strict else chance.choice([0.0, 0.1]),
                _given(chance, spec),
            )
            shape.outcome()
        except InvalidGraphError as error:
            reason = error.findings[0].reason
            refusals.refused[reason] = refusals.refused.get(reason, 0) + 1
        except TooLargeError:
            refusals.too_large += 1
        except UnnamedError:
            refusals.unnamed += 1
        else:
            return shape


def random_spec(chance: random.Random) -> GraphSpec:
    """A graph with stray edges that the planner need not take. Every node can be reached."""
    spec = _Sketch(chance, is_strict=False).spec()
    for _ in range(chance.randint(0, 4)):
        stray = _stray(chance, spec)
        spec = stray if stray is not None else spec
    return spec


def _given(chance: random.Random, spec: GraphSpec) -> tuple[tuple[str, ...], ...]:
    single = [p.field.name for p in spec.placeholders if not p.is_streaming]
    streamed = [p.field.name for p in spec.placeholders if p.is_streaming]
    first = tuple(n for n in single if chance.random() < 0.95)
    rest = [(chance.choice(streamed),) for _ in range(chance.randint(0, 5) if streamed else 0)]
    return (*((first,) if first else ()), *rest)


@dataclass(slots=True)
class _Node:
    name: str
    groups: dict[str, list[FieldSpec]]
    outputs: list[str]
    options: dict[str, object]


_End = tuple[str, str]
"""A node that others can draw on, or (SOURCE, port)."""


@dataclass(slots=True)
class _Sketch:
    """A graph while it grows."""

    chance: random.Random
    is_strict: bool
    nodes: dict[str, _Node] = field(default_factory=dict)
    edges: list[EdgeSpec] = field(default_factory=list)
    placeholders: dict[str, list[str]] = field(default_factory=dict)
    """By port."""
    seen: list[_End] = field(default_factory=list)
    """Nodes that are there already, in order."""
    roles: list[str] = field(default_factory=list)
    """What blocks are served by, the empty one being the control plane's own."""
    role: str = ""
    """What the next node is served by."""
    chained: set[str] = field(default_factory=set)
    """Nodes of chains that go from role to role, whose outputs are their own."""

    def spec(self) -> GraphSpec:
        if self._is_likely(0.75):
            self.placeholders[STATIC] = ["s", "r"][: self.chance.randint(1, 2)]
        if not self.placeholders or self._is_likely(0.3):
            self.placeholders["@p"] = ["p"]
            if self._is_likely(0.3):
                self.placeholders["@q"] = ["q"]
        self.roles = self.chance.choice([[""], ["r"], ["", "r"], ["r", "s"], ["", "r", "r", "s"]])
        self.seen = [(SOURCE, port) for port in self.placeholders]
        end = self._pick(self.seen)
        for _ in range(self.chance.randint(1, 5)):
            if self._is_likely(0.6):
                self.role = self.chance.choice(self.roles)
            end = self._block(end, 0)
            if len(self.seen) > 3 and self._is_likely(0.4):
                joined = self._count_join()
                end = joined if self._is_likely(0.4) else end
        chained: list[OutputSpec] = []
        for _ in range(self.chance.choice([0, 0, 1, 1, 2])):
            chained += self._chain(len(chained))
        outputs = (*self._outputs(), *chained)
        spec = GraphSpec(
            name="graphs/random",
            nodes=tuple(map(self._node_spec, self.nodes.values())),
            edges=tuple(self.edges),
            placeholders=tuple(
                PlaceholderSpec(field=_text(name, port == STATIC), is_streaming=port != STATIC)
                for port, names in self.placeholders.items()
                for name in names
            ),
            outputs=outputs,
        )
        return self._with_strays(spec) if self._is_likely(0.3) else spec

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _block(self, end: _End, depth: int, weights: tuple[int, int, int] = (5, 4, 3)) -> _End:
        if len(self.nodes) >= MOST_NODES:
            return end
        kind = self.chance.choices(["step", "diamond", "loop"], weights if depth < 2 else [1, 0, 0])[0]
        role = self.role
        if depth and self._is_likely(0.1):
            self.role = self.chance.choice(self.roles)
        end = {"step": self._step, "diamond": self._diamond, "loop": self._loop}[kind](end, depth)
        self.role = role
        return end

    def _step(self, end: _End, depth: int) -> _End:
        node = self._node(end, can_chunk=True)
        if self._is_likely(0.15):
            self._connect_group(self._pick(self.seen[:-1]), node, "other")
        return (node.name, "")

    def _diamond(self, end: _End, depth: int) -> _End:
        if self._is_likely(0.5):
            end = (self._node(end).name, "")
        ends = [self._branch(end, depth, i) for i in range(self.chance.choice([2, 2, 3]))]
        node = self._new_node()
        node.groups["main"] = []
        for i, branch in enumerate(ends):
            self._connect(branch, node, "main", f"f{i}")
            if self._is_likely(0.15):  # a list that two routes feed
                self._connect(branch, node, "main", f"f{max(0, i - 1)}")
        self._join_of_all_optional(node)
        return (node.name, "")

    def _branch(self, end: _End, depth: int, index: int) -> _End:
        """Of some nodes; the first one may have none."""
        most = self.chance.choice([0, 1, 1, 2]) if index == 0 else self.chance.choice([1, 1, 2])
        for _ in range(most):
            end = self._block(end, depth + 1)
        return end

    def _join_of_all_optional(self, node: _Node) -> None:
        """A group without required fields is rare."""
        fields = node.groups["main"]
        if all(f.is_optional for f in fields) and self._is_likely(0.8):
            fields[0] = dataclasses.replace(fields[0], is_optional=False)

    def _loop(self, end: _End, depth: int) -> _End:
        head = self._node(end, can_chunk=True, can_drain=True)
        tail: _End = (head.name, "")
        for _ in range(self.chance.choice([0, 1, 1, 2])):
            tail = self._block(tail, depth + 1, (2, 5, 1))
        last = self.nodes[tail[0]]
        if "again" not in last.outputs:
            last.outputs.append("again")
        self._edge(last.name, "again", head, "loop", "f0")
        head.groups["loop"] = [_text("f0")]
        if self._is_likely(0.15) and len(last.outputs) > 1:  # the way back can carry more
            self._edge(last.name, last.outputs[0], head, "loop", "f1")
            head.groups["loop"].append(_text("f1", True))
        if self._is_likely(0.1):  # or be a join
            beside = self._node(self.chance.choice([tail, (head.name, "")]))
            self._edge(beside.name, beside.outputs[0], head, "loop", "f2")
            head.groups["loop"].append(_text("f2", self._is_likely(0.5)))
        head.options["loop_bound"] = self.chance.randint(1, 8) if self.is_strict else 1_000
        return tail

    def _count_join(self) -> _End:
        """Over nodes seen so far, in one or two groups."""
        places = [end for end in self.seen if end[0]]
        node = self._new_node()
        triggers = [f"t{i}" for i in range(self.chance.randint(1, 2))]
        counts = [self._trigger(node, name) for name in triggers]
        groups = ["one", "two"][: self.chance.randint(1, 2)]
        for i, name in enumerate(triggers):
            for group in groups if self._is_likely(0.4) else [self.chance.choice(groups)]:
                source = self._pick(places)
                self._connect(source, node, group, name, is_optional=False)
                for _ in range(self.chance.choice([0, 1, 1, 2]) if i == 0 else 0):
                    companion = self._pick(self._above(source) if self._is_likely(0.85) else self.seen[:-1])
                    self._connect(companion, node, group, "c0", is_optional=False)
        for trigger in counts:
            if trigger.count_field:
                group = self.chance.choice(list(node.groups))
                source = self._pick(places[:2] if self._is_likely(0.6) else places)
                self._connect_count(source, node, group, trigger.count_field)
        node.options["activate_by_count"] = tuple(counts)
        return (node.name, "")

    def _chain(self, index: int) -> list[OutputSpec]:
        """Nodes of two roles in turn, each fed by the one before: a pipeline, unless something in it is odd."""
        chance = self.chance
        end = (SOURCE, STATIC) if STATIC in self.placeholders and self._is_likely(0.75) else self._pick(self.seen)
        if self._is_likely(0.3):
            self.role = chance.choice(self.roles)
            head = self._node(end)
            head.options["is_streaming"] = False
            end = (head.name, "")
        roles = chance.sample(["r", "s", "t"], 2)
        for i in range(chance.choice([2, 3, 3])):
            self.role = roles[i % 2]
            node = self._node(end, can_chunk=self._is_likely(0.05))
            if self._is_likely(0.97):
                node.options |= {"is_spread": False, "timeout_s": None, "is_session_ordered": False}
                node.options |= {"replay": Replay.NONE, "on_failure": OnFailure.FAIL_CALL}
            node.options["is_streaming"] = self._is_likely(0.7 if i else 0.97)
            node.options["yield_window"] = chance.choice([0, 1, 2, 3] if i else [0, 1, 2, 8, 16])
            end = (node.name, "")
            self.chained.add(node.name)
        outputs = []
        for i in range(chance.choice([1, 1, 2])):
            name = f"e{index + i}"
            for field_name in chance.choices(node.outputs, k=chance.choice([1, 1, 2])):
                edge = EdgeSpec(source_node=node.name, source_field=field_name, target_node=SOURCE, target_field=name)
                if edge not in self.edges:
                    self.edges.append(edge)
            outputs.append(OutputSpec(field=_text(name), is_unordered=self._is_likely(0.2)))
        return outputs

    def _above(self, end: _End) -> list[_End]:
        """The node and all that it descends from, the nearest last."""
        found = [end]
        for name, _ in found:  # grows while it is walked
            for edge in self.edges:
                port = next((p for p, names in self.placeholders.items() if edge.source_field in names), "")
                source = (edge.source_node, "" if edge.source_node else port)
                if edge.target_node == name and name and source not in found:
                    found.append(source)
        return found[::-1]

    def _trigger(self, node: _Node, name: str) -> CountTriggerSpec:
        if self._is_likely(0.5):
            return CountTriggerSpec(field=name, count_field=f"k{name}")
        return CountTriggerSpec(field=name, constant=self.chance.choice([0, 1, 1, 1, 1, 2, 2, 3]))

    def _connect_count(self, end: _End, node: _Node, group: str, name: str) -> None:
        source = self.nodes[end[0]]
        if "n" not in source.outputs:
            source.outputs.append("n")
        self._edge(source.name, "n", node, group, name)
        node.groups[group].append(FieldSpec(name=name, type="JSON", is_optional=self._is_likely(0.5)))

    # --- parts of a graph -----------------------------------------------------------------------------------------------

    def _node(self, end: _End, *, can_chunk: bool = False, can_drain: bool = False) -> _Node:
        """A new node whose main group draws on one source."""
        node = self._new_node()
        chunks = self._chunks(end, can_drain) if can_chunk and end[1] != STATIC and self._is_likely(0.15) else None
        self._connect_group(end, node, "main", chunks)
        return node

    def _new_node(self) -> _Node:
        chance = self.chance
        node = _Node(f"a{len(self.nodes)}", {}, ["y", "z"][: chance.randint(1, 2)], {})
        role = self.role
        node.options |= {
            "role": role,
            "is_inline": not role,
            "is_spread": chance.random() < 0.03,
            "timeout_s": 60.0 if chance.random() < 0.02 else None,
            "is_streaming": chance.random() < 0.5,
            "is_session_ordered": chance.random() < (0.06 if role else 0.12),
            "on_impossible": OnImpossible.FAIL if self.is_strict and chance.random() < 0.5 else OnImpossible.SKIP,
            "on_failure": OnFailure.FAIL_CALL if self.is_strict and chance.random() < 0.5 else OnFailure.SKIP,
            "yield_window": chance.choice([0, 1, 1, 2, 3, 4, 8]),
            "replay": self._replay(role),
            "is_deterministic": chance.random() < 0.5,
        }
        self.nodes[node.name] = node
        self.seen.append((node.name, ""))
        return node

    def _replay(self, role: str) -> Replay:
        """Mostly none where a replica may run what follows itself."""
        if role and self._is_likely(0.9):
            return Replay.NONE
        return self.chance.choice([Replay.NONE, Replay.RESTART, Replay.CONTINUE])

    def _connect_group(self, end: _End, node: _Node, group: str, chunks: ChunkSpec | None = None) -> None:
        for k in range(self.chance.choice([1, 1, 2])):
            self._connect(end, node, group, f"f{k}", chunks)
            if chunks is None and self._is_likely(0.08):
                self._connect(end, node, group, "f0")
        if chunks is not None and chunks.continues:
            node.groups[group] = [dataclasses.replace(f, is_optional=True) for f in node.groups[group]]

    def _connect(
        self,
        end: _End,
        node: _Node,
        group: str,
        name: str,
        chunks: ChunkSpec | None = None,
        *,
        is_optional: bool | None = None,
    ) -> None:
        source, port = end
        fields = self.placeholders[port] if not source else [o for o in self.nodes[source].outputs if o in "yz"]
        self._edge(source, self.chance.choice(fields), node, group, name, chunks)
        known = node.groups.setdefault(group, [])
        if all(f.name != name for f in known):
            known.append(_text(name, self._is_likely(0.25) if is_optional is None else is_optional))

    def _edge(
        self, source: str, field_name: str, node: _Node, group: str, name: str, chunks: ChunkSpec | None = None
    ) -> None:
        edge = EdgeSpec(
            source_node=source,
            source_field=field_name,
            target_node=node.name,
            target_group=group,
            target_field=name,
            chunks=chunks,
        )
        if edge not in self.edges:
            self.edges.append(edge)

    def _chunks(self, end: _End, can_drain: bool) -> ChunkSpec:
        chance = self.chance
        continues = can_drain and bool(end[0]) and chance.random() < 0.5
        size = chance.randint(1, 3)
        return ChunkSpec(
            first=chance.choice([0, 0, 1, 2, 4]),
            size=size,
            stride=chance.choice([0, 0, 1, 2, 4]),
            left_context=chance.choice([0, 0, 1, 2]),
            flush=chance.random() < 0.8,
            continues=continues,
        )

    def _outputs(self) -> tuple[OutputSpec, ...]:
        lone = [n for n in self.nodes.values() if n.name not in self.chained or self._is_likely(0.02)]
        every = [(n.name, o) for n in lone for o in n.outputs if o in "yz"]
        every += [(SOURCE, p) for names in self.placeholders.values() for p in names]
        outputs = []
        for i in range(self.chance.randint(1, 3)):
            for node, name in self.chance.sample(every, min(len(every), self.chance.randint(1, 4))):
                self.edges.append(
                    EdgeSpec(source_node=node, source_field=name, target_node=SOURCE, target_field=f"o{i}")
                )
            outputs.append(OutputSpec(field=_text(f"o{i}"), is_unordered=self._is_likely(0.25)))
        return tuple(outputs)

    def _node_spec(self, node: _Node) -> NodeSpec:
        return NodeSpec(
            name=node.name,
            interface=f"test.{node.name}",
            groups=tuple(GroupSpec(name=name, fields=tuple(fields)) for name, fields in node.groups.items()),
            outputs=tuple(FieldSpec(name=o, type="JSON" if o == "n" else "TEXT") for o in node.outputs),
            **node.options,  # type: ignore[arg-type]
        )

    def _with_strays(self, spec: GraphSpec) -> GraphSpec:
        """Up to three edges between any two nodes, kept when the planner takes them."""
        for _ in range(3):
            stray = _stray(self.chance, spec)
            if stray is None:
                continue
            try:
                plan_graph(stray)
            except InvalidGraphError:
                continue
            spec = stray
        return spec

    def _is_likely(self, share: float) -> bool:
        return self.chance.random() < share

    def _pick(self, ends: list[_End]) -> _End:
        """Later ones more often."""
        return self.chance.choice(ends[-3:] if self._is_likely(0.6) else ends)


def _stray(chance: random.Random, spec: GraphSpec) -> GraphSpec | None:
    """The graph with one more edge between two of its nodes; None when the edge would end in a chunked group."""
    source, target = chance.choice(spec.nodes), chance.choice(spec.nodes)
    group = chance.choice(target.groups)
    if any(e.chunks for e in spec.edges if (e.target_node, e.target_group) == (target.name, group.name)):
        return None
    edge = EdgeSpec(
        source_node=source.name,
        source_field=chance.choice([o.name for o in source.outputs if o.type == "TEXT"]),
        target_node=target.name,
        target_group=group.name,
        target_field=chance.choice([f.name for f in group.fields if f.type == "TEXT"]),
    )
    return dataclasses.replace(spec, edges=(*spec.edges, edge))


def _text(name: str, is_optional: bool = False) -> FieldSpec:
    return FieldSpec(name=name, type="TEXT", is_optional=is_optional)
