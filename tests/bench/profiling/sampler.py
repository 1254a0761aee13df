"""Runs a module and samples what it does, between two signals.

    python -m tests.bench.profiling.sampler OUT.json -m omniflow_server.launch.control settings.json

SIGUSR1 begins, SIGUSR2 ends and writes OUT.json: how often each stack was seen, and the CPU time meanwhile. A sample comes
whenever the process has used CPU time (SIGPROF, at most one a tick of the kernel), so what waits is not seen. The stack is
that of the main thread, where the event loop is: CPU time of gRPC's own threads counts for whatever the loop does at that
moment. Sampling, not tracing: cProfile makes small functions several times as slow, and their calls look like the work.
"""

from __future__ import annotations

import json
import runpy
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

PERIOD_S = 0.001

_Place = tuple[str, int, str]
"""File, first line and name of a function."""


class Sampler:
    """Counts stacks."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._stacks: Counter[tuple[_Place, ...]] = Counter()
        self._began_s = 0.0, 0.0

    def install(self) -> None:
        """Waits for the signals."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.signal(signal.SIGUSR1, self._begin)
        signal.signal(signal.SIGUSR2, self._end)

    def _begin(self, number: int, frame: FrameType | None) -> None:
        self._stacks.clear()
        self._began_s = time.process_time(), time.thread_time()
        signal.setitimer(signal.ITIMER_PROF, PERIOD_S, PERIOD_S)

    def _end(self, number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        cpu_s, main_cpu_s = time.process_time() - self._began_s[0], time.thread_time() - self._began_s[1]
        stacks = [{"stack": stack, "count": count} for stack, count in self._stacks.items()]
        written = self._out.with_suffix(".part")
        written.write_text(json.dumps({"cpu_s": cpu_s, "main_cpu_s": main_cpu_s, "stacks": stacks}))
        written.rename(self._out)  # whoever waits for the file finds it whole

    def _sample(self, number: int, frame: FrameType | None) -> None:
        stack = []
        while frame is not None:
            code = frame.f_code
            stack.append((code.co_filename, code.co_firstlineno, code.co_qualname))
            frame = frame.f_back
        self._stacks[tuple(stack)] += 1


def main() -> None:
    """Becomes the module."""
    out, flag, module, *arguments = sys.argv[1:]
    assert flag == "-m"
    Sampler(Path(out)).install()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
