"""How the control bench speaks with the program of a contestant: a line of JSON for each request and for its answer.

    {"do": "prepare", "topology": "fan5", "options": {}}        {"system": "langgraph 1.2.24", "control_pid": 4711}
    {"do": "run", "count": 300, "concurrency": 1}               {"latencies_ms": [2.1, ...], "wall_s": 0.64}
    {"do": "stop"}                                              {}

What fails is answered by {"error": "..."}. The requests come on standard input, the answers go to what was standard output
when the program began; whatever else is printed goes to standard error. The program ends with its standard input.

Standard library only, and nothing of ours: this runs in the interpreters of other systems, from Python 3.10 on.
"""

import asyncio
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

WARM_CALLS = 20
"""Calls before the clock, each time that a contestant gets its turn: others have had the caches."""
STUCK_AFTER_S = 60.0


class Contestant(Protocol):
    """A system in which one topology runs. Every reply is checked: RuntimeError when the join did not see every source."""

    system: str
    """Name and version."""
    control_pid: int
    """The process that drives the requests."""

    async def prepare(self, topology: str, options: dict[str, Any]) -> None:
        """Starts the system; afterwards requests are served."""

    async def run(self, count: int, concurrency: int) -> list[float]:
        """Milliseconds from submit to the end, of `count` requests with so many at a time."""

    async def stop(self) -> None:
        """Ends the system."""


async def run_calls(call: Callable[[], Awaitable[None]], count: int, concurrency: int) -> list[float]:
    """`Contestant.run` by a coroutine that makes one request."""
    latencies_ms: list[float] = []
    started = 0

    async def some() -> None:
        nonlocal started
        while started < count:
            started += 1
            began_s = time.perf_counter()
            await call()
            latencies_ms.append((time.perf_counter() - began_s) * 1e3)

    await asyncio.gather(*(some() for _ in range(concurrency)))
    return latencies_ms


def expect(found: object, wanted: object) -> None:
    """Raises RuntimeError for a reply that is not what the topology gives."""
    if found != wanted:
        raise RuntimeError(f"the reply is {found!r}, not {wanted!r}")


async def serve(contestant: Contestant, answers: int) -> None:
    """Answers requests until there are no more; `answers` is the file descriptor that they go to."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        try:
            answer = await _answer(contestant, request)
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        os.write(answers, json.dumps(answer).encode() + b"\n")
        if request["do"] == "stop":
            return
    await contestant.stop()  # whoever asked is gone


async def _answer(contestant: Contestant, request: dict[str, Any]) -> dict[str, Any]:
    if request["do"] == "prepare":
        await contestant.prepare(request["topology"], request["options"])
        return {"system": contestant.system, "control_pid": contestant.control_pid}
    if request["do"] == "run":
        await asyncio.wait_for(contestant.run(WARM_CALLS, 1), STUCK_AFTER_S)
        began_s = time.perf_counter()
        latencies_ms = await asyncio.wait_for(contestant.run(request["count"], request["concurrency"]), STUCK_AFTER_S)
        return {"latencies_ms": latencies_ms, "wall_s": time.perf_counter() - began_s}
    await contestant.stop()
    return {}


def main(make: Callable[[], Contestant], run: Callable[[Any], None] = asyncio.run) -> None:
    """The program of a contestant. `run` runs a coroutine on the loop that the system would use."""
    answers = os.dup(1)  # not inherited by its processes
    os.dup2(2, 1)
    run(serve(make(), answers))
    os._exit(0)  # what a peer leaves behind, threads above all, must not hold the bench up
