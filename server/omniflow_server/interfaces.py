"""Interfaces that the operator has registered, found by entry points without importing them."""

from __future__ import annotations

from importlib.metadata import entry_points

from omniflow.interface import ENTRY_POINT_GROUP, Interface
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.findings import nearest


def registered_interfaces() -> set[str]:
    """Names in the entry-point group `omniflow.interfaces`."""
    return {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}


def load_interface(name: str) -> type[Interface]:
    """The class of a registered interface."""
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        loaded = point.load()
        if not (isinstance(loaded, type) and issubclass(loaded, Interface)):
            raise OmniFlowError(Reason.INVALID_CONFIG, f"Entry point {name!r} is no Interface class.")
        return loaded
    raise OmniFlowError(
        Reason.UNKNOWN_INTERFACE, f"No interface {name!r} is registered. {nearest(name, registered_interfaces())}"
    )
