"""A language model through the platform, against the same interface driven inside the role process.

    in process   engine ─▶ interface.run                                   clocked where the yields come
    platform     engine ─▶ interface.run ─▶ role ─▶ control plane ─▶ client, clocked at the client

One process, one model, one prompt, greedy, the same token identifiers or the bench fails; one works while the other is
idle. The engine keeps the prompt's keys and values after the first run, so a first token costs the end of the prompt alone.
What the platform adds to the first token is taken from single runs of one token: the client's time less the time that the
interface itself took in that run. Two runs differ by more than the platform adds.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import omniflow
from omniflow.dsl import Graph
from omniflow.flow_loading import load_flow
from omniflow.interface import Sampling
from omniflow.values import ValueType
from tests.bench.harness.contest import Contestant, Results, Work, compete
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Report, cpu_text
from tests.bench.harness.statistics import median, percentile
from tests.bench.interfaces import Direct, SharedLlm
from tests.bench.setting import serving

FLOW = "assistant"
ROLE = "llm"
INTERFACES = {
    "bench.llm": "tests.bench.interfaces:SharedLlm",
    "bench.direct": "tests.bench.interfaces:Direct",
}
PROMPT = "Explain in a few sentences why the sky is blue and why sunsets are red."
MAX_TOKENS = 64
HOLD_RATE = 0.95
HOLD_TTFT_MS = 3.0
LOAD_TIMEOUT_S = 300.0
IN_PROCESS, PLATFORM = "in process", "platform"
FIRST_TOKENS = "first tokens"
FIRST_RUNS = 12
"""Runs of one token in a round, by each of the two."""

_Ask = Callable[[str, int], Awaitable[Mapping[str, Any]]]
"""Runs a prompt for so many tokens at most; answers as `Direct` does."""


async def run(options: Options) -> Report:
    """The bench."""
    role = next(role for role in load_flow(FLOW).roles if role.name == ROLE)
    role = dataclasses.replace(role, interfaces=tuple(INTERFACES))
    max_tokens = max(8, options.scaled(MAX_TOKENS))
    async with (
        serving(
            [_llm_graph(), _direct_graph()], [role], interfaces=INTERFACES, ready_timeout_s=LOAD_TIMEOUT_S
        ) as system,
        system.connect() as client,
    ):
        ask_direct = functools.partial(_ask_direct, client)
        ask_platform = functools.partial(_ask_platform, client)
        expected = (await ask_direct(PROMPT, max_tokens))["ids"]
        processes = {"control": system.control.pid, "model": system.role(f"{ROLE}-0").pid}
        contestants = [
            Contestant(name=IN_PROCESS, run=functools.partial(_answer, ask_direct, expected), processes=processes),
            Contestant(name=PLATFORM, run=functools.partial(_answer, ask_platform, expected), processes=processes),
            Contestant(name=FIRST_TOKENS, run=functools.partial(_first_tokens, client)),
        ]
        results = await compete(contestants, options)
    return _report(results)


def _llm_graph() -> Graph:
    """text -> llm -> tokens; other input groups get inputs of their own, which no call gives."""
    graph = Graph("engine")
    node = graph.node("llm", SharedLlm, role=ROLE)
    for group, fields in SharedLlm.inputs.items():
        for name, field in fields.items():
            graph.input(name, field.type, optional=True) >> getattr(node.inputs.group(group), name)
    node.output("tokens") >> graph.output("tokens", ValueType.TOKENS)
    return graph


def _direct_graph() -> Graph:
    """request -> direct -> answer"""
    graph = Graph("direct")
    node = graph.node("direct", Direct, role=ROLE)
    graph.input("request", ValueType.JSON) >> node.inputs.field("request")
    node.output("answer") >> graph.output("answer", ValueType.JSON)
    return graph


async def _ask_direct(client: omniflow.Client, prompt: str, max_tokens: int) -> Mapping[str, Any]:
    result = await client.run("direct", request={"text": prompt, "max_tokens": max_tokens})
    answer = result.value("answer")
    assert isinstance(answer, omniflow.Json)
    found: Mapping[str, Any] = answer.value
    return {**found, "ids": [int(token) for token in found["ids"]]}


async def _ask_platform(client: omniflow.Client, prompt: str, max_tokens: int) -> Mapping[str, Any]:
    times_s: list[float] = []
    ids: list[int] = []
    started_s = time.perf_counter()
    async for event in client.stream("engine", text=prompt, sampling=Sampling(temperature=0.0, max_tokens=max_tokens)):
        if isinstance(event, omniflow.Output):
            times_s.append(time.perf_counter() - started_s)
            assert isinstance(event.value, omniflow.Tokens)
            ids.extend(event.value.ids)
    return {"times_s": times_s, "ids": ids, "end_s": time.perf_counter() - started_s}


async def _answer(ask: _Ask, expected: list[int]) -> Work:
    answer = await ask(PROMPT, len(expected))
    assert answer["ids"] == expected, "the tokens differ"
    gaps_s = [later - earlier for earlier, later in itertools.pairwise(answer["times_s"])]
    return Work(count=len(expected), latencies_s=gaps_s, figures={"wall_s": answer["end_s"]})


async def _first_tokens(client: omniflow.Client) -> Work:
    """Latencies are what the platform adds; the figures are medians."""
    direct_s, platform_s, added_s = [], [], []
    for _ in range(FIRST_RUNS):
        direct_s.append((await _ask_direct(client, PROMPT, 1))["times_s"][0])
        platform_s.append((await _ask_platform(client, PROMPT, 1))["times_s"][0])
        added_s.append(platform_s[-1] - await _first_s(client))
    figures = {IN_PROCESS: median(direct_s), PLATFORM: median(platform_s)}
    return Work(count=FIRST_RUNS, latencies_s=added_s, figures=figures)


async def _first_s(client: omniflow.Client) -> float:
    answer = (await client.run("direct", request={})).value("answer")
    assert isinstance(answer, omniflow.Json)
    return float(answer.value["first_s"])


def _report(results: Results) -> Report:
    added_ms = [added_s * 1e3 for added_s in results.latencies_s(FIRST_TOKENS)]
    rows = [
        [
            name,
            f"{median(results.rates(name)):.2f}",
            *(f"{percentile(results.latencies_s(name), share) * 1e3:.1f}" for share in (0.5, 0.99)),
            f"{median(results.figures(FIRST_TOKENS, name)) * 1e3:.1f}",
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
            Check(what="TTFT that the platform adds", value=median(added_ms), at_most=HOLD_TTFT_MS, unit="ms"),
        ],
        looks=results.looks,
        details={**results.as_json(), "ttft_added_ms": added_ms},
        notes=[f"of single runs: {percentile(added_ms, 0.1):.1f} to {percentile(added_ms, 0.9):.1f} ms (p10 to p90)"],
    )
