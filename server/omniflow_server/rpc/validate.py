"""Holds requests to the rules that stand beside their fields in the contract (`omniflow.common.v1.rules`).

The rules of a message type are compiled once into closures; checking a request walks only fields that have rules, or
messages inside that have. A violation names the field by its path: `call.sampling.temperature`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from omniflow.common.v1 import rules_pb2
from omniflow_core.errors import OmniFlowError, Reason, Violation

Check = Callable[[Any, str, list[Violation]], None]
"""Looks at a message under a path and appends what it finds."""

_RULES: Any = rules_pb2.rules  # the stubs type extensions as plain descriptors

_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
    FieldDescriptor.CPPTYPE_FLOAT,
    FieldDescriptor.CPPTYPE_DOUBLE,
}


def validate(request: Message, path: str = "") -> None:
    """Raises INVALID_FIELD with every violation of the request's rules; `path` stands in front of their fields."""
    violations: list[Violation] = []
    for check in _checks_of(request.DESCRIPTOR):
        check(request, path, violations)
    if violations:
        first = violations[0]
        raise OmniFlowError(Reason.INVALID_FIELD, f"{first.field}: {first.description}", violations=violations)


@functools.cache
def _checks_of(descriptor: Descriptor) -> tuple[Check, ...]:
    checks: list[Check] = []
    for field in descriptor.fields:
        rules: rules_pb2.FieldRules = field.GetOptions().Extensions[_RULES]
        checks.extend(_own_checks(field, rules))
        if field.message_type is not None and _has_rules(field.message_type, frozenset()):
            checks.append(_inner_check(field))
    return tuple(checks)


def _has_rules(descriptor: Descriptor, above: frozenset[str]) -> bool:
    """The message, or one inside it, has rules; stops at types that contain themselves."""
    if descriptor.full_name in above:
        return False
    inside = above | {descriptor.full_name}
    return any(
        field.GetOptions().HasExtension(_RULES)
        or (field.message_type is not None and _has_rules(field.message_type, inside))
        for field in descriptor.fields
    )


def _own_checks(field: FieldDescriptor, rules: rules_pb2.FieldRules) -> list[Check]:
    checks: list[Check] = []
    if rules.required:
        checks.append(_required(field))
    if rules.max_items:
        checks.append(_max_items(field.name, rules.max_items))
    item_check = _item_check(field, rules)
    if item_check is not None:
        checks.append(_each(field, item_check))
    return checks


def _required(field: FieldDescriptor) -> Check:
    name = field.name
    has_presence = field.has_presence and field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE

    def check(message: Any, path: str, violations: list[Violation]) -> None:
        is_set = message.HasField(name) if has_presence else bool(getattr(message, name))
        if not is_set:
            violations.append(Violation(field=path + name, description="it is required"))

    return check


def _max_items(name: str, limit: int) -> Check:
    def check(message: Any, path: str, violations: list[Violation]) -> None:
        count = len(getattr(message, name))
        if count > limit:
            violations.append(Violation(field=path + name, description=f"{count} items, the limit is {limit}"))

    return check


def _item_check(field: FieldDescriptor, rules: rules_pb2.FieldRules) -> Callable[[Any], str] | None:
    """What is wrong with one value; empty when nothing is."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return _text_check(rules)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _text_check(rules) if rules.pattern else None
    minimum = rules.minimum if rules.HasField("minimum") else -math.inf
    maximum = rules.maximum if rules.HasField("maximum") else math.inf
    if minimum == -math.inf and maximum == math.inf:
        return None
    if field.cpp_type in _NUMBERS:
        return lambda value: _range_fault(value, minimum, maximum)
    if field.message_type is Duration.DESCRIPTOR:
        return lambda value: _range_fault(value.seconds + value.nanos / 1e9, minimum, maximum, " s")
    return None


def _range_fault(value: float, minimum: float, maximum: float, unit: str = "") -> str:
    if minimum <= value <= maximum:  # false for NaN too
        return ""
    shown = f"{_number(value)}{unit}"
    if minimum > -math.inf and maximum < math.inf:
        return f"{shown} is not between {_number(minimum)} and {_number(maximum)}{unit}"
    if math.isnan(value):
        return f"{shown} is no number"
    if value < minimum:
        return f"{shown} is below {_number(minimum)}{unit}"
    return f"{shown} is above {_number(maximum)}{unit}"


def _number(value: float) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _text_check(rules: rules_pb2.FieldRules) -> Callable[[Any], str] | None:
    limit = rules.max_bytes
    pattern = re.compile(rules.pattern) if rules.pattern else None
    if not limit and pattern is None:
        return None

    def fault(value: str | bytes) -> str:
        if limit and len(value) * 4 > limit:
            size = len(value.encode()) if isinstance(value, str) else len(value)
            if size > limit:
                return f"{size} bytes, the limit is {limit}"
        if pattern is not None and value and not pattern.fullmatch(value if isinstance(value, str) else value.decode()):
            return f"it must match {pattern.pattern}"
        return ""

    return fault


def _each(field: FieldDescriptor, fault: Callable[[Any], str]) -> Check:
    name = field.name
    if field.is_repeated:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry

        def check_items(message: Any, path: str, violations: list[Violation]) -> None:
            values = getattr(message, name)
            for index, value in ((key, key) for key in values) if is_map else enumerate(values):
                if found := fault(value):
                    violations.append(Violation(field=f"{path}{name}[{index}]", description=found))

        return check_items
    has_presence = field.has_presence

    def check(message: Any, path: str, violations: list[Violation]) -> None:
        if has_presence and not message.HasField(name):
            return
        if found := fault(getattr(message, name)):
            violations.append(Violation(field=path + name, description=found))

    return check


def _inner_check(field: FieldDescriptor) -> Check:
    """Checks the messages inside a field by the rules of their own type."""
    name = field.name
    inner = field.message_type
    assert inner is not None
    if inner.GetOptions().map_entry:
        value_field = inner.fields_by_name["value"]
        value_type = value_field.message_type

        def check_map(message: Any, path: str, violations: list[Violation]) -> None:
            if value_type is not None:
                for key, value in getattr(message, name).items():
                    for check in _checks_of(value_type):
                        check(value, f"{path}{name}[{key}].", violations)

        return check_map
    if field.is_repeated:

        def check_items(message: Any, path: str, violations: list[Violation]) -> None:
            for index, value in enumerate(getattr(message, name)):
                for check in _checks_of(inner):
                    check(value, f"{path}{name}[{index}].", violations)

        return check_items

    def check_inner(message: Any, path: str, violations: list[Violation]) -> None:
        if message.HasField(name):
            value = getattr(message, name)
            for check in _checks_of(inner):
                check(value, f"{path}{name}.", violations)

    return check_inner
