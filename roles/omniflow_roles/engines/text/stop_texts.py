"""Holds back text that may be the beginning of a stop text. Pure.

stop "STOP":   push("go ST") -> "go "     push("AND") -> "STAND"     push(" STO") -> " "     push("P!") -> "", stopped
"""

from __future__ import annotations

from collections.abc import Sequence


class StopTexts:
    """Passes text through until one of the stop texts comes; that text and what follows it are dropped."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.has_stopped = False

    @property
    def is_holding(self) -> bool:
        """Some text is not out yet."""
        return bool(self._held)

    def push(self, text: str) -> str:
        """What is certain to belong to the answer by now."""
        if self.has_stopped:
            return ""
        text = self._held + text
        ends = [end for stop in self._stops if (end := text.find(stop)) >= 0]
        if ends:
            self.has_stopped, self._held = True, ""
            return text[: min(ends)]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The held text, when no more will come."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of the text that the stop text begins with."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-size:]):
            return size
    return 0
