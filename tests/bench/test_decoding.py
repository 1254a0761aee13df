"""What the decoding bench makes of what its decoders did."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.bench.answers import ENGINE_INT8, GENERATE_FLOAT32, LLAMA, Answers, Place, Prompt, common_count
from tests.bench.decoding import entries_of, read_name, report
from tests.bench.harness.contest import Results, Round, Work
from tests.bench.harness.noise import Noise

QUIET = Noise(
    busy_share=0.0, spin_wall_ms=10.0, spin_cpu_ms=10.0, timer_late_p50_ms=0.1, timer_late_p99_ms=0.2, load=0.5
)


class Idle:
    """A decoder of which only the size matters."""

    processes: Mapping[str, int] = {}

    def __init__(self, step_bytes: int) -> None:
        self.step_bytes = step_bytes

    async def decode(self, prompts: Sequence[Prompt], tokens: int) -> Answers:
        raise NotImplementedError


def place(*, has_llama: bool = True) -> Place:
    decoders = {GENERATE_FLOAT32: Idle(400), ENGINE_INT8: Idle(100)} | ({LLAMA: Idle(110)} if has_llama else {})
    return Place(
        label="",
        decoders=decoders,
        baseline=GENERATE_FLOAT32,
        servers={},
        read=lambda: (1, 1.0),
        tokens={1: 8, 8: 8, 32: 8},
        vocabulary=range(9),
    )


def rounds(*per_s: float) -> list[Round]:
    return [Round(work=Work(count=1), wall_s=1 / rate, cpu_s={}) for rate in per_s]


def results(where: Place, rates: Mapping[str, Sequence[float]]) -> Results:
    """Everybody does 10 a second in each of two rounds, but for whom other rates are given."""
    names = [read_name(where), *(entry.name for entry in entries_of(where))]
    return Results({name: rounds(*rates.get(name, (10.0, 10.0))) for name in names}, [QUIET])


def test_answers_count_what_came_after_every_first_token() -> None:
    answers = Answers(ids=[[1, 2, 3], [4, 5, 6]], times_s=[[0.1, 0.2, 0.3], [0.2, 0.3, 0.4]])
    assert (answers.first_s, answers.end_s, answers.later_count) == (0.2, 0.4, 3)


@pytest.mark.parametrize(
    ("others", "expected"), [([1, 2, 3], 3), ([1, 9, 3], 1), ([1, 2], 2), ([9], 0), ([], 0)], ids=str
)
def test_common_count_ends_at_the_first_difference(others: list[int], expected: int) -> None:
    assert common_count([1, 2, 3], others) == expected


def test_entries_leave_out_what_takes_too_long_but_never_the_baseline() -> None:
    names = [entry.name for entry in entries_of(place())]
    llama = [f"decode 1, {LLAMA}", f"decode 8, {LLAMA}", f"prefill 1, {LLAMA}"]
    assert [name for name in names if LLAMA in name] == llama
    assert len(names) == len(set(names)) == 3 * 2 + 2 * 2 + len(llama)
    slow = [entry.name for entry in entries_of(dataclasses.replace(place(), label="GPU ", baseline=LLAMA))]
    assert [name for name in slow if LLAMA in name] == [
        f"GPU {what}, {LLAMA}" for what in ("decode 1", "decode 8", "decode 32", "prefill 1", "prefill 8")
    ]


def test_report_compares_within_rounds_and_with_the_reading() -> None:
    where = place()
    rates = {
        "decode 8, engine int8": (20.0, 40.0),
        "decode 8, generate() float32": (10.0, 10.0),
        f"decode 8, {LLAMA}": (40.0, 40.0),
        read_name(where): (1000.0, 1000.0),
    }
    made = report(results(where, rates), entries_of(where), [])
    (row,) = (row for row in made.rows if row[0] == "decode 8, engine int8")
    # 30 tokens a second are 3.75 steps of 8, which read 375 of 1000 bytes.
    assert row == ["decode 8, engine int8", "30.0", "3.00", "0.75", "38%", "-", "-"]
    (prefill,) = (row for row in made.rows if row[0] == "prefill 8, engine int8")
    assert prefill[3:] == ["-", "-", "-", "-"]


@pytest.mark.parametrize(("rate", "is_broken"), [(4.1, False), (3.9, True)])
def test_report_promises_a_share_of_llama_at_batch_1(rate: float, is_broken: bool) -> None:
    where = place()
    (check,) = report(results(where, {"decode 1, engine int8": (rate, rate)}), entries_of(where), []).checks
    assert check.is_broken is is_broken


def test_report_without_llama_checks_nothing_and_has_the_notes() -> None:
    where = place(has_llama=False)
    made = report(results(where, {}), entries_of(where), ["llama.cpp is left out"])
    assert made.checks == []
    assert "llama.cpp is left out" in made.text()


def test_report_has_first_tokens_idle_and_loaded() -> None:
    where = place()
    served = dataclasses.replace(where, servers={ENGINE_INT8: where.decoders[ENGINE_INT8]})  # type: ignore[dict-item]
    found = results(served, {})
    work = Work(count=2, latencies_s=[0.1, 0.2], figures={"long_per_s": 7.0})
    firsts = {
        f"first token, {how}, {ENGINE_INT8}": [Round(work=work, wall_s=1.0, cpu_s={})] * 2 for how in ("idle", "loaded")
    }
    made = report(Results({**found.rounds, **firsts}, [QUIET]), entries_of(served), [])
    assert [row[1:] for row in made.rows[-2:]] == [
        ["-", "-", "-", "-", "150", "200"],
        ["7.0", "-", "-", "-", "150", "200"],
    ]


def test_llama_floor_imports_nothing_of_ours() -> None:
    tree = ast.parse((Path(__file__).parent / "floors" / "llama_decode.py").read_text())
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    ours = {"omniflow", "omniflow_core", "omniflow_server", "omniflow_roles", "tests"}
    assert not {module.partition(".")[0] for module in modules} & ours
