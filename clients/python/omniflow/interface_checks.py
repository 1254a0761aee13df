"""What is wrong with the declaration of an interface, in the words of its author."""

from __future__ import annotations

import re
from collections.abc import Mapping

from omniflow.interface import Field, Interface
from omniflow.values import ValueType

_INTERFACE_NAME = re.compile("[A-Za-z][A-Za-z0-9_.-]*")
"""As in proto/omniflow/workflow/v1/graph_spec.proto."""

_HOW = {
    "name": 'name = "demo.upper"',
    "inputs": "inputs = groups(text=Field(ValueType.TEXT))",
    "outputs": 'outputs = {"text": Field(ValueType.TEXT)}',
}


def problem_of(interface: object) -> str:
    """The first thing that is wrong, and how to write it; empty when a node can be made of the interface."""
    if not (isinstance(interface, type) and issubclass(interface, Interface)):
        return f"{interface!r} is no Interface class; give the class itself, a subclass of omniflow.Interface"
    called = interface.__name__
    missing = [what for what in _HOW if not hasattr(interface, what)]
    if missing:
        return (
            f"{called} lacks {' and '.join(missing)}; write in the class: {'; '.join(map(_HOW.__getitem__, missing))}"
        )
    if not (isinstance(interface.name, str) and interface.name):
        return f"the name of {called} is {interface.name!r}; write {_HOW['name']}"
    if not _INTERFACE_NAME.fullmatch(interface.name):
        return f"the name of {called} is {interface.name!r}; a name is a letter, then letters, digits, _, - and dots"
    if not isinstance(interface.inputs, Mapping):
        return f"the inputs of {called} are a {type(interface.inputs).__name__}; write {_HOW['inputs']}"
    for group, fields in interface.inputs.items():
        if not isinstance(fields, Mapping):
            return f"input group {group!r} of {called} holds no fields by name; write {_HOW['inputs']}"
        if problem := _problem_of_fields(f"input of {called}", fields):
            return problem
    if not isinstance(interface.outputs, Mapping):
        return f"the outputs of {called} are a {type(interface.outputs).__name__}; write {_HOW['outputs']}"
    return _problem_of_fields(f"output of {called}", interface.outputs)


def _problem_of_fields(what: str, fields: Mapping[str, object]) -> str:
    for name, field in fields.items():
        if isinstance(field, ValueType):
            return f"the {what} {name!r} is a bare ValueType; write {name}: Field(ValueType.{field.name})"
        if not isinstance(field, Field):
            return f"the {what} {name!r} is {field!r}, which is no Field; write {name}: Field(ValueType.TEXT)"
        if not isinstance(field.type, ValueType):
            return f"the {what} {name!r} is of the type {field.type!r}; write {name}: Field(ValueType.TEXT)"
    return ""
