"""`python -m tests.bench NAME...`: runs benches, prints a table each, writes tests/bench/results/NAME.json."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import signal
import sys
from collections.abc import Mapping, Sequence

import uvloop

from tests.bench.harness.options import Options
from tests.bench.harness.report import Report

BENCHES = (
    "core",
    "balancing",
    "events",
    "hops",
    "control",
    "yields",
    "engine",
    "memory",
    "cluster",
    "overload",
    "decoding",
)
NEEDS: Mapping[str, str] = {"decoding": "torch"}
"""By bench: a package that is not in every environment."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status is 1 when a promised figure misses its bound and `--strict` was asked for."""
    parser = _parser()
    options = parser.parse_args(arguments)
    missing = missing_packages()
    for name in missing.keys() & set(options.names):
        parser.error(f"{name} needs {missing[name]}, which is not installed here; see tests/bench/README.md")
    names = names_of_all(missing) if "all" in options.names else options.names
    chosen = Options(
        rounds=options.rounds, patience_s=options.patience, is_quick=options.quick, has_peers=options.peers
    )
    reports = [uvloop.run(_run(name, chosen)) for name in names]
    return int(options.strict and any(check.is_broken for report in reports for check in report.checks))


def missing_packages() -> Mapping[str, str]:
    """By bench: what it needs and this environment does not have."""
    return {name: package for name, package in NEEDS.items() if importlib.util.find_spec(package) is None}


def names_of_all(missing: Mapping[str, str]) -> Sequence[str]:
    """The benches that can run here; says which cannot."""
    for name, package in missing.items():
        print(f"{name}: left out, it needs {package}, which is not installed here; see tests/bench/README.md\n")
    return [name for name in BENCHES if name not in missing]


async def _run(name: str, options: Options) -> Report:
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)  # processes are ended on the way out
    bench = importlib.import_module(f"tests.bench.{name}")
    report: Report = await bench.run(options)
    path = report.write()
    print(f"{report.text()}\n{path}\n", flush=True)
    await asyncio.sleep(0)
    return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "names", nargs="+", choices=(*BENCHES, "all"), metavar="NAME", help=f"{', '.join(BENCHES)} or all"
    )
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds after a warm-up (default 9)")
    parser.add_argument(
        "--patience", type=float, default=0.0, metavar="SECONDS", help="a round may wait so long for a quiet machine"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: shows that it runs")
    parser.add_argument("--peers", action="store_true", help="control: build other systems and run them too (11 GB)")
    parser.add_argument("--strict", action="store_true", help="fail when a promised figure misses its bound")
    return parser


if __name__ == "__main__":
    sys.exit(main())
