"""`python -m tests.bench NAME...`: runs benches, prints a table each, writes tests/bench/results/NAME.json."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
from collections.abc import Sequence

import uvloop

from tests.bench.harness.options import Options
from tests.bench.harness.report import Report

BENCHES = ("events", "hops", "engine", "memory")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status is 1 when a promised figure misses its bound and `--strict` was asked for."""
    options = _parser().parse_args(arguments)
    names = BENCHES if "all" in options.names else tuple(options.names)
    chosen = Options(rounds=options.rounds, patience_s=options.patience, is_quick=options.quick)
    reports = [uvloop.run(_run(name, chosen)) for name in names]
    return int(options.strict and any(check.is_broken for report in reports for check in report.checks))


async def _run(name: str, options: Options) -> Report:
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
    parser.add_argument("--strict", action="store_true", help="fail when a promised figure misses its bound")
    return parser


if __name__ == "__main__":
    sys.exit(main())
