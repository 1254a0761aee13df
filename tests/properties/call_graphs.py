"""Random single-source graphs and deterministic fake interfaces for them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import strategies as st

from omniflow_core.graph.spec import (
    SOURCE,
    EdgeSpec,
    FieldSpec,
    GraphSpec,
    GroupSpec,
    NodeSpec,
    OnFailure,
    OnImpossible,
    OutputSpec,
    PlaceholderSpec,
)
from tests.properties.call_tree import Key

MOST_LOOPS = 3
"""Iterations that a fake interface asks for before it stops."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A graph, what its source yields, and a seed for the interfaces."""

    spec: GraphSpec
    source_yields: list[frozenset[str]]
    is_streaming: bool
    seed: int
    most_yields: int

    def script(self, cause: Key, node: str, group: str) -> tuple[frozenset[str], ...]:
        """Yields of an activation: how many and with which fields follows from its place in the call alone."""
        chance = random.Random(f"{self.seed}/{cause}/{node}/{group}")
        spec = next(n for n in self.spec.nodes if n.name == node)
        depth = sum(1 for step in cause if step[0] == node)
        names = [f.name for f in spec.outputs if f.name != "again" or depth < MOST_LOOPS]
        count = chance.randint(0, self.most_yields) if spec.is_streaming else 1
        return tuple(frozenset(n for n in names if chance.random() < 0.8) for _ in range(count))

    def fails(self, cause: Key, node: str, group: str) -> bool:
        """Whether an activation of a node that may be skipped fails after its yields."""
        return random.Random(f"fails/{self.seed}/{cause}/{node}/{group}").random() < 0.3


@st.composite
def shapes(draw: st.DrawFn, *, is_strict: bool = False, is_chain: bool = False) -> Shape:
    """Chains, fan-outs, alternatives, bounded loops, conditional outputs; `is_strict` graphs can fail by themselves."""
    is_streaming = draw(st.booleans())
    placeholders = ["p", "q"][: draw(st.integers(1, 2))]
    count = draw(st.integers(1, 5))
    nodes: list[NodeSpec] = []
    edges: list[EdgeSpec] = []
    outputs_of = {SOURCE: placeholders}
    for i in range(count):
        name = f"n{i}"
        has_loop = not is_chain and draw(st.integers(0, 3)) == 0
        outputs = ["y", "z"][: draw(st.integers(1, 2))] + (["again"] if has_loop else [])
        groups: list[GroupSpec] = []
        for j in range(1 if is_chain else draw(st.integers(1, 2))):
            source = list(outputs_of)[-1] if is_chain else draw(st.sampled_from(sorted(outputs_of)))
            groups.append(_connect(draw, source, outputs_of[source], name, f"g{j}", edges))
        if has_loop:
            groups.append(_connect(draw, name, ["again"], name, "loop", edges))
        outputs_of[name] = [o for o in outputs if o != "again"]
        nodes.append(_node(draw, name, groups, outputs, has_loop, is_strict))
    graph_outputs = _connect_outputs(draw, outputs_of, edges)
    spec = GraphSpec(
        name="graphs/random",
        nodes=tuple(nodes),
        edges=tuple(edges),
        placeholders=tuple(PlaceholderSpec(field=_text(p, True), is_streaming=is_streaming) for p in placeholders),
        outputs=graph_outputs,
    )
    if is_streaming:
        source_yields = [frozenset({p}) for p in draw(st.lists(st.sampled_from(placeholders), min_size=1, max_size=4))]
    else:
        source_yields = [frozenset(draw(st.sets(st.sampled_from(placeholders), min_size=1)))]
    return Shape(spec, source_yields, is_streaming, draw(st.integers(0, 2**32)), draw(st.integers(1, 3)))


def _text(name: str, is_optional: bool = False) -> FieldSpec:
    return FieldSpec(name=name, type="TEXT", is_optional=is_optional)


def _node(
    draw: st.DrawFn, name: str, groups: list[GroupSpec], outputs: list[str], has_loop: bool, is_strict: bool
) -> NodeSpec:
    return NodeSpec(
        name=name,
        interface=f"test.{name}",
        groups=tuple(groups),
        outputs=tuple(map(_text, outputs)),
        is_inline=True,
        is_streaming=draw(st.booleans()),
        on_impossible=OnImpossible.FAIL if is_strict and draw(st.booleans()) else OnImpossible.SKIP,
        on_failure=OnFailure.SKIP if draw(st.booleans()) else OnFailure.FAIL_CALL,
        yield_window=draw(st.sampled_from([0, 1, 2, 3, 8])),
        loop_bound=(draw(st.integers(1, 6)) if is_strict else 1_000) if has_loop else 0,
    )


def _connect(
    draw: st.DrawFn, source: str, fields: list[str], node: str, group: str, edges: list[EdgeSpec]
) -> GroupSpec:
    """An input group that draws on one source."""
    specs = []
    for k, source_field in enumerate(draw(st.lists(st.sampled_from(fields), min_size=1, max_size=2))):
        edges.append(
            EdgeSpec(
                source_node=source,
                source_field=source_field,
                target_node=node,
                target_group=group,
                target_field=f"f{k}",
            )
        )
        specs.append(_text(f"f{k}", draw(st.booleans())))
    return GroupSpec(name=group, fields=tuple(specs))


def _connect_outputs(
    draw: st.DrawFn, outputs_of: dict[str, list[str]], edges: list[EdgeSpec]
) -> tuple[OutputSpec, ...]:
    """Up to three graph outputs, each fed by some of the fields, ordered or not."""
    every = [(node, name) for node, names in outputs_of.items() for name in names]
    outputs = []
    for i in range(draw(st.integers(1, 3))):
        for node, name in draw(st.lists(st.sampled_from(every), min_size=1, max_size=4, unique=True)):
            edges.append(EdgeSpec(source_node=node, source_field=name, target_node=SOURCE, target_field=f"o{i}"))
        outputs.append(OutputSpec(field=_text(f"o{i}"), is_unordered=draw(st.integers(0, 2)) == 0))
    return tuple(outputs)
