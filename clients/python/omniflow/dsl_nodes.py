"""A node of a graph: names of its fields become the ends of edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Never

from omniflow.dsl_draft import Draft, End
from omniflow.dsl_ports import Port
from omniflow.graph_errors import GraphError, nearest
from omniflow.interface import Interface


class InputPort(Port):
    """What `node.inputs.NAME` gives: an input field, or an input group whose fields are its attributes, or both."""

    __slots__ = ("_group", "_node")

    def __init__(self, node: Node, name: str, *, group: str) -> None:
        called = f"{node.name}.inputs.{name}"
        source = f"{called} is an input: it takes values, and gives none"
        super().__init__(node._draft, called, source=source, target=node._input(name))
        self._node = node
        self._group = group

    def __getattr__(self, name: str) -> Port:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Port:
        """A field of the group, also where it is called like a method."""
        node, group = self._node, self._group
        known = node.interface.inputs.get(group)
        if known is None:
            raise GraphError(f"{self._name} is an input field; fields are named under groups only")
        if name not in known:
            raise GraphError(f"group {group!r} of {node.name!r} has no field {name!r}{nearest(name, known)}")
        called = f"{node.name}.inputs.{group}.{name}"
        return Port(
            node._draft,
            called,
            source=f"{called} is an input: it takes values, and gives none",
            target=End(node=node.name, group=group, field=name, type=known[name].type),
        )


class NodeInputs:
    """Input fields and groups of a node, by attribute: `inputs.field`, `inputs.group.field`."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    def group(self, name: str) -> InputPort:
        """An input group by name, also where a field has the same name."""
        known = self._node.interface.inputs
        if name not in known:
            raise GraphError(f"{self._node.name!r} has no input group {name!r}{nearest(name, known)}")
        return InputPort(self._node, name, group=name)

    def field(self, name: str) -> Port:
        """A field that exactly one group has."""
        end = self._node._input(name)
        if isinstance(end, str):
            raise GraphError(end)
        return self.group(end.group)[name]

    def __getattr__(self, name: str) -> InputPort:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> InputPort:
        """A group or a field by name, also where it is called like a method."""
        if name in self._node.interface.inputs:
            return self.group(name)
        end = self._node._input(name)
        if isinstance(end, str):
            raise GraphError(end)
        return InputPort(self._node, name, group="")

    def __repr__(self) -> str:
        return f"inputs of {self._node}"

    def __dir__(self) -> Iterator[str]:
        yield from ("field", "group", *self._node.interface.inputs, *_fields(self._node.interface))


class Node:
    """A node. Its fields are attributes: `node.text` left of `>>` is the output "text", right of it the input "text".

    `node.inputs.group.text` names a field that several input groups have; `node["name"]` a field that has the name of
    an attribute of every node.
    """

    __slots__ = ("_draft", "inputs", "interface", "name")

    def __init__(self, draft: Draft, name: str, interface: type[Interface]) -> None:
        self._draft = draft
        self.name = name
        self.interface = interface
        self.inputs = NodeInputs(self)

    def output(self, name: str) -> Port:
        """An output field by name."""
        end = self._output(name)
        if isinstance(end, str):
            raise GraphError(end)
        called = f"{self.name}.{name}"
        return Port(self._draft, called, source=end, target=f"{called} is an output: it gives values, and takes none")

    def __getattr__(self, name: str) -> Port:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Port:
        """The output or input field of that name."""
        if name not in self.interface.outputs and name not in _fields(self.interface):
            raise GraphError(self._unknown(name))
        return Port(self._draft, f"{self.name}.{name}", source=self._output(name), target=self._input(name))

    def __rshift__(self, target: Never) -> Never:
        """Explains that edges are drawn between fields."""
        raise GraphError(f"{self} is no source of an edge")

    __iter__ = None
    """Indexing by name makes no list of it."""

    def __dir__(self) -> Iterator[str]:
        yield from ("inputs", "interface", "name", "output", *self.interface.outputs, *_fields(self.interface))

    def __repr__(self) -> str:
        return f"node {self.name!r} (outputs: {self._outputs()}; inputs: {self._inputs()})"

    def _output(self, name: str) -> End | str:
        """The end that the output is, or why there is none."""
        outputs = self.interface.outputs
        if name in outputs:
            return End(node=self.name, field=name, type=outputs[name].type)
        if name in _fields(self.interface):
            return f"{self.name}.{name} is an input: it takes values, and gives none; outputs: {self._outputs()}"
        return f"{self.name!r} has no output {name!r}{nearest(name, outputs)}"

    def _input(self, name: str) -> End | str:
        """The end that the input field is, or why there is none."""
        groups = self.interface.inputs
        having = [group for group, fields in groups.items() if name in fields]
        if len(having) == 1:
            return End(node=self.name, group=having[0], field=name, type=groups[having[0]][name].type)
        if having:
            ways = " or ".join(f"{self.name}.inputs.{group}.{name}" for group in having)
            return f"{self.name!r} has the field {name!r} in several groups ({', '.join(having)}): write {ways}"
        if name in groups:
            field = next(iter(groups[name]), "field")
            return f"{self.name}.inputs.{name} is an input group: write {self.name}.inputs.{name}.{field}"
        if name in self.interface.outputs:
            return f"{self.name}.{name} is an output: it gives values, and takes none; inputs: {self._inputs()}"
        return f"{self.name!r} has no input field {name!r}{nearest(name, _fields(self.interface))}"

    def _unknown(self, name: str) -> str:
        if name in self.interface.inputs:
            return str(self._input(name))
        known = {*self.interface.outputs, *_fields(self.interface)}
        return f"{self.name!r} has neither an output nor an input {name!r}{nearest(name, known)}"

    def _outputs(self) -> str:
        return ", ".join(f"{self.name}.{name}" for name in self.interface.outputs) or "none"

    def _inputs(self) -> str:
        return ", ".join(f"{self.name}.{name}" for name in _fields(self.interface)) or "none"


def _fields(interface: type[Interface]) -> dict[str, None]:
    """Names of the input fields, over all groups."""
    return {name: None for fields in interface.inputs.values() for name in fields}
