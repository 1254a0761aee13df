"""An interface of a role driven in this process, without the platform: the floor of the engine bench.

    $ python -m tests.bench.floors.engine_in_process assistant.llm typed
    ready
    {"text": "Tell me a story.", "max_tokens": 64}            one request a line on standard input
    {"times_s": [0.05, 0.09, ...], "ids": [...]}              when each yield came, and all token ids

Nothing is sent, packed or checked between the interface and the clock: the yields of `run` are timed where they come.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from omniflow.discovery import load
from omniflow.interface import Context, Inputs, Interface, Outputs, Sampling
from omniflow.process import die_with_parent
from omniflow.values import Tokens


async def main(name: str, group: str) -> None:
    """Serves standard input until it ends."""
    interface = load(name)()
    waiting = interface.setup()
    if inspect.isawaitable(waiting):
        await waiting
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        print(json.dumps(await answer(interface, group, request)), flush=True)


async def answer(interface: Interface, group: str, request: dict[str, Any]) -> dict[str, Any]:
    """One run, as a role runs it: a plain generator in a thread."""
    context = Context(
        call_id="bench",
        activation_id=1,
        node="llm",
        sampling=Sampling(temperature=0.0, max_tokens=request["max_tokens"]),
    )
    inputs = Inputs(group, {"text": (request["text"],)})
    started_s = time.perf_counter()
    if inspect.isgeneratorfunction(interface.run):
        return await asyncio.to_thread(_collect, interface.run(inputs, context), started_s)
    return await _collect_async(interface.run(inputs, context), started_s)


def _collect(yields: Any, started_s: float) -> dict[str, Any]:
    times_s: list[float] = []
    ids: list[int] = []
    for outputs in yields:
        times_s.append(time.perf_counter() - started_s)
        ids.extend(_ids(outputs))
    return {"times_s": times_s, "ids": ids, "end_s": time.perf_counter() - started_s}


async def _collect_async(yields: AsyncIterator[Outputs], started_s: float) -> dict[str, Any]:
    times_s: list[float] = []
    ids: list[int] = []
    async for outputs in yields:
        times_s.append(time.perf_counter() - started_s)
        ids.extend(_ids(outputs))
    return {"times_s": times_s, "ids": ids, "end_s": time.perf_counter() - started_s}


def _ids(outputs: Outputs) -> tuple[int, ...]:
    return tuple(token for value in outputs.values() if isinstance(value, Tokens) for token in value.ids)


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(main(*sys.argv[1:3]))
