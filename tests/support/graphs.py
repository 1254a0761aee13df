"""Small graph definitions for tests of the core, written without the DSL."""

from __future__ import annotations

from omniflow_core.graph.spec import (
    SOURCE,
    EdgeSpec,
    FieldSpec,
    GraphSpec,
    GroupSpec,
    NodeSpec,
    OutputSpec,
    PlaceholderSpec,
)


def text(name: str, *, optional: bool = False) -> FieldSpec:
    """A text field."""
    return FieldSpec(name=name, type="TEXT", is_optional=optional)


def node(name: str, inputs: str = "x", outputs: str = "y", **options: object) -> NodeSpec:
    """A streaming inline node; `inputs` are the fields of group "main", a trailing ? marks an optional one."""
    fields = tuple(text(f.rstrip("?"), optional=f.endswith("?")) for f in inputs.split())
    settings: dict[str, object] = {"is_inline": True, "is_streaming": True, **options}
    return NodeSpec(
        name=name,
        interface=f"test.{name}",
        groups=(GroupSpec(name="main", fields=fields),),
        outputs=tuple(map(text, outputs.split())),
        **settings,  # type: ignore[arg-type]
    )


def edge(source: str, target: str) -> EdgeSpec:
    """`edge("a.y", "b.x")`; names without a dot are placeholders and graph outputs."""
    source_node, _, source_field = source.rpartition(".")
    target_node, _, target_field = target.rpartition(".")
    return EdgeSpec(
        source_node=source_node or SOURCE,
        source_field=source_field,
        target_node=target_node or SOURCE,
        target_field=target_field,
    )


def graph(
    nodes: tuple[NodeSpec, ...],
    edges: str,
    *,
    inputs: str = "x",
    streaming: str = "",
    outputs: str = "out",
    unordered: str = "",
) -> GraphSpec:
    """A graph of `edges` such as "x>a.x a.y>out"; names in `streaming` and `unordered` are inputs and outputs too."""
    placeholders = [PlaceholderSpec(field=text(n.rstrip("?"), optional=n.endswith("?"))) for n in inputs.split()]
    placeholders += [PlaceholderSpec(field=text(n), is_streaming=True) for n in streaming.split()]
    results = [OutputSpec(field=text(n)) for n in outputs.split()]
    results += [OutputSpec(field=text(n), is_unordered=True) for n in unordered.split()]
    return GraphSpec(
        name="graphs/test",
        nodes=nodes,
        edges=tuple(edge(*pair.split(">")) for pair in edges.split()),
        placeholders=tuple(placeholders),
        outputs=tuple(results),
    )
