"""The graph DSL: nodes from interfaces, edges with `>>`, and a `GraphSpec` at the end.

    graph = Graph("shout")
    text = graph.input("text", ValueType.TEXT)
    upper = graph.node("upper", Upper, inline=True)
    text >> upper.inputs.text
    upper.text >> graph.output("text", ValueType.TEXT)
    spec = graph.spec()

The DSL checks what it can see at the line where it is written (unknown fields, types that differ) and leaves the rest to
the planner, which sees every graph, also those that other languages build.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from omniflow.interface import Field, Interface
from omniflow.interface_checks import problem_of
from omniflow.values import ValueType
from omniflow.workflow.v1 import graph_spec_pb2


class GraphError(ValueError):
    """A mistake in a graph definition, raised at the line that makes it."""


_GRAPH_NAME = re.compile("[A-Za-z][A-Za-z0-9_-]*")
_IDENTIFIER = re.compile("[A-Za-z][A-Za-z0-9_]*")
"""As in proto/omniflow/workflow/v1/graph_spec.proto."""


def _check_identifier(kind: str, name: str) -> None:
    if not _IDENTIFIER.fullmatch(name):
        raise GraphError(f"{kind} {name!r}: a name is a letter, then letters, digits and _")


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(names) or 'none'}"


@dataclass(frozen=True, slots=True)
class Target:
    """Something an edge can end at: a field of an input group, or a graph output."""

    graph: Graph
    node: str
    group: str
    field: str
    type: ValueType

    def __str__(self) -> str:
        return f"{self.node}.inputs.{self.group}.{self.field}" if self.node else f"output {self.field}"


@dataclass(frozen=True, slots=True)
class Source:
    """Something an edge can start at: an output field of a node, or a graph input."""

    graph: Graph
    node: str
    field: str
    type: ValueType

    def __rshift__(self, target: Target) -> Target:
        """Adds the edge; returns its target."""
        if target.graph is not self.graph:
            raise GraphError(f"{self} and {target} belong to different graphs")
        if target.type is not self.type:
            raise GraphError(f"{self} is {self.type.name}, but {target} takes {target.type.name}")
        self.graph._add_edge(self, target)
        return target

    def __str__(self) -> str:
        return f"{self.node}.{self.field}" if self.node else f"input {self.field}"


class _GroupFields:
    """Fields of one input group, by attribute."""

    def __init__(self, node: Node, group: str, fields: Mapping[str, Field]) -> None:
        self._node, self._group, self._fields = node, group, fields

    def __getattr__(self, name: str) -> Target:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._fields:
            raise GraphError(
                f"group {self._group!r} of {self._node.name!r} has no field {name!r}{_nearest(name, self._fields)}"
            )
        return Target(self._node.graph, self._node.name, self._group, name, self._fields[name].type)

    def __getitem__(self, name: str) -> Target:
        return self.__getattr__(name)


class _NodeInputs:
    """Input groups of a node, by attribute; fields of the only group that has them directly."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def group(self, name: str) -> _GroupFields:
        """An input group by name, also where a field has the same name."""
        known = self._node.interface.inputs
        if name not in known:
            raise GraphError(f"{self._node.name!r} has no input group {name!r}{_nearest(name, known)}")
        return _GroupFields(self._node, name, known[name])

    def field(self, name: str) -> Target:
        """A field that exactly one group has."""
        known = self._node.interface.inputs
        having = [group for group, fields in known.items() if name in fields]
        if len(having) != 1:
            every = {field for fields in known.values() for field in fields}
            hint = f" in several groups ({', '.join(having)}): name the group" if having else _nearest(name, every)
            raise GraphError(f"{self._node.name!r} has {'the field' if having else 'no input field'} {name!r}{hint}")
        return getattr(self.group(having[0]), name)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> _GroupFields | Target:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.group(name) if name in self._node.interface.inputs else self.field(name)


class Node:
    """A node of a graph: its outputs are attributes, its inputs hang under `inputs`."""

    def __init__(self, graph: Graph, name: str, interface: type[Interface]) -> None:
        self.graph, self.name, self.interface = graph, name, interface
        self.inputs = _NodeInputs(self)

    def output(self, name: str) -> Source:
        """An output field by name."""
        outputs = self.interface.outputs
        if name not in outputs:
            raise GraphError(f"{self.name!r} has no output {name!r}{_nearest(name, outputs)}")
        return Source(self.graph, self.name, name, outputs[name].type)

    def __getattr__(self, name: str) -> Source:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.output(name)


class Graph:
    """A graph under construction."""

    def __init__(self, name: str, *, description: str = "") -> None:
        if not _GRAPH_NAME.fullmatch(name):
            raise GraphError(f"graph {name!r}: a name is a letter, then letters, digits, _ and -")
        self.name = name
        self._spec = graph_spec_pb2.GraphSpec(name=f"graphs/{name}", description=description)
        self._nodes: dict[str, Node] = {}

    def input(self, name: str, type: ValueType, *, optional: bool = False, streaming: bool = False) -> Source:
        """A graph-call input. `streaming` inputs take any number of values while the call runs."""
        _check_identifier("input", name)
        if any(p.field.name == name for p in self._spec.placeholders):
            raise GraphError(f"graph {self.name!r} has an input {name!r} already")
        self._spec.placeholders.add(field=_field(name, Field(type, is_optional=optional)), is_streaming=streaming)
        return Source(self, "", name, type)

    def output(self, name: str, type: ValueType, *, unordered: bool = False) -> Target:
        """A graph output. Ordered outputs keep the order of the call's tree; unordered ones only that of one activation."""
        _check_identifier("output", name)
        if any(o.field.name == name for o in self._spec.outputs):
            raise GraphError(f"graph {self.name!r} has an output {name!r} already")
        self._spec.outputs.add(field=_field(name, Field(type)), is_unordered=unordered)
        return Target(self, "", "", name, type)

    def node(
        self,
        name: str,
        interface: type[Interface],
        *,
        role: str = "",
        inline: bool = False,
        session_ordered: bool = False,
        deterministic: bool = False,
        spread: bool = False,
        yield_window: int = 0,
        loop_bound: int = 0,
        timeout_s: float | None = None,
    ) -> Node:
        """A node: `role` names who serves it, or `inline=True` runs it in the control plane."""
        if name in self._nodes:
            raise GraphError(f"graph {self.name!r} has a node {name!r} already")
        if inline == bool(role):
            raise GraphError(f"node {name!r} needs either role=... or inline=True")
        _check_identifier("node", name)
        if problem := problem_of(interface):
            raise GraphError(f"node {name!r}: {problem}")
        message = self._spec.nodes.add(
            name=name,
            interface=interface.name,
            role=role,
            is_streaming=interface.is_streaming(),
            is_inline=inline,
            is_session_ordered=session_ordered,
            is_deterministic=deterministic,
            is_spread=spread,
            yield_window=yield_window,
            loop_bound=loop_bound,
        )
        for group, fields in interface.inputs.items():
            _check_identifier("input group", group)
            message.input_groups.add(name=group, fields=[_field(n, f) for n, f in fields.items()])
        message.outputs.extend(_field(n, f) for n, f in interface.outputs.items())
        if timeout_s is not None:
            message.timeout.FromMicroseconds(round(timeout_s * 1e6))
        self._nodes[name] = Node(self, name, interface)
        return self._nodes[name]

    @property
    def interfaces(self) -> dict[str, type[Interface]]:
        """The interfaces of the nodes, by registered name."""
        return {node.interface.name: node.interface for node in self._nodes.values()}

    def spec(self) -> graph_spec_pb2.GraphSpec:
        """The definition as a message; a copy."""
        copy = graph_spec_pb2.GraphSpec()
        copy.CopyFrom(self._spec)
        return copy

    def _add_edge(self, source: Source, target: Target) -> None:
        self._spec.edges.add(
            source_node=source.node,
            source_field=source.field,
            target_node=target.node,
            target_group=target.group,
            target_field=target.field,
        )


def _field(name: str, field: Field) -> graph_spec_pb2.Field:
    _check_identifier("field", name)
    return graph_spec_pb2.Field(name=name, type=field.type.value, is_optional=field.is_optional)  # type: ignore[arg-type]
