"""Interfaces by registered name: entry points of the group `omniflow.interfaces`, loaded only when asked for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from omniflow.flow import Flow
from omniflow.interface import ENTRY_POINT_GROUP, Interface
from omniflow_core.errors import OmniFlowError, Reason


def registered() -> dict[str, EntryPoint]:
    """Every registered interface by name; nothing is imported."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def load(name: str, flows: Iterable[Flow] = ()) -> type[Interface]:
    """The class of an interface: of one of the flows, whose files may define their own, or by its entry point.

    Raises UNKNOWN_INTERFACE naming the nearest, and INVALID_CONFIG for an entry point that is no interface of that name.
    """
    for flow in flows:
        if name in flow.graph.interfaces:
            return flow.graph.interfaces[name]
    known = registered()
    point = known.get(name)
    if point is None:
        raise OmniFlowError(Reason.UNKNOWN_INTERFACE, f"no interface {name!r} is registered{_nearest(name, known)}")
    try:
        found = point.load()
    except ImportError as error:
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"{name} cannot be loaded in this Python environment: {error.name or point.module} cannot be imported",
        ) from error
    if not (isinstance(found, type) and issubclass(found, Interface) and getattr(found, "name", None) == name):
        raise OmniFlowError(
            Reason.INVALID_CONFIG, f"the entry point {name!r} gives {point.value}, which is no Interface of that name"
        )
    return found


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; registered are {', '.join(names) or 'none'}"
