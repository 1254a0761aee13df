"""Small graph definitions for tests of the core, written without the DSL.

Fields are written as marks: "x" is a text field, "x?" an optional one, "n#" one of type JSON, as counts are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniflow_core.graph.spec import (
    SOURCE,
    ChunkSpec,
    CountTriggerSpec,
    EdgeSpec,
    FieldSpec,
    GraphSpec,
    GroupSpec,
    NodeSpec,
    OutputSpec,
    PlaceholderSpec,
)

_MARKS = "?#"


def field(mark: str) -> FieldSpec:
    """The field that a mark such as "x", "x?" or "n#" stands for."""
    return FieldSpec(name=mark.rstrip(_MARKS), type="JSON" if "#" in mark else "TEXT", is_optional="?" in mark)


def fields(marks: str) -> tuple[FieldSpec, ...]:
    """The fields of a list of marks."""
    return tuple(map(field, marks.split()))


def node(name: str, inputs: str = "x", outputs: str = "y", *, counts: str = "", **options: Any) -> NodeSpec:
    """A streaming inline node.

    `inputs` are the fields of group "main", or groups by name, such as "text: emb; image: vit vae?". `counts` are the
    triggers of a count join with the field or the number that says how many: "image=n done=1".
    """
    settings: dict[str, Any] = {"is_inline": True, "is_streaming": True, **options}
    return NodeSpec(
        name=name,
        interface=f"test.{name}",
        groups=_groups(inputs),
        outputs=fields(outputs),
        activate_by_count=tuple(_trigger(*pair.split("=")) for pair in counts.split()),
        **settings,
    )


def _groups(inputs: str) -> tuple[GroupSpec, ...]:
    if ":" not in inputs:
        return (GroupSpec(name="main", fields=fields(inputs)),)
    named = (group.partition(":") for group in inputs.split(";"))
    return tuple(GroupSpec(name=name.strip(), fields=fields(marks)) for name, _, marks in named)


def _trigger(name: str, count: str) -> CountTriggerSpec:
    if count.isdigit():
        return CountTriggerSpec(field=name, constant=int(count))
    return CountTriggerSpec(field=name, count_field=count)


def edge(source: str, target: str, chunks: ChunkSpec | None = None) -> EdgeSpec:
    """`edge("a.y", "b.x")` or `edge("a.y", "b.group.x")`; names without a dot are placeholders and graph outputs."""
    source_node, _, source_field = source.rpartition(".")
    target_owner, _, target_field = target.rpartition(".")
    target_node, _, target_group = target_owner.partition(".")
    return EdgeSpec(
        source_node=source_node or SOURCE,
        source_field=source_field,
        target_node=target_node or SOURCE,
        target_group=target_group,
        target_field=target_field,
        chunks=chunks,
    )


def _edge(pair: str, chunks: ChunkSpec | None) -> EdgeSpec:
    source, _, target = pair.partition(">")
    return edge(source, target, chunks)


def graph(
    nodes: tuple[NodeSpec, ...],
    edges: str,
    *,
    inputs: str = "x",
    streaming: str = "",
    outputs: str = "out",
    unordered: str = "",
    chunks: Mapping[str, ChunkSpec] | None = None,
) -> GraphSpec:
    """A graph of `edges` such as "x>a.x a.y>b.group.x b.y>out"; `chunks` gives policies to some of them.

    Names in `streaming` and `unordered` are inputs and outputs too.
    """
    policies = dict(chunks or {})
    placeholders = [PlaceholderSpec(field=f) for f in fields(inputs)]
    placeholders += [PlaceholderSpec(field=f, is_streaming=True) for f in fields(streaming)]
    results = [OutputSpec(field=f) for f in fields(outputs)]
    results += [OutputSpec(field=f, is_unordered=True) for f in fields(unordered)]
    spec = GraphSpec(
        name="graphs/test",
        nodes=nodes,
        edges=tuple(_edge(pair, policies.pop(pair, None)) for pair in edges.split()),
        placeholders=tuple(placeholders),
        outputs=tuple(results),
    )
    assert not policies, f"no edge takes the chunk policies of {', '.join(policies)}"
    return spec
