"""A language model through the platform, against the same role's interface driven in a process without it.

    in process   torch ─▶ interface.run                                   clocked where the yields come
    platform     torch ─▶ interface.run ─▶ role ─▶ control plane ─▶ client, clocked at the client

Same prompt, greedy, the same token identifiers or the bench fails. The time to the first token is measured by runs of one
token, by both in turns. The two models are loaded side by side in processes of the same environment and the same thread
settings; they work in turns, so each has both cores to itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import omniflow
from omniflow.discovery import load as load_interface
from omniflow.dsl import Graph
from omniflow.flow import RolePlan
from omniflow.flow_loading import load_flow
from omniflow.interface import Interface, Sampling
from omniflow.process import PARENT_PID
from omniflow.values import Tokens, ValueType
from tests.bench.harness.contest import Contestant, Results, Work, compete
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Report, cpu_text
from tests.bench.harness.statistics import median, percentile
from tests.bench.setting import serving
from tests.support.processes import Process
from tests.support.system import ROOT, Python

FLOW = "assistant"
INTERFACE = "assistant.llm"
PROMPT = "Explain in a few sentences why the sky is blue and why sunsets are red."
MAX_TOKENS = 64
HOLD_RATE = 0.95
HOLD_TTFT_MS = 3.0
LOAD_TIMEOUT_S = 300.0
IN_PROCESS, PLATFORM = "in process", "platform"
FIRST_TOKENS = "first tokens"
PAIRS = 12
"""Runs of one token in a round, each by both, one right after the other: a core's speed drifts within seconds by far more
than the milliseconds that are looked for."""

_Ask = Callable[[int], Awaitable[Mapping[str, Any]]]
"""Runs the prompt for so many tokens at most; answers as floors/engine_in_process.py does."""


async def run(options: Options) -> Report:
    """The bench."""
    role = next(role for role in load_flow(FLOW).roles if INTERFACE in role.interfaces)
    interface = load_interface(INTERFACE)
    group = next(name for name, fields in interface.inputs.items() if "text" in fields)
    graph = _graph(interface, role)
    max_tokens = max(8, options.scaled(MAX_TOKENS))
    async with (
        _in_process(role, group) as floor,
        serving([graph], [role], ready_timeout_s=LOAD_TIMEOUT_S) as system,
        system.connect() as client,
    ):
        expected = (await floor.ask(max_tokens))["ids"]
        floors, ours = {"model": floor.pid}, {"control": system.control.pid, "model": _only(system.roles).pid}
        ask_floor, ask_platform = floor.ask, functools.partial(_ask_platform, client)
        contestants = [
            Contestant(name=IN_PROCESS, run=functools.partial(_answer, ask_floor, expected), processes=floors),
            Contestant(name=PLATFORM, run=functools.partial(_answer, ask_platform, expected), processes=ours),
            Contestant(name=FIRST_TOKENS, run=functools.partial(_first_tokens, ask_floor, ask_platform)),
        ]
        results = await compete(contestants, options)
    return _report(results)


def _graph(interface: type[Interface], role: RolePlan) -> Graph:
    """text -> llm -> tokens; other input groups get inputs of their own, which no call gives."""
    graph = Graph("engine")
    node = graph.node("llm", interface, role=role.name)
    for group, fields in interface.inputs.items():
        for name, field in fields.items():
            graph.input(name, field.type, optional=True) >> getattr(node.inputs.group(group), name)
    tokens = next(name for name, field in interface.outputs.items() if field.type is ValueType.TOKENS)
    node.output(tokens) >> graph.output("tokens", ValueType.TOKENS)
    return graph


class _Floor:
    """The process of floors/engine_in_process.py."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def read(self) -> str:
        """The next line. Raises RuntimeError when it has ended."""
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        if not line:
            raise RuntimeError("the interface could not be driven in process; see its output above")
        return line

    async def ask(self, max_tokens: int) -> Mapping[str, Any]:
        """One run."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"text": PROMPT, "max_tokens": max_tokens}).encode() + b"\n")
        answer: Mapping[str, Any] = json.loads(await self.read())
        return answer


@contextlib.asynccontextmanager
async def _in_process(role: RolePlan, group: str) -> AsyncIterator[_Floor]:
    process = await asyncio.create_subprocess_exec(
        Python().of(role.environment),
        *("-m", "tests.bench.floors.engine_in_process", INTERFACE, group),
        cwd=ROOT,
        env={**os.environ, **role.env, PARENT_PID: str(os.getpid())},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
    try:
        floor = _Floor(process)
        async with asyncio.timeout(LOAD_TIMEOUT_S):
            while await floor.read() != "ready\n":
                pass  # libraries talk while they load
        yield floor
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _ask_platform(client: omniflow.Client, max_tokens: int) -> Mapping[str, Any]:
    times_s: list[float] = []
    ids: list[int] = []
    started_s = time.perf_counter()
    async for event in client.stream("engine", text=PROMPT, sampling=Sampling(temperature=0.0, max_tokens=max_tokens)):
        if isinstance(event, omniflow.Output):
            times_s.append(time.perf_counter() - started_s)
            assert isinstance(event.value, Tokens)
            ids.extend(event.value.ids)
    return {"times_s": times_s, "ids": ids, "end_s": time.perf_counter() - started_s}


async def _answer(ask: _Ask, expected: list[int]) -> Work:
    answer = await ask(len(expected))
    assert answer["ids"] == expected, "the tokens differ"
    gaps_s = [later - earlier for earlier, later in itertools.pairwise(answer["times_s"])]
    return Work(count=len(expected), latencies_s=gaps_s, figures={"wall_s": answer["end_s"]})


async def _first_tokens(floor: _Ask, platform: _Ask) -> Work:
    times_s: dict[str, list[float]] = {IN_PROCESS: [], PLATFORM: []}
    turn = [(IN_PROCESS, floor), (PLATFORM, platform)]
    for _ in range(PAIRS):
        for name, ask in turn:
            times_s[name].append((await ask(1))["times_s"][0])
        turn.reverse()
    added_s = [ours - base for ours, base in zip(times_s[PLATFORM], times_s[IN_PROCESS], strict=True)]
    figures = {f"{name}, ms": median(values) * 1e3 for name, values in times_s.items()}
    return Work(count=PAIRS, latencies_s=added_s, figures=figures)


def _only(roles: Mapping[str, Process]) -> Process:
    (process,) = roles.values()
    return process


def _report(results: Results) -> Report:
    added_ms = median(results.latencies_s(FIRST_TOKENS)) * 1e3
    rows = [
        [
            name,
            f"{median(results.rates(name)):.2f}",
            *(f"{percentile(results.latencies_s(name), share) * 1e3:.1f}" for share in (0.5, 0.99)),
            f"{median(results.figures(FIRST_TOKENS, f'{name}, ms')):.1f}",
            cpu_text(results.cpu_us(name)),
        ]
        for name in (IN_PROCESS, PLATFORM)
    ]
    rate = results.rate_ratio(PLATFORM, IN_PROCESS)
    return Report(
        name="engine",
        title="engine: SmolLM2-135M greedy through the platform, and the same interface in process",
        columns=["contestant", "tokens/s", "gap ms p50", "p99", "TTFT ms", "CPU us/token"],
        rows=rows,
        checks=[
            Check(what="tokens/s through the platform against in process", value=rate, at_least=HOLD_RATE),
            Check(what="TTFT that the platform adds", value=added_ms, at_most=HOLD_TTFT_MS, unit="ms"),
        ],
        looks=results.looks,
        details={**results.as_json(), "ttft_added_ms": [s * 1e3 for s in results.latencies_s(FIRST_TOKENS)]},
    )
