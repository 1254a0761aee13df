"""Who made a value: activations and values named by what they descend from, alike in the evaluator and in the driver.

An activation is told apart by its node and by the values it was given, in order. A value names its activation, so that a
value in the wrong bucket, or in the wrong place of a list, gives another activation and all that follows from it differs.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

FacetInputs = tuple[str, tuple[tuple[str, tuple["Value", ...]], ...], tuple[tuple[str, int], ...]]
"""(group, ((field, values in order), ...), ((field, leading values that are left context), ...)), fields by name."""

Inputs = tuple[FacetInputs, ...]


class Activation:
    """One execution. Made by `Identities` only, so that equal ones are the same object."""

    __slots__ = ("depths", "digest", "inputs", "node", "origin")

    def __init__(self, node: str, inputs: Inputs, origin: tuple[int, ...]) -> None:
        self.node = node
        self.inputs = inputs
        self.origin = origin
        """Ordinals of its path, where it has no inputs that would tell it apart."""
        self.digest = _digest(node, inputs, origin)
        """The same number in each run, whatever the order in which activations were made."""
        self.depths = _depths(node, inputs)
        """How many activations of each node lie on a chain to this one, itself included, at most."""

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(group for group, _, _ in self.inputs)

    def __repr__(self) -> str:
        if self.node.startswith("@"):
            return self.node
        inner = ",".join(
            f"{group}."
            + " ".join(f"{field}={list(values)}" + (f"/{dict(context)}" if context else "") for field, values in fields)
            for group, fields, context in self.inputs
        )
        return f"{self.node}({inner}{self.origin if not self.inputs else ''})"


class Value(NamedTuple):
    """The value of a field of a yield. `counted` is what a count field says, None elsewhere."""

    producer: Activation
    ordinal: int
    field: str
    counted: int | None = None

    def __repr__(self) -> str:
        return f"{self.producer!r}{self.ordinal}.{self.field}" + (
            f"={self.counted}" if self.counted is not None else ""
        )


Yielded = tuple[Activation, int]
"""A yield: its activation and its ordinal."""


class Identities:
    """Every activation that was ever seen or thought of, by what tells it apart."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Inputs, tuple[int, ...]], Activation] = {}

    def activation(self, node: str, inputs: Inputs, origin: tuple[int, ...] = ()) -> Activation:
        """The activation of a node on these inputs; `origin` counts where there are none."""
        key = (node, inputs, () if any(fields for _, fields, _ in inputs) else origin)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Activation(*key)
        return found


def facet(group: str, fields: Mapping[str, Iterable[Value]], context: Mapping[str, int] | None = None) -> FacetInputs:
    """A facet in the form that tells activations apart; fields without values do not count."""
    given = sorted((name, tuple(values)) for name, values in fields.items())
    return (
        group,
        tuple((name, values) for name, values in given if values),
        tuple(sorted((name, n) for name, n in (context or {}).items() if n)),
    )


def values_of(activation: Activation) -> list[Value]:
    """All that an activation was given."""
    return [v for _, fields, _ in activation.inputs for _, values in fields for v in values]


def name_digest(name: str) -> int:
    """A number for a name that is the same in each process."""
    return zlib.crc32(name.encode())


def _digest(node: str, inputs: Inputs, origin: tuple[int, ...]) -> int:
    parts: list[int] = [name_digest(node), *origin]
    for group, fields, _ in inputs:
        parts.append(name_digest(group))
        for name, values in fields:
            parts.append(name_digest(name))
            parts.extend(hash((v.producer.digest, v.ordinal, name_digest(v.field))) for v in values)
    return hash(tuple(parts))


def _depths(node: str, inputs: Inputs) -> dict[str, int]:
    depths: dict[str, int] = {}
    for _, fields, _ in inputs:
        for _, values in fields:
            for value in values:
                for name, depth in value.producer.depths.items():
                    if depth > depths.get(name, 0):
                        depths[name] = depth
    depths[node] = depths.get(node, 0) + 1
    return depths
