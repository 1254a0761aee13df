"""Work measured as lines of Python that run: the same on every machine, so tests may compare it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(action: Callable[[], object]) -> int:
    """Lines that the action runs, in all that it calls. Loops inside C functions count as one line."""
    count = 0

    def per_line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return per_line

    before = sys.gettrace()
    sys.settrace(per_line)
    try:
        action()
    finally:
        sys.settrace(before)
    return count
