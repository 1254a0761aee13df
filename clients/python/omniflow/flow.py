"""A flow: a graph together with the role processes that serve it. What `omniflow up` starts.

Flows are found by entry points of the group `omniflow.flows`, or in a Python file that the operator names on the command
line; both are the operator's choice, never a caller's. Importing a flow must not import an engine: the control plane
reads it in a process that stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omniflow.dsl import Graph

ENTRY_POINT_GROUP = "omniflow.flows"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePlan:
    """One role: which interfaces a process of it hosts, how many processes, and in which Python environment."""

    name: str
    interfaces: tuple[str, ...]
    """Registered interface names."""
    replicas: int = 1
    max_activations: int = 256
    """Activations that each process runs or queues at once; what is more waits in the control planes."""
    environment: str = "base"
    """Name of a Python environment that the operator's configuration maps to an interpreter."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the processes."""

    def __post_init__(self) -> None:
        """Raises TypeError for interfaces that are no names: a string would be taken for a tuple of letters."""
        if isinstance(self.interfaces, str):
            raise TypeError(
                f'role {self.name!r}: write interfaces=("{self.interfaces}",), with the comma, for one name'
            )
        wrong = next((item for item in self.interfaces if not isinstance(item, str)), None)
        if wrong is not None:
            raise TypeError(
                f"role {self.name!r}: interfaces are registered names, such as MyInterface.name; {wrong!r} is none"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A graph and its roles."""

    name: str
    graph: Graph
    roles: tuple[RolePlan, ...]
