"""Interfaces without a model, for tests and benchmarks. Parameters come as a JSON object; what is left out has a default."""

from omniflow_roles.noop.failing import Cancel, Fail, Undeclared
from omniflow_roles.noop.large import Large, Mirror, Swallow
from omniflow_roles.noop.streaming import Burst, Count, CountBlocking, Progress
from omniflow_roles.noop.text import Echo, Join
from omniflow_roles.noop.waiting import Block, Sleep, Stubborn

__all__ = [
    "Block",
    "Burst",
    "Cancel",
    "Count",
    "CountBlocking",
    "Echo",
    "Fail",
    "Join",
    "Large",
    "Mirror",
    "Progress",
    "Sleep",
    "Stubborn",
    "Swallow",
    "Undeclared",
]
