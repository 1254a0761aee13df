"""Mistakes in a graph definition, and the lines of the user's files that they point to."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass

_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a file."""

    file: str
    """As Python knows it: absolute for imported files."""
    line: int

    def __str__(self) -> str:
        """`flow.py:12`, relative where the file lies in the working directory or below it."""
        relative = os.path.relpath(self.file) if os.path.isabs(self.file) else self.file
        return f"{self.file if relative.startswith(os.pardir) else relative}:{self.line}"


class GraphError(ValueError):
    """A mistake in a graph definition, raised at the line that makes it.

    Its text is `FILE:LINE: what is wrong; what would fix it`, where the line is the caller's, outside this package.
    """

    def __init__(self, message: str) -> None:
        self.location = location_of_caller()
        super().__init__(f"{self.location}: {message}")


def location_of_caller() -> Location:
    """The line that called into this package: the nearest frame that is none of its own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the most similar known one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names else "; there is none"
