"""Looks for an interleaving in which the control core and the evaluator differ.

    python -m tests.properties.fuzz_control --interleavings 100000 --seed 1
    python -m tests.properties.fuzz_control --only SEED        repeats one case

Plain seeds, so that a case is repeated by its number. On a difference: the seed, the smallest graph that still shows one,
and the events that led to it; exit status 1.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.properties.flow_case import INTERLEAVINGS, Difference, Mix, run_case
from tests.properties.flow_show import show_graph, show_history
from tests.properties.flow_shrink import shrink


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz_control", description="Compares the control core with its evaluator.")
    parser.add_argument("--interleavings", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1, help="first case")
    parser.add_argument("--only", type=int, help="repeat one case")
    options = parser.parse_args(arguments)
    mix = Mix()
    try:
        if options.only is not None:
            run_case(options.only, mix)
        else:
            _run(options.seed, options.interleavings, mix)
    except Difference as difference:
        _report(difference)
        return 1
    _summarize(mix)
    return 0


def _run(seed: int, interleavings: int, mix: Mix) -> None:
    started = time.monotonic()
    next_line = started + 10
    while mix.interleavings < interleavings:
        run_case(seed, mix)
        seed += 1
        if time.monotonic() >= next_line:
            next_line += 10
            print(f"{mix.interleavings:>7} interleavings, seed {seed}, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{mix.interleavings} interleavings in {time.monotonic() - started:.0f} s, no difference", flush=True)


def _summarize(mix: Mix) -> None:
    refusals = mix.refusals
    print(
        f"graphs: {mix.interleavings // INTERLEAVINGS} run of {refusals.made} made; refused {refusals.refused or 'none'},"
    )
    print(f"        too large {refusals.too_large}, with unnamed activations {refusals.unnamed}")
    print(f"interleavings that could not be judged: {mix.unjudged}")
    for name, count in sorted(mix.features.items(), key=lambda item: -item[1]):
        print(f"  {count:>7}  {name}")


def _report(difference: Difference) -> None:
    print(f"difference in case {difference.seed}, interleaving {difference.turn}:\n{difference.message}\n", flush=True)
    smallest = shrink(difference)
    print(f"smallest case found:\n{smallest.message}\n")
    print(show_graph(smallest.driver.shape.spec))
    print(f"\n{show_history(smallest.driver.record.history)}")
    print(f"\nrepeat it with --only {difference.seed}")


if __name__ == "__main__":
    sys.exit(main())
