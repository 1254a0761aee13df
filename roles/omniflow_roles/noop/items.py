"""What travels through the noop graphs: a name that says how it was made, and what the stages on its way shall do.

    {"name": "x.a0.c1", "stages": {"h": {"delay_s": 0.05, "by_input": {"d0": {"yields": 3}}}}}

Every yield puts its node and ordinal behind the name of what it was made from, as tokens do with a path: `x.a0.c1` is the
second yield of `c` for the first yield of `a` for the caller's `x`. The item of a join has the names of its inputs beside
its own, which goes on from what they have in common.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omniflow.interface import Context, Field, groups
from omniflow.values import Json, Value, ValueType
from omniflow_core.errors import OmniFlowError, invalid_field

ITEM = Field(ValueType.JSON)
ITEM_INPUT = groups(item=ITEM)
"""One group with the field `item`."""

_HOLD_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """What a caller asks of a stage: what tests and benchmarks have a use for."""

    yields: int
    """Yields of an activation; each interface has a default of its own, and some give one whatever is asked."""
    delay_s: float = 0.0
    """Before each yield."""
    hold_at: int = -1
    """Ordinal before which the first attempt stops for a minute, after a report of progress with its process id."""
    diverges: bool = False
    """Later attempts give other values than the first."""

    async def pause(self, context: Context, ordinal: int) -> None:
        """To be called before each yield."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if ordinal == self.hold_at and context.attempt == 1:
            context.progress(ordinal, self.yields, str(os.getpid()))
            await asyncio.sleep(_HOLD_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One value of a noop graph."""

    name: str
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options by node; under `by_input` those for inputs whose names end in a part, such as "c1"."""
    inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What the last join on the way was given: names by field, in order."""
    is_last: bool = False
    """Made from the last frame of a request."""

    @classmethod
    def of(cls, value: Value) -> Item:
        """Raises INVALID_FIELD for what is no item."""
        given = value.value if isinstance(value, Json) else None
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise invalid_field("item", 'an object such as {"name": "x", "stages": {}} is wanted')
        stages = given.get("stages", {})
        if not isinstance(stages, dict) or not all(isinstance(options, dict) for options in stages.values()):
            raise invalid_field("item.stages", "an object with options by node is wanted")
        return cls(
            name=given["name"],
            stages=stages,
            inputs=given.get("inputs", {}),
            is_last=given.get("is_last") is True,
        )

    @classmethod
    def joined(cls, fields: Mapping[str, Iterable[Value]]) -> Item:
        """What items have in common; at least one is wanted."""
        items = {name: [cls.of(value) for value in values] for name, values in fields.items()}
        every = [item for of_field in items.values() for item in of_field]
        names = {name: [item.name for item in of_field] for name, of_field in items.items()}
        return dataclasses.replace(every[0], name=_common(item.name for item in every), inputs=names)

    def value(self) -> Json:
        """The item as a value of a field."""
        inputs = {name: list(names) for name, names in self.inputs.items()}
        return Json({"name": self.name, "stages": dict(self.stages), "inputs": inputs, "is_last": self.is_last})

    def options(self, context: Context, *, yields: int = 1) -> StageOptions:
        """What the running node shall do with this item. Raises INVALID_FIELD for an option that there is not."""
        asked = dict(self.stages.get(context.node, {}))
        by_input = asked.pop("by_input", {})
        asked |= by_input.get(self.name.rpartition(".")[2], {})
        try:
            options = StageOptions(**{"yields": yields, **asked})
        except TypeError:
            raise _unknown(context.node, asked) from None
        return dataclasses.replace(options, yields=int(options.yields))  # numbers are doubles on the wire

    def made(self, context: Context, ordinal: int, options: StageOptions, *, is_last: bool = False) -> Item:
        """The item of a yield of the running node."""
        attempt = f"!{context.attempt}" if options.diverges and context.attempt > 1 else ""
        name = f"{self.name}.{context.node}{ordinal}{attempt}"
        return dataclasses.replace(self, name=name, is_last=self.is_last or is_last)


def _common(names: Iterable[str]) -> str:
    """The parts that all names begin with."""
    columns = zip(*(name.split(".") for name in names), strict=False)
    return ".".join(column[0] for column in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


def _unknown(node: str, asked: Mapping[str, Any]) -> OmniFlowError:
    known = ", ".join(option.name for option in dataclasses.fields(StageOptions))
    return invalid_field(f"item.stages.{node}", f"{', '.join(asked)} are given; known are {known}, by_input")
