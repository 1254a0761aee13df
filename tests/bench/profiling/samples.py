"""What a sampler saw, as tables of functions. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LIBRARY = re.compile(r"^.*/(site-packages|lib/python3\.\d+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Counts by function: where a sample found the main thread, and which calls it was in."""

    cpu_s: float
    """Of the process while samples were taken."""
    main_cpu_s: float
    """Of the main thread alone."""
    own: Counter[str]
    cumulative: Counter[str]

    @classmethod
    def of(cls, content: Mapping[str, Any], root: str) -> Samples:
        """From what a sampler wrote. Functions of files below the folder `root` are named by their path from there."""
        own: Counter[str] = Counter()
        cumulative: Counter[str] = Counter()
        for seen in content["stacks"]:
            names = [_name(*place, root=root) for place in seen["stack"]]
            own[names[0]] += seen["count"]
            for name in set(names):  # a function that calls itself counts once
                cumulative[name] += seen["count"]
        return cls(cpu_s=content["cpu_s"], main_cpu_s=content["main_cpu_s"], own=own, cumulative=cumulative)

    def lines(self, operations: int, top: int = 40) -> list[str]:
        """The functions with most own and most cumulative time, in CPU microseconds an operation."""
        total_us, main_us = (cpu_s / operations * 1e6 for cpu_s in (self.cpu_s, self.main_cpu_s))
        return [
            f"{self.own.total()} samples of {total_us:.1f} us CPU an operation, {main_us:.1f} of them in the main thread",
            "",
            "own time",
            *self._table(self.own, total_us, top),
            "",
            "with what it calls",
            *self._table(self.cumulative, total_us, top),
        ]

    def _table(self, counts: Counter[str], total_us: float, top: int) -> Sequence[str]:
        total = self.own.total()
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [f"{count / total:7.1%} {count / total * total_us:9.2f} us  {name}" for name, count in ordered[:top]]


def _name(file: str, line: int, function: str, *, root: str) -> str:
    path = file.removeprefix(f"{root}/") if "site-packages" not in file else file
    return f"{_LIBRARY.sub('', path)}:{line} {function}"
