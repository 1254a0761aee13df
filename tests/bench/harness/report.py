"""What a bench found: one table on the terminal, one JSON file beside it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from tests.bench.harness import noise
from tests.bench.harness.noise import Noise

RESULTS = Path(__file__).resolve().parents[1] / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A figure with its bound."""

    what: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"
    is_promised: bool = True
    """False for an aim that is not reached yet: it is shown, and fails nothing."""

    @property
    def is_met(self) -> bool:
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)

    @property
    def is_broken(self) -> bool:
        """A promise that does not hold."""
        return self.is_promised and not self.is_met

    def __str__(self) -> str:
        bound = f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"
        verdict = "ok  " if self.is_met else "MISS" if self.is_promised else "    "
        kind = "hold" if self.is_promised else "aim"
        return f"{verdict}  {self.what}: {self.value:.3g} {self.unit} ({kind} {bound} {self.unit})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One more table of a report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A bench's outcome."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    checks: Sequence[Check]
    looks: Sequence[Noise]
    details: Mapping[str, object]
    notes: Sequence[str] = field(default_factory=tuple)
    sections: Sequence[Section] = field(default_factory=tuple)
    not_run: Mapping[str, str] = field(default_factory=dict)
    """Contestants that could not be measured, and why."""

    def text(self) -> str:
        """For people."""
        quiet = noise.summary(self.looks)
        lines = [self.title, *table(self.columns, self.rows)]
        for section in self.sections:
            lines += ["", section.title, *table(section.columns, section.rows)]
        lines += [*map(str, self.checks), *(f"NOT RUN  {name}: {reason}" for name, reason in self.not_run.items())]
        lines += self.notes
        lines.append(
            f"noise: others {quiet['busy_share_p50']:.0%} of the CPU typical, {quiet['busy_share_max']:.0%} worst; "
            f"spin x{quiet['spin_slowdown_p50']:.2f} typical, x{quiet['spin_slowdown_max']:.2f} worst; "
            f"timer {quiet['timer_late_p50_ms']:.2f} ms late typical, {quiet['timer_late_p99_ms']:.2f} worst; "
            f"load {quiet['load_first']:.1f} -> {quiet['load_last']:.1f} on {os.cpu_count()} cores"
        )
        return "\n".join(lines)

    def write(self) -> Path:
        """The JSON file; the newest run of a bench replaces the last."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        content = {
            "bench": self.name,
            "machine": machine(),
            "noise": {"summary": noise.summary(self.looks), "looks": noise.as_json(self.looks)},
            "checks": [{**asdict(check), "is_met": check.is_met} for check in self.checks],
            "not_run": dict(self.not_run),
            "results": self.details,
        }
        path.write_text(json.dumps(content, indent=1) + "\n")
        return path


def machine() -> dict[str, object]:
    """What the figures depend on."""
    packages = ("grpcio", "protobuf", "uvloop")
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of aligned columns; the first is text, the others are numbers."""
    widths = [max(len(row[index]) for row in (columns, *rows)) for index in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        first, *others = cells
        return "  ".join(
            (first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)))
        ).rstrip()

    return [line(columns), "  ".join("-" * width for width in widths), *map(line, rows)]


def cpu_text(cpu_us: Mapping[str, float]) -> str:
    """CPU an operation by process, such as "client 31 + server 55"."""
    return " + ".join(f"{name} {value:.0f}" for name, value in cpu_us.items())
