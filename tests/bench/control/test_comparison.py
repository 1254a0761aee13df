"""The table and the promises of one topology."""

from __future__ import annotations

from tests.bench.control import ours, rivals
from tests.bench.control.comparison import COLUMNS, Comparison, checks
from tests.bench.control.lanes import DEFAULT_LANE, GRPC
from tests.bench.harness.contest import Results, Round, Work

EACH, ONE, PROJECTING = (
    peer.name for peer in (rivals.SGLANG_OMNI_EACH, rivals.SGLANG_OMNI_ONE, rivals.SGLANG_OMNI_PROJECT)
)


def rounds(*latencies_ms: float) -> list[Round]:
    figures = {"cpu_ms": 2.0, "per_s_8": 800.0, "per_s_32": 3200.0}
    return [
        Round(work=Work(count=1, latencies_s=[value / 1e3], figures=figures), wall_s=value / 1e3, cpu_s={})
        for value in latencies_ms
    ]


def comparison(not_run: dict[str, str] | None = None, **latencies_ms: list[float]) -> Comparison:
    names = {
        "inline": ours.INLINE,
        "grpc": ours.lane_name(GRPC),
        "lane": ours.lane_name(DEFAULT_LANE),
        "each": EACH,
        "one": ONE,
        "projecting": PROJECTING,
        "langgraph": rivals.LANGGRAPH.name,
    }
    found = {names[key]: rounds(*values) for key, values in latencies_ms.items()}
    return Comparison(
        topology="fan5",
        results=Results(found, []),
        memory_bytes=dict.fromkeys(found, (80 << 20, 0)),
        systems={},
        not_run=not_run or {},
    )


def test_promise_is_held_against_the_best_configuration_of_a_peer() -> None:
    found, notes = checks(comparison(inline=[0.3], one=[3.0], projecting=[0.6], langgraph=[1.2]))
    assert [(check.value, check.is_met) for check in found] == [(0.5, False), (0.25, True)]
    assert len(notes) == 2


def test_promise_is_a_ratio_of_the_same_round() -> None:
    found, _ = checks(comparison(grpc=[2.0, 9.0, 2.0], lane=[1.0, 1.0, 1.0], each=[10.0, 30.0, 4.0]))
    assert [(round(check.value, 3), check.at_most) for check in found] == [(0.3, 0.4), (0.1, 0.2)]


def test_promise_without_its_peer_is_not_looked_at() -> None:
    found, notes = checks(comparison(inline=[0.3], grpc=[2.0], lane=[1.0]))
    assert found == []
    assert [note.startswith("not looked at: fan5, p50: ours") for note in notes] == [True] * 4


def test_table_has_a_row_for_what_did_not_run() -> None:
    rows = comparison({"LangGraph": "cannot be installed"}, grpc=[2.0, 4.0]).rows()
    assert rows[0] == [f"fan5  {ours.lane_name(GRPC)}", "3.00", "3.98", "375", "800", "3200", "2.00", "80", "-"]
    assert rows[1][:3] == ["fan5  LangGraph", "NOT RUN", ""]
    assert {len(row) for row in rows} == {len(COLUMNS)}
