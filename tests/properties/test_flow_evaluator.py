"""The evaluator itself, on calls whose result the paper and the rules spell out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from omniflow_core.graph.spec import ChunkSpec, GraphSpec, OnFailure, OnImpossible
from tests.properties.flow_evaluator import Fault, Outcome, Script, evaluate
from tests.properties.flow_paths import Path
from tests.properties.flow_routes import ROOT, STATIC, Kind, Routes
from tests.properties.flow_values import Activation, Identities, Value
from tests.support.graphs import graph, node

Plays = Mapping[str, Sequence[str] | Mapping[str | int, Sequence[str]]]
"""Yields by node, each as the names of its fields; or by node and the yield that gave the first input, or the iteration."""


class Case:
    """A call evaluated by hand-written yields.

    Paths are written without ports: "a0.b1" is b's second yield under a's first.
    """

    def __init__(
        self,
        spec: GraphSpec,
        plays: Plays,
        *,
        source: Sequence[str] = ("x",),
        counts: Mapping[str, int | None] | None = None,
        admitted: Sequence[str] = (),
        failing: str = "",
    ) -> None:
        self.routes = Routes(spec)
        self._plays = plays
        self._counts = counts or {}
        self._failing = failing
        self.identities = Identities()
        self._source = []
        self._is_streaming = any(p.is_streaming for p in spec.placeholders)
        for ordinal, names in enumerate(source):
            port = self.identities.activation(f"@{names}" if self._is_streaming else STATIC, ())
            self._source.append((port, ordinal, {n: Value(port, ordinal, n) for n in names.split()}))
        self.outcome = self._evaluate({})
        if admitted:  # paths are known only once the call was evaluated
            keys = {written(event.path): key for key, event in self.outcome.events.items()}
            self.outcome = self._evaluate({keys[name]: i for i, name in enumerate(admitted)})

    def _evaluate(self, admitted: dict[tuple[Activation, int], int]) -> Outcome:
        return evaluate(self.routes, self._source, self._script, self.identities, admitted)

    def _script(self, activation: Activation) -> Script:
        plays = self._plays.get(activation.node, [])
        if isinstance(plays, Mapping):
            (first, *_) = activation.inputs[0][1][0][1]
            plays = plays.get(f"{first.producer.node}{first.ordinal}") or plays.get(
                activation.depths[activation.node], []
            )
        yields = tuple(
            {n: Value(activation, i, n, self._counts.get(f"{activation.node}.{n}")) for n in names.split()}
            for i, names in enumerate(plays)
        )
        return Script(yields, activation.node == self._failing)

    def runs(self, name: str) -> list[str]:
        """Activations of a node: path and inputs, in order of the paths."""
        found = [(place.path, a) for a, place in self.outcome.places.items() if a.node == name]
        return sorted(f"{written(path)}: {self._inputs(a)}".strip() for path, a in found)

    def _inputs(self, activation: Activation) -> str:
        return "; ".join(
            f"{group}({', '.join(f'{field}={self._values(values)}' for field, values in fields)})"
            for group, fields, _ in activation.inputs
        )

    def _values(self, values: Sequence[Value]) -> str:
        return " ".join(written(self.outcome.events[v.producer, v.ordinal].path) for v in values)


def written(path: Path) -> str:
    return ".".join(f"{token.node}{token.ordinal}" for token in path if not token.node.startswith("@"))


DIAMOND = graph((node("a"), node("b"), node("c"), node("j", "b c")), "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>out")
FIGURE5 = graph(
    (node("c"), node("d"), node("h"), node("k"), node("j", "h k")),
    "x>c.x c.y>d.x d.y>h.x c.y>k.x h.y>j.h k.y>j.k j.y>out",
)


def test_repeated_yields_of_the_source_give_a_bucket_each() -> None:
    case = Case(DIAMOND, {"a": ["y", "y"], "b": ["y"], "c": ["y"], "j": ["y"]})
    assert case.runs("j") == ["a0: main(b=a0.b0, c=a0.c0)", "a1: main(b=a1.b0, c=a1.c0)"]
    assert [written(case.outcome.events[v.producer, v.ordinal].path) for v in case.outcome.emissions["out"]] == [
        "a0.j0",
        "a1.j0",
    ]


def test_repeated_yields_of_a_branch_meet_in_one_bucket() -> None:
    case = Case(DIAMOND, {"a": ["y"], "b": ["y", "y"], "c": ["y"]})
    assert case.runs("j") == ["a0: main(b=a0.b0 a0.b1, c=a0.c0)"]


def test_repeated_yields_of_both_give_a_bucket_for_each_of_the_source() -> None:
    case = Case(DIAMOND, {"a": ["y", "y"], "b": ["y", "y"], "c": ["y", "y", "y"]})
    assert case.runs("j") == [
        "a0: main(b=a0.b0 a0.b1, c=a0.c0 a0.c1 a0.c2)",
        "a1: main(b=a1.b0 a1.b1, c=a1.c0 a1.c1 a1.c2)",
    ]


def test_figure_5_orders_contributions_by_the_yields_above_them() -> None:
    case = Case(FIGURE5, {"c": ["y", "y"], "d": {"c0": ["y", "y"], "c1": ["y"]}, "h": ["y"], "k": ["y"], "j": ["y"]})
    assert case.runs("j") == ["c0: main(h=c0.d0.h0 c0.d1.h0, k=c0.k0)", "c1: main(h=c1.d0.h0, k=c1.k0)"]
    assert case.routes.anchors["j", "main"] == "c"
    (below,) = {
        place.below for a, place in case.outcome.places.items() if written(place.path) == "c0" and a.node == "j"
    }
    assert below is not None
    assert (below[0].node, below[1]) == ("c", 0)


def test_branch_without_yields_is_impossible_and_a_failed_branch_fails_too() -> None:
    case = Case(DIAMOND, {"a": ["y"], "b": ["y"]})
    assert case.outcome.faults == {Fault("IMPOSSIBLE_INPUT", "j", "main", frozenset({"c"}))}
    case = Case(DIAMOND, {"a": ["y"], "b": ["y"], "c": ["y"]}, failing="c")
    assert case.outcome.faults == {Fault("INTERFACE_FAILED", "c")}


def test_impossible_input_can_pass_on_as_skipped() -> None:
    nodes = (node("a"), node("b"), node("c"), node("j", "b c", on_impossible=OnImpossible.SKIP))
    spec = graph(nodes, "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>out")
    case = Case(spec, {"a": ["y"], "b": ["y"]})
    assert not case.outcome.faults
    assert case.runs("j") == []


def test_failure_can_be_skipped_and_its_yields_count() -> None:
    nodes = (node("a"), node("b", on_failure=OnFailure.SKIP), node("c"), node("j", "b c"))
    spec = graph(nodes, "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>out")
    case = Case(spec, {"a": ["y"], "b": ["y"], "c": ["y"]}, failing="b")
    assert not case.outcome.faults
    assert case.runs("j") == ["a0: main(b=a0.b0, c=a0.c0)"]


def test_optional_fields_may_be_left_out_and_skips_alone_start_nothing() -> None:
    spec = graph((node("a"), node("b"), node("c"), node("j", "b c?")), "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>out")
    case = Case(spec, {"a": ["y", "", "y"], "b": {"a0": ["y"], "a2": [""]}})
    assert case.runs("b") == ["a0: main(x=a0)", "a2: main(x=a2)"]
    assert case.runs("j") == ["a0.b0: main(b=a0.b0)"]
    assert not case.outcome.faults


def test_partial_yield_of_a_single_source_is_impossible() -> None:
    spec = graph((node("a", outputs="y z"), node("b", "y z")), "x>a.x a.y>b.y a.z>b.z b.y>out")
    assert Case(spec, {"a": ["y"]}).outcome.faults == {Fault("IMPOSSIBLE_INPUT", "b", "main", frozenset({"z"}))}
    assert Case(spec, {"a": ["y z", ""]}).runs("b") == ["a0: main(y=a0, z=a0)"]


def test_nested_diamonds_keep_the_outer_anchor() -> None:
    nodes = (node("a"), node("b"), node("p"), node("q"), node("i", "p q"), node("c"), node("o", "i c"))
    spec = graph(nodes, "x>a.x a.y>b.x b.y>p.x b.y>q.x p.y>i.p q.y>i.q a.y>c.x i.y>o.i c.y>o.c o.y>out")
    case = Case(spec, {"a": ["y"], "b": ["y", "y"], "p": ["y"], "q": ["y"], "i": ["y"], "c": ["y"]})
    assert case.routes.anchors == {("i", "main"): "b", ("o", "main"): "a"}
    assert case.runs("i") == ["a0.b0: main(p=a0.b0.p0, q=a0.b0.q0)", "a0.b1: main(p=a0.b1.p0, q=a0.b1.q0)"]
    assert case.runs("o") == ["a0: main(c=a0.c0, i=a0.b0.i0 a0.b1.i0)"]


def test_iterations_of_a_loop_around_a_diamond_never_mix() -> None:
    nodes = (node("a", "main: x; loop: x", loop_bound=5), node("b"), node("c"), node("j", "b c", "y again"))
    spec = graph(nodes, "x>a.main.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.again>a.loop.x j.y>out")
    again: Mapping[str | int, Sequence[str]] = {1: ["again"], 2: ["again"], 3: ["y"]}
    case = Case(spec, {"a": ["y"], "b": ["y"], "c": ["y"], "j": again})
    assert (
        case.runs("j")
        == [f"{above}a0: main(b={above}a0.b0, c={above}a0.c0)" for above in ("", "a0.j0.", "a0.j0.a0.j0.")][::-1]
    )
    assert case.routes.anchors["j", "main"] == "a"


def test_list_fed_by_two_routes_follows_the_edges() -> None:
    spec = graph((node("a"), node("b"), node("c"), node("j", "f")), "x>a.x a.y>b.x a.y>c.x c.y>j.f b.y>j.f j.y>out")
    case = Case(spec, {"a": ["y"], "b": ["y", "y"], "c": ["y", "y"]})
    assert case.runs("j") == ["a0: main(f=a0.c0 a0.c1 a0.b0 a0.b1)"]


def test_values_of_a_streaming_placeholder_are_anchors() -> None:
    spec = graph(
        (node("b"), node("c"), node("j", "b c")), "p>b.x p>c.x b.y>j.b c.y>j.c j.y>out", inputs="", streaming="p"
    )
    case = Case(spec, {"b": ["y"], "c": ["y"]}, source=("p", "p"))
    assert case.routes.anchors["j", "main"] == "@p"
    assert case.runs("j") == [": main(b=b0, c=c0)", ": main(b=b0, c=c0)"]


def test_groups_whose_sources_share_no_port_have_no_anchor() -> None:
    spec = graph(
        (node("b"), node("c"), node("j", "b c")), "p>b.x q>c.x b.y>j.b c.y>j.c j.y>out", inputs="", streaming="p q"
    )
    assert Routes(spec).anchors["j", "main"] == ROOT


CHUNKS = ChunkSpec(first=1, size=3, stride=2, left_context=1)


@pytest.mark.parametrize(
    ("policy", "count", "expected"),
    [
        (CHUNKS, 1, ["a0"]),
        (CHUNKS, 5, ["a0", "a0 a1 a2", "a1 a2 a3 a4"]),
        (CHUNKS, 6, ["a0", "a0 a1 a2", "a1 a2 a3 a4", "a3 a4 a5"]),
        (ChunkSpec(size=2, flush=False), 5, ["a0 a1", "a2 a3"]),
        (ChunkSpec(size=2), 5, ["a0 a1", "a2 a3", "a4"]),
        (ChunkSpec(first=4, size=2), 5, ["a0 a1 a2 a3", "a4"]),
        (ChunkSpec(size=1, stride=3), 6, ["a0", "a3"]),
        (ChunkSpec(size=1, stride=3), 7, ["a0", "a3", "a6"]),
        (ChunkSpec(size=3, stride=1), 4, ["a0 a1 a2", "a1 a2 a3"]),
    ],
)
def test_chunks(policy: ChunkSpec, count: int, expected: list[str]) -> None:
    spec = graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out", chunks={"a.y>b.x": policy})
    case = Case(spec, {"a": ["y"] * count})
    lasts = [run.rpartition(" ")[2].removesuffix(")").removeprefix("main(x=") for run in expected]
    assert case.runs("b") == sorted(f"{last}: main(x={run})" for last, run in zip(lasts, expected, strict=True))
    assert {a.inputs[0][2] for a in case.outcome.places if a.node == "b" and a.inputs[0][2]} <= {(("x", 1),)}


def test_drained_chunks_go_on_once_without_the_field() -> None:
    spec = graph(
        (node("a"), node("b", "main: x?; loop: x", "y again", loop_bound=9)),
        "x>a.x a.y>b.main.x b.again>b.loop.x b.y>out",
        chunks={"a.y>b.main.x": ChunkSpec(size=2, continues=True)},
    )
    case = Case(spec, {"a": ["y", "y", "y"]})
    assert case.runs("b") == ["a1: main(x=a0 a1)", "a2: main(x=a2)", "a3: main()"]


# --- count joins ------------------------------------------------------------------------------------------------------


def counting(
    counts: str = "t=2",
    inputs: str = "main: t c",
    edges: str = "p.y>j.t a.y>j.c",
    on_impossible: OnImpossible = OnImpossible.FAIL,
) -> GraphSpec:
    """a starts p, p's yields trigger j, which takes a's yields as companions."""
    join = node("j", inputs, counts=counts, on_impossible=on_impossible)
    nodes = (node("a", outputs="y z n#"), node("p", outputs="y z n#"), join)
    return graph(nodes, f"x>a.x a.y>p.x {edges} j.y>out")


def test_count_join_takes_the_first_events_and_sorts_them() -> None:
    case = Case(
        counting(), {"a": ["y", "y"], "p": ["y", "y"]}, admitted=["a0", "a1", "a1.p0", "a0.p0", "a0.p1", "a1.p1"]
    )
    assert case.runs("j") == [": main(c=a0 a1, t=a0.p0 a1.p0)"]


def test_count_join_keeps_the_prefix_that_all_selected_share() -> None:
    case = Case(counting(), {"a": ["y", "y"], "p": ["y", "y"]}, admitted=["a0", "a1", "a1.p0", "a1.p1", "a0.p0"])
    assert case.runs("j") == ["a1: main(c=a1 a1, t=a1.p0 a1.p1)"]


def test_count_join_that_gets_too_little_fails_when_data_came() -> None:
    assert Case(counting("t=9"), {"a": ["y"], "p": ["y"]}).outcome.faults == {Fault("COUNT_NOT_REACHED", "j")}
    assert not Case(counting("t=9"), {"a": []}).outcome.faults
    spec = counting("t=9", on_impossible=OnImpossible.SKIP)
    assert not Case(spec, {"a": ["y"], "p": ["y"]}).outcome.faults


def test_count_may_come_from_a_field() -> None:
    spec = counting("t=n", "main: t n#", "p.y>j.t a.n>j.n")
    case = Case(
        spec, {"a": ["y n"], "p": ["y", "y", "y"]}, counts={"a.n": 2}, admitted=["a0", "a0.p0", "a0.p1", "a0.p2"]
    )
    assert case.runs("j") == ["a0: main(t=a0.p0 a0.p1)"]
    case = Case(spec, {"a": ["y n"], "p": ["y"]}, counts={"a.n": 0}, admitted=["a0", "a0.p0"])
    assert case.runs("j") == [":"]
    case = Case(spec, {"a": ["n"]}, counts={"a.n": 0})
    assert case.runs("j") == []
    assert not case.outcome.faults


def test_conflicting_and_bad_counts_fail() -> None:
    spec = counting("t=n", "main: t n#; other: n#", "p.y>j.main.t a.n>j.main.n p.n>j.other.n")
    case = Case(spec, {"a": ["y n"], "p": ["y n"]}, counts={"a.n": 2, "p.n": 3})
    assert case.outcome.faults == {Fault("COUNT_CONFLICT", "j")}
    case = Case(spec, {"a": ["y n"]}, counts={"a.n": -1})
    assert case.outcome.faults == {Fault("INVALID_FIELD", "j")}


def test_zero_count_of_one_field_selects_nothing_for_it() -> None:
    spec = counting("t=1 u=0", "main: t u", "p.y>j.t p.z>j.u")
    case = Case(spec, {"a": ["y"], "p": ["z", "y"]}, admitted=["a0", "a0.p0", "a0.p1"])
    assert case.runs("j") == ["a0.p1: main(t=a0.p1)"]


def test_nearest_companion_wins_and_a_tie_is_an_error() -> None:
    nodes = (node("a"), node("p", outputs="y z"), node("q"), node("j", "t c", counts="t=1"))
    edges = "x>a.x a.y>p.x p.y>q.x q.y>j.t "
    spec = graph(nodes, edges + "a.y>j.c p.z>j.c j.y>out")
    case = Case(spec, {"a": ["y"], "p": ["y z"], "q": ["y"]}, admitted=["a0", "a0.p0", "a0.p0.q0"])
    assert case.runs("j") == ["a0.p0.q0: main(c=a0.p0, t=a0.p0.q0)".replace("a0.p0.q0: ", "a0.p0: ", 1)]
    spec = graph(nodes, "x>a.x a.y>p.x p.y>q.x p.y>j.t a.y>j.c q.y>j.c j.y>out")
    case = Case(spec, {"a": ["y"], "p": ["y"], "q": ["y"]}, admitted=["a0", "a0.p0", "a0.p0.q0"])
    assert case.runs("j") == ["a0: main(c=a0, t=a0.p0)"]
    spec = graph(nodes, "x>a.x a.y>p.x p.y>q.x p.y>j.t q.y>j.c j.y>out")
    case = Case(spec, {"a": ["y"], "p": ["y"], "q": ["y"]}, admitted=["a0", "a0.p0", "a0.p0.q0"])
    assert case.runs("j") == ["a0.p0: main(c=a0.p0.q0, t=a0.p0)"]


def test_equally_near_companions_are_ambiguous() -> None:
    nodes = (node("a"), node("p"), node("q"), node("j", "t c d", counts="t=1"))
    spec = graph(nodes, "x>a.x a.y>p.x p.y>q.x p.y>j.t q.y>j.c a.y>j.c a.y>j.d q.y>j.d j.y>out")
    case = Case(spec, {"a": ["y"], "p": ["y"], "q": ["y", "y"]}, admitted=["a0", "a0.p0"])
    assert case.runs("j") == ["a0: main(c=a0, d=a0, t=a0.p0)"]
    spec = graph(nodes, "x>a.x a.y>p.x p.y>q.x p.y>j.t q.y>j.c a.y>j.c q.y>j.d j.y>out")
    case = Case(spec, {"a": ["y"], "p": ["y"], "q": ["y", "y"]}, admitted=["a0", "a0.p0", "a0.p0.q0"])
    assert case.outcome.faults == {Fault("AMBIGUOUS_COMPANION", "j")}


def test_same_event_through_two_groups_counts_once_and_is_listed_in_the_first() -> None:
    spec = counting("t=2", "one: t; two: t", "p.y>j.one.t p.y>j.two.t")
    case = Case(spec, {"a": ["y"], "p": ["y", "y"]}, admitted=["a0", "a0.p0", "a0.p1"])
    assert case.runs("j") == ["a0: one(t=a0.p0 a0.p1)"]


def test_paths_of_different_shape_keep_the_order_of_admission() -> None:
    nodes = (node("a"), node("p"), node("q"), node("j", "one: t; two: t", counts="t=4"))
    spec = graph(nodes, "x>a.x a.y>p.x a.y>q.x p.y>j.one.t q.y>j.one.t j.y>out")
    case = Case(
        spec, {"a": ["y"], "p": ["y", "y"], "q": ["y", "y"]}, admitted=["a0", "a0.q1", "a0.p1", "a0.p0", "a0.q0"]
    )
    assert case.runs("j") == ["a0: one(t=a0.p0 a0.p1 a0.q0 a0.q1)"]


def test_join_below_a_count_join_that_selects_nothing_still_finds_its_anchor() -> None:
    nodes = (node("a"), node("j", "t", counts="t=0"), node("k", "t x"))
    spec = graph(nodes, "x>a.x a.y>j.t j.y>k.t x>k.x k.y>out")
    case = Case(spec, {"a": ["y"], "j": ["y", "y"]})
    assert case.routes.kinds["k", "main"] is Kind.PREFIX
    assert case.runs("k") == [": main(t=j0 j1, x=)"]
