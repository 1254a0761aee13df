"""The torch engine beside `generate()`, beside llama.cpp, and against the speed at which memory is read.

    decode N           N prompts at once: tokens after the first ones, a second
    prefill N          N prompts of 512 tokens, and one token each
    first token        a short request every half second, on an idle engine and beside four long completions

One model, the assistant's, on one thread of the CPU; where there is a GPU, a larger one of random weights there too. All are
given the same prompts in a round and new ones in the next, are greedy and never end early. A step reads every weight once,
whatever its batch: the ceiling of `decode N` is N tokens in the time in which the weights can be read.

Wants the assistant environment, and in OMNIFLOW_ENVIRONMENTS_LLAMA the interpreter of one with llama-cpp-python.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from omniflow_core.errors import OmniFlowError
from tests.bench.answers import (
    ENGINE_INT8,
    GENERATE_BFLOAT16,
    LLAMA,
    LLAMA_ENVIRONMENT,
    Decoder,
    Place,
    Prompt,
    Server,
    common_count,
)
from tests.bench.harness.contest import Contestant, Results, Work, compete
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Report
from tests.bench.harness.statistics import median, paired_ratios, percentile

HOLD_LLAMA = 0.4
DECODE, PREFILL, FIRST_IDLE, FIRST_LOADED = "decode", "prefill", "first token, idle", "first token, loaded"
CPU_TOKENS = {1: 32, 8: 24, 32: 12}
GPU_TOKENS = {1: 128, 8: 128, 32: 128}
"""Tokens after each prompt, by batch size."""
DECODE_PROMPT = 16
PREFILL_PROMPT = 512
PREFILL_BATCHES = (1, 8)
LEFT_OUT = {
    (DECODE, 32, GENERATE_BFLOAT16),
    (PREFILL, 8, GENERATE_BFLOAT16),
    (DECODE, 32, LLAMA),
    (PREFILL, 8, LLAMA),
}
"""On a CPU some would take as long as all others together: 20 s each for 8 prompts."""
SHORT_PROMPT = 64
SHORT_COUNT = 8
SHORT_EVERY_S = 0.5
LONG_COUNT = 4
LEAST_TOKENS = 4
SAMPLE_TOKENS = 24
NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one decoder does in a round."""

    place: Place
    what: str
    who: str
    batch: int = 1

    @property
    def name(self) -> str:
        return self.name_for(self.who)

    def name_for(self, who: str) -> str:
        """Of the entry in which another does the same."""
        batch = f" {self.batch}" if self.what in (DECODE, PREFILL) else ""
        return f"{self.place.label}{self.what}{batch}, {who}"


async def run(options: Options) -> Report:
    """The bench. Raises INVALID_CONFIG where there is neither a GPU nor the assistant's weights."""
    from tests.bench import decoders  # torch, which the base environment does not have

    async with contextlib.AsyncExitStack() as stack:
        places: list[Place] = []
        notes: list[str] = []
        if decoders.has_gpu():
            places.append(await stack.enter_async_context(decoders.gpu_place(_tokens(GPU_TOKENS, options))))
        cpu = decoders.cpu_place(os.environ.get(LLAMA_ENVIRONMENT), _tokens(CPU_TOKENS, options))
        try:
            places.append(await stack.enter_async_context(cpu))
        except OmniFlowError as error:
            if not places:
                raise
            notes.append(f"nothing on the CPU: {error.message}")
        entries = [entry for place in places for entry in entries_of(place)]
        notes.append(", ".join(f"{name} {version}" for name, version in decoders.versions().items()))
        notes += [note for place in places for note in (*place.notes, *await _warm_up(place))]
        reads = [Contestant(name=read_name(place), run=functools.partial(_read, place)) for place in places]
        contestants = [_contestant(entry, options) for entry in entries]
        results = await compete([*reads, *contestants], options, warmups=0)
    return report(results, entries, notes)


def _tokens(by_batch: Mapping[int, int], options: Options) -> Mapping[int, int]:
    return {batch: max(LEAST_TOKENS, options.scaled(tokens)) for batch, tokens in by_batch.items()}


def entries_of(place: Place) -> Sequence[Entry]:
    """In the order of the table."""
    batches: Mapping[str, Sequence[int]] = {DECODE: tuple(place.tokens), PREFILL: PREFILL_BATCHES}
    made = [
        Entry(place=place, what=what, who=who, batch=batch)
        for what in batches
        for batch in batches[what]
        for who in place.decoders
        if who == place.baseline or (what, batch, who) not in LEFT_OUT
    ]
    return made + [
        Entry(place=place, what=what, who=who) for who in place.servers for what in (FIRST_IDLE, FIRST_LOADED)
    ]


def _contestant(entry: Entry, options: Options) -> Contestant:
    decoder = entry.place.decoders[entry.who]
    sizes = {DECODE: DECODE_PROMPT, PREFILL: max(LEAST_TOKENS, options.scaled(PREFILL_PROMPT))}
    prompts = _prompts(entry, sizes.get(entry.what, SHORT_PROMPT))
    if entry.what == DECODE:
        work = functools.partial(_decode, decoder, prompts, entry.batch, entry.place.tokens[entry.batch])
    elif entry.what == PREFILL:
        work = functools.partial(_prefill, decoder, prompts, entry.batch)
    else:
        server, arrivals = entry.place.servers[entry.who], max(2, options.scaled(SHORT_COUNT))
        long_count = LONG_COUNT if entry.what == FIRST_LOADED else 0
        work = functools.partial(_first_tokens, server, prompts, arrivals, long_count)
    return Contestant(name=entry.name, run=work, processes=decoder.processes)


def _prompts(entry: Entry, size: int) -> Iterator[Prompt]:
    """Never the same again, and the same for everybody who does the same in the same round."""
    rng = random.Random(f"{entry.what} {entry.batch}")
    while True:
        yield rng.choices(entry.place.vocabulary, k=size)


async def _warm_up(place: Place) -> Sequence[str]:
    """Everybody does a little of everything. Says how many tokens of the sample's answer are the baseline's."""
    rng = random.Random(place.label)
    for entry in entries_of(place):
        size = SHORT_PROMPT if entry.what == PREFILL else DECODE_PROMPT
        prompts = [rng.choices(place.vocabulary, k=size) for _ in range(entry.batch)]
        await place.decoders[entry.who].decode(prompts, LEAST_TOKENS)
    if not place.sample:
        return []
    ids = {who: (await decoder.decode([place.sample], SAMPLE_TOKENS)).ids[0] for who, decoder in place.decoders.items()}
    agreed = (
        f"{who} {common_count(found, ids[place.baseline])}" for who, found in ids.items() if who != place.baseline
    )
    return [f"tokens, of {SAMPLE_TOKENS}, until an answer differs from that of {place.baseline}: {', '.join(agreed)}"]


async def _decode(decoder: Decoder, prompts: Iterator[Prompt], batch: int, tokens: int) -> Work:
    answers = await decoder.decode(list(itertools.islice(prompts, batch)), tokens)
    assert all(len(ids) == tokens for ids in answers.ids), "an answer has another length"
    wall_s = answers.end_s - answers.first_s
    return Work(count=answers.later_count, figures={"wall_s": wall_s, "first_s": answers.first_s})


async def _prefill(decoder: Decoder, prompts: Iterator[Prompt], batch: int) -> Work:
    given = list(itertools.islice(prompts, batch))
    answers = await decoder.decode(given, 1)
    return Work(count=sum(map(len, given)), figures={"wall_s": answers.first_s})


async def _first_tokens(server: Server, prompts: Iterator[Prompt], arrivals: int, long_count: int) -> Work:
    """Short requests come at their times, whatever has become of those before."""
    loop = asyncio.get_running_loop()
    async with server.decoding(list(itertools.islice(prompts, long_count))):
        started_s, drawn = loop.time(), server.drawn_count
        async with asyncio.TaskGroup() as tasks:
            waits = []
            for index in range(arrivals):
                await asyncio.sleep(started_s + index * SHORT_EVERY_S - loop.time())
                waits.append(tasks.create_task(server.first_s(next(prompts))))
        wall_s = loop.time() - started_s
        long_tokens = server.drawn_count - drawn - arrivals
    latencies_s = [wait.result() for wait in waits]
    return Work(count=arrivals, latencies_s=latencies_s, figures={"wall_s": wall_s, "long_per_s": long_tokens / wall_s})


async def _read(place: Place) -> Work:
    size_bytes, wall_s = place.read()
    return Work(count=size_bytes, figures={"wall_s": wall_s})


def read_name(place: Place) -> str:
    """Of the contestant that measures how fast memory is read there; its operations are bytes."""
    return f"{place.label}memory read"


def report(results: Results, entries: Sequence[Entry], notes: Sequence[str]) -> Report:
    """Of a contest of the entries, and of the reading at their places."""
    int8, llama = f"{DECODE} 1, {ENGINE_INT8}", f"{DECODE} 1, {LLAMA}"
    checks: list[Check] = []
    if llama in results.rounds:
        what = f"tokens/s of {ENGINE_INT8} against {LLAMA}, batch 1"
        checks.append(Check(what=what, value=results.rate_ratio(int8, llama), at_least=HOLD_LLAMA))
    reads = dict.fromkeys(read_name(entry.place) for entry in entries)
    return Report(
        name="decoding",
        title="decoding: the torch engine beside generate() and llama.cpp, the same model and prompts, greedy",
        columns=["contestant", "tokens/s", "of generate()", "of llama.cpp", "of the ceiling", "TTFT ms p50", "p90"],
        rows=[_row(results, entry) for entry in entries],
        checks=checks,
        looks=results.looks,
        details={**results.as_json(), "notes": notes},
        notes=[*(f"{name}: {median(results.rates(name)) / 1e9:.1f} GB/s" for name in reads), *notes],
    )


def _row(results: Results, entry: Entry) -> list[str]:
    if entry.what in (FIRST_IDLE, FIRST_LOADED):
        latencies_ms = [latency_s * 1e3 for latency_s in results.latencies_s(entry.name)]
        rate = f"{median(results.figures(entry.name, 'long_per_s')):.1f}" if entry.what == FIRST_LOADED else NOTHING
        firsts = (f"{percentile(latencies_ms, share):.0f}" for share in (0.5, 0.9))
        return [entry.name, rate, NOTHING, NOTHING, NOTHING, *firsts]
    return [
        entry.name,
        f"{median(results.rates(entry.name)):.1f}",
        _ratio(results, entry, entry.place.baseline),
        _ratio(results, entry, LLAMA),
        f"{_ceiling_share(results, entry):.0%}" if entry.what == DECODE else NOTHING,
        NOTHING,
        NOTHING,
    ]


def _ratio(results: Results, entry: Entry, who: str) -> str:
    other = entry.name_for(who)
    return f"{results.rate_ratio(entry.name, other):.2f}" if other in results.rounds else NOTHING


def _ceiling_share(results: Results, entry: Entry) -> float:
    """Bytes of weights that its steps read in a second, against those that can be read."""
    bytes_per_token = entry.place.decoders[entry.who].step_bytes / entry.batch
    read_per_s = [rate * bytes_per_token for rate in results.rates(entry.name)]
    return median(paired_ratios(read_per_s, results.rates(read_name(entry.place))))
