"""The message of a graph while it is written, and the line of the user's file behind each part of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omniflow.graph_errors import GraphError, Location, location_of_caller
from omniflow.interface import Field
from omniflow.values import ValueType
from omniflow.workflow.v1 import graph_spec_pb2

_GRAPH_NAME = re.compile("[A-Za-z][A-Za-z0-9_-]*")
_IDENTIFIER = re.compile("[A-Za-z][A-Za-z0-9_]*")
"""As in proto/omniflow/workflow/v1/graph_spec.proto."""

_PART = re.compile(r"(?:graph\.)?(\w+)\[(\d+)\]")
"""The part of a definition that a field path such as `graph.nodes[2].input_groups[0]` lies in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of an edge. `node` is empty for the graph's own inputs and outputs, `group` wherever there is none."""

    node: str = ""
    group: str = ""
    field: str
    type: ValueType


class Draft:
    """A `GraphSpec` under construction. Whatever is refused leaves nothing behind."""

    def __init__(self, name: str, description: str) -> None:
        if not isinstance(name, str) or not _GRAPH_NAME.fullmatch(name):
            raise GraphError(f"graph {name!r}: a name is a letter, then letters, digits, _ and -")
        self.name = name
        self.message = graph_spec_pb2.GraphSpec(name=f"graphs/{name}", description=description)
        self._locations: dict[str, Location] = {}
        self._edges: dict[tuple[End, End], Location] = {}

    def add_node(self, message: graph_spec_pb2.Node) -> None:
        """Adds a node."""
        self.message.nodes.append(message)
        self._note("nodes", len(self.message.nodes))

    def add_input(self, name: str, type: ValueType, *, is_optional: bool, is_streaming: bool) -> End:
        """Adds a placeholder."""
        check_name("input", name)
        if any(p.field.name == name for p in self.message.placeholders):
            raise GraphError(f"graph {self.name!r} has an input {name!r} already")
        field = field_message(name, _typed_field(f"input {name!r}", type, is_optional))
        self.message.placeholders.add(field=field, is_streaming=is_streaming)
        self._note("placeholders", len(self.message.placeholders))
        return End(field=name, type=type)

    def add_output(self, name: str, type: ValueType, *, is_unordered: bool) -> End:
        """Adds a graph output."""
        check_name("output", name)
        if any(o.field.name == name for o in self.message.outputs):
            raise GraphError(f"graph {self.name!r} has an output {name!r} already")
        field = field_message(name, _typed_field(f"output {name!r}", type))
        self.message.outputs.add(field=field, is_unordered=is_unordered)
        self._note("outputs", len(self.message.outputs))
        return End(field=name, type=type)

    def add_global_parameter(self, name: str, *, layout: str, history_field: str) -> None:
        """Adds a global parameter."""
        check_name("global parameter", name)
        if name in self.global_parameters:
            raise GraphError(f"graph {self.name!r} has a global parameter {name!r} already")
        self.message.global_parameters.add(name=name, layout=layout, history_field=history_field)
        self._note("global_parameters", len(self.message.global_parameters))

    def add_edges(self, source: End, targets: Sequence[End], chunks: graph_spec_pb2.ChunkPolicy | None) -> None:
        """Adds an edge to each target; the same one twice would give each value twice, and is refused."""
        for place, target in enumerate(targets):
            if (source, target) in self._edges:
                raise GraphError(f"this edge is there already, since {self._edges[source, target]}")
            if target in targets[:place]:
                raise GraphError(f"{target.field} is there twice, and would be given each value twice")
        for target in targets:
            self.message.edges.add(
                source_node=source.node,
                source_field=source.field,
                target_node=target.node,
                target_group=target.group,
                target_field=target.field,
                chunks=chunks,
            )
            self._edges[source, target] = self._note("edges", len(self.message.edges))

    @property
    def global_parameters(self) -> list[str]:
        """Names of the declared global parameters."""
        return [parameter.name for parameter in self.message.global_parameters]

    def location_of(self, field_path: str) -> Location | None:
        """Where the part that a path such as `edges[3].target_field` lies in was written; a node may be named instead."""
        part = _PART.match(field_path)
        if part:
            return self._locations.get(f"{part[1]}[{part[2]}]")
        named = field_path.partition(".")[0]
        index = next((i for i, node in enumerate(self.message.nodes) if node.name == named), None)
        return None if index is None else self._locations.get(f"nodes[{index}]")

    def _note(self, part: str, count: int) -> Location:
        """Remembers the caller's line for the last of `count` parts."""
        location = location_of_caller()
        self._locations[f"{part}[{count - 1}]"] = location
        return location


def check_name(kind: str, name: str) -> None:
    """Raises GraphError for what the contract takes for no name."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise GraphError(f"{kind} {name!r}: a name is a letter, then letters, digits and _")


def field_message(name: str, field: Field) -> graph_spec_pb2.Field:
    """A field as a message. Raises GraphError for a name that is none."""
    check_name("field", name)
    return graph_spec_pb2.Field(name=name, type=field.type.value, is_optional=field.is_optional)  # type: ignore[arg-type]


def fields_message(fields: Mapping[str, Field]) -> list[graph_spec_pb2.Field]:
    """Fields as messages, in their order."""
    return [field_message(name, field) for name, field in fields.items()]


def _typed_field(what: str, type: ValueType, is_optional: bool = False) -> Field:
    if not isinstance(type, ValueType):
        raise GraphError(f"{what} is of the type {type!r}, which is none; write ValueType.TEXT")
    return Field(type, is_optional)
