"""What a StartActivation gives to its interface: inputs by facet, and the yields of earlier attempts that it continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from omniflow.codec.common import value_from_proto
from omniflow.common.v1 import value_pb2
from omniflow.interface import Inputs, Outputs
from omniflow.large_values import ValueFetcher, decode, remote_of
from omniflow.role.v1 import role_execution_service_pb2
from omniflow.values import Value
from omniflow_core.errors import OmniFlowError, invalid_field

StartActivation = role_execution_service_pb2.StartActivation
Given = tuple[Inputs, tuple[Outputs, ...]]
"""Inputs and delivered yields."""
_ValueOf = Callable[[value_pb2.Value, str], Value]
"""The Python value of a message; the path is for errors."""


def needs_fetch(start: StartActivation) -> bool:
    """Whether a payload is kept by another process."""
    for facet in start.facets:
        for field in facet.fields.values():
            if any(remote_of(item.value) is not None for item in field.values):
                return True
    return any(remote_of(value) is not None for one in start.delivered_yields for value in one.fields.values())


def read_inputs(start: StartActivation) -> Given:
    """What is in the message itself. Raises INVALID_FIELD for a value that cannot be decoded or a number that cannot be."""
    return _assemble(start, _read)


async def fetch_inputs(start: StartActivation, fetcher: ValueFetcher) -> Given:
    """The same with payloads of other processes, side by side; the fetcher bounds how many are on their way.

    A value that is given several times, as a companion may be, is fetched once. The first failure is raised as it is.
    """
    pending: dict[bytes, asyncio.Task[Value]] = {}
    try:
        async with asyncio.TaskGroup() as tasks:
            for message, path in _values(start):
                if remote_of(message) is not None and (key := message.SerializeToString()) not in pending:
                    pending[key] = tasks.create_task(decode(message, fetcher, path=path))
    except* OmniFlowError as errors:
        raise errors.exceptions[0] from None

    def value_of(message: value_pb2.Value, path: str) -> Value:
        return _read(message, path) if remote_of(message) is None else pending[message.SerializeToString()].result()

    return _assemble(start, value_of)


def _read(message: value_pb2.Value, path: str) -> Value:
    return value_from_proto(message, path=path)


def _values(start: StartActivation) -> Iterator[tuple[value_pb2.Value, str]]:
    """Every value, with its path."""
    for f, facet in enumerate(start.facets):
        for name, field in facet.fields.items():
            for v, item in enumerate(field.values):
                yield item.value, _input_path(f, name, v)
    for ordinal, one in enumerate(start.delivered_yields):
        for name, value in one.fields.items():
            yield value, _delivered_path(ordinal, name)


def _assemble(start: StartActivation, value_of: _ValueOf) -> Given:
    facets = tuple([_facet(f, facet, value_of) for f, facet in enumerate(start.facets)])
    inputs = facets[0] if len(facets) == 1 else Inputs("", {}, facets=facets)
    return inputs, tuple([_delivered(i, one, value_of) for i, one in enumerate(start.delivered_yields)])


def _facet(index: int, facet: role_execution_service_pb2.Facet, value_of: _ValueOf) -> Inputs:
    fields: dict[str, tuple[Value, ...]] = {}
    context: dict[str, int] = {}
    for name, field in facet.fields.items():
        fields[name] = tuple([value_of(item.value, _input_path(index, name, v)) for v, item in enumerate(field.values)])
        if field.context_count:
            context[name] = field.context_count
            if field.context_count > len(field.values):
                path = f"start.facets[{index}].fields[{name}].context_count"
                raise invalid_field(path, f"it is {field.context_count} of {len(field.values)} values")
    return Inputs(facet.input_group, fields, context=context)


def _delivered(ordinal: int, one: role_execution_service_pb2.ActivationYield, value_of: _ValueOf) -> Outputs:
    if one.ordinal != ordinal:
        raise invalid_field(f"start.delivered_yields[{ordinal}].ordinal", f"it is {one.ordinal}")
    return {name: value_of(value, _delivered_path(ordinal, name)) for name, value in one.fields.items()}


def _input_path(facet: int, field: str, index: int) -> str:
    return f"start.facets[{facet}].fields[{field}].values[{index}]"


def _delivered_path(ordinal: int, field: str) -> str:
    return f"start.delivered_yields[{ordinal}].fields[{field}]"
