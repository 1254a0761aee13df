"""Parameters of noop interfaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniflow.interface import Field, Inputs, groups
from omniflow.values import Json, ValueType
from omniflow_core.errors import invalid_field

PARAMETERS = groups(parameters=Field(ValueType.JSON))
"""One group with the field `parameters`."""


def parameters(inputs: Inputs, **defaults: Any) -> Mapping[str, Any]:
    """The parameters over their defaults. Raises INVALID_FIELD for a name or a type that has none."""
    value = inputs["parameters"]
    given = value.value if isinstance(value, Json) else None
    if not isinstance(given, dict):
        raise invalid_field("parameters", "a JSON object is wanted")
    for name, item in given.items():
        if name not in defaults:
            raise invalid_field(f"parameters.{name}", f"unknown; known are {', '.join(defaults)}")
        wanted = (int, float) if isinstance(defaults[name], float) else type(defaults[name])
        if not isinstance(item, wanted):
            raise invalid_field(f"parameters.{name}", f"a {type(defaults[name]).__name__} is wanted")
    return {**defaults, **given}
