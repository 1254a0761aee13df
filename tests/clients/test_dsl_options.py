"""Options of nodes, and what a graph declares beside them."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniflow.codec.workflow import graph_spec_from_proto
from omniflow.dsl import Balance, Graph, GraphError, OnFailure, OnImpossible, Replay
from omniflow.interface import Field, Interface, groups
from omniflow.values import ValueType
from omniflow_core.graph import spec as core

TEXT, JSON = ValueType.TEXT, ValueType.JSON


class Collect(Interface):
    name = "test.collect"
    inputs = groups(
        ("pages", {"page": Field(TEXT), "title": Field(TEXT)}),
        ("end", {"done": Field(ValueType.SIGNAL), "pages": Field(JSON), "total": Field(JSON, is_optional=True)}),
    )
    outputs: ClassVar = {"book": Field(TEXT)}


def planned(**options: Any) -> core.NodeSpec:
    """The node as the planner sees it."""
    graph = Graph("test")
    graph.global_parameter("kv", layout="paged", history_field="tokens")
    graph.global_parameter("history")
    graph.node("node", Collect, role="role", **options)
    return graph_spec_from_proto(graph.spec()).nodes[0]


def test_plain_node_leaves_every_option_unset() -> None:
    graph = Graph("test")
    graph.node("node", Collect, role="role")
    message = graph.spec().nodes[0]
    assert [field.name for field, _ in message.ListFields()] == ["name", "interface", "role", "input_groups", "outputs"]


@given(
    balance=st.sampled_from(get_args(Balance)),
    on_impossible=st.sampled_from(get_args(OnImpossible)),
    on_failure=st.sampled_from(get_args(OnFailure)),
    replay=st.sampled_from(get_args(Replay)),
    flags=st.fixed_dictionaries({name: st.booleans() for name in ("session_ordered", "deterministic", "spread")}),
    yield_window=st.integers(0, 65_536),
    loop_bound=st.integers(0, 2**32 - 1),
    timeout_ms=st.none() | st.integers(1, 10**9),
)
def test_options_reach_the_planner_as_they_were_given(
    balance: str,
    on_impossible: str,
    on_failure: str,
    replay: str,
    flags: dict[str, bool],
    timeout_ms: int | None,
    **limits: int,
) -> None:
    words = {"balance": balance, "on_impossible": on_impossible, "on_failure": on_failure, "replay": replay}
    node = planned(**words, **flags, **limits, timeout_s=None if timeout_ms is None else timeout_ms / 1000)
    assert {name: getattr(node, name).value for name in words} == words
    assert {name: getattr(node, f"is_{name}") for name in flags} == flags
    assert {name: getattr(node, name) for name in limits} == limits
    assert node.timeout_s == (None if timeout_ms is None else timeout_ms / 1000)


@pytest.mark.parametrize("field", ["page", "pages", "done"])
def test_cost_is_a_field_of_any_input_group(field: str) -> None:
    node = planned(balance="cost_aware", cost=field)
    assert (node.balance, node.cost_field) == (core.Balance.COST_AWARE, field)
    assert planned(balance="cost_aware").cost_field == ""


def test_words_are_those_of_the_planner() -> None:
    for words, enum in (
        (Balance, core.Balance),
        (OnImpossible, core.OnImpossible),
        (OnFailure, core.OnFailure),
        (Replay, core.Replay),
    ):
        assert {*get_args(words)} == {member.value for member in enum}


def test_count_join_names_triggers_and_their_counts() -> None:
    node = planned(activate_by_count={"page": "pages", "done": 1, "title": 0})
    assert node.activate_by_count == (
        core.CountTriggerSpec(field="page", count_field="pages"),
        core.CountTriggerSpec(field="done", constant=1),
        core.CountTriggerSpec(field="title", constant=0),
    )


def test_global_parameters_are_named_or_given() -> None:
    graph = Graph("test")
    kv = graph.global_parameter("kv", layout="paged", history_field="tokens")
    graph.global_parameter("history")
    graph.node("node", Collect, role="role", global_parameters=[kv, "history"])
    spec = graph.spec()
    assert [(p.name, p.layout, p.history_field) for p in spec.global_parameters] == [
        ("kv", "paged", "tokens"),
        ("history", "", ""),
    ]
    assert spec.nodes[0].global_parameters == ["kv", "history"]
    with pytest.raises(GraphError, match="has a global parameter 'kv' already"):
        graph.global_parameter("kv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance": "least_load"}, "balance cannot be 'least_load'; did you mean 'least_loaded'?"),
        ({"replay": "again"}, "replay cannot be 'again'; known: continue, none, restart"),
        ({"on_failure": "skipp"}, "on_failure cannot be 'skipp'; did you mean 'skip'?"),
        ({"on_impossible": None}, "on_impossible cannot be None; known: fail, skip"),
        (
            {"balance": "cost_aware", "cost": "pag"},
            "cost names the field 'pag', which is no input; did you mean 'page'?",
        ),
        ({"cost": "page"}, "cost='page' needs balance='cost_aware'; no other policy looks at it"),
        ({"balance": "kv_aware", "cost": "page"}, "cost='page' needs balance='cost_aware'"),
        ({"loop_bound": -1}, "loop_bound is -1; write a whole number from 0 to 4294967295"),
        ({"loop_bound": True}, "loop_bound is True"),
        ({"yield_window": 65_537}, "yield_window is 65537; write a whole number from 0 to 65536"),
        ({"timeout_s": 0}, "timeout_s is 0; write 0.001 seconds or more"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"timeout_s": "5"}, "timeout_s is '5'"),
        ({"global_parameters": ["kw"]}, "the graph has no global parameter 'kw'; known: kv"),
        ({"global_parameters": "kv"}, r"write global_parameters=\['kv'\], a list, for one name"),
        ({"activate_by_count": {"pag": 1}}, "names the field 'pag', which is no input; did you mean 'page'?"),
        ({"activate_by_count": {"page": "page_count"}}, "counts 'page' by 'page_count', which is no input"),
        (
            {"activate_by_count": {"page": "title"}},
            "counts 'page' by 'title', which is TEXT; a count is an integer of a JSON",
        ),
        ({"activate_by_count": {"page": "pages", "pages": 1}}, "counts 'page' by 'pages', which is counted itself"),
        ({"activate_by_count": {"page": -1}}, "counts 'page' by -1; write the name of a JSON field, or a number"),
        ({"activate_by_count": {"page": True}}, "counts 'page' by True"),
        ({"activate_by_count": {"page": 1.5}}, "counts 'page' by 1.5"),
    ],
)
def test_option_that_cannot_be_is_refused_and_adds_no_node(options: dict[str, Any], message: str) -> None:
    graph = Graph("test")
    graph.global_parameter("kv")
    with pytest.raises(GraphError, match=f"node 'node': .*{message}"):
        graph.node("node", Collect, role="role", **options)
    assert not graph.spec().nodes
    graph.node("node", Collect, role="role")


@pytest.mark.parametrize("options", [{}, {"role": "role", "inline": True}])
def test_node_is_served_by_a_role_or_inline(options: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match=r"needs either role=\.\.\. or inline=True"):
        Graph("test").node("node", Collect, **options)


def test_inputs_and_outputs_keep_what_they_say() -> None:
    graph = Graph("test", description="A test.")
    graph.input("a", TEXT)
    graph.input("b", JSON, optional=True, streaming=True)
    graph.output("c", TEXT)
    graph.output("d", JSON, unordered=True)
    spec = graph_spec_from_proto(graph.spec())
    assert spec.placeholders == (
        core.PlaceholderSpec(field=core.FieldSpec(name="a", type="TEXT")),
        core.PlaceholderSpec(field=core.FieldSpec(name="b", type="JSON", is_optional=True), is_streaming=True),
    )
    assert spec.outputs == (
        core.OutputSpec(field=core.FieldSpec(name="c", type="TEXT")),
        core.OutputSpec(field=core.FieldSpec(name="d", type="JSON"), is_unordered=True),
    )
    assert graph.spec().description == "A test."


def test_types_that_are_none_are_refused() -> None:
    graph = Graph("test")
    with pytest.raises(GraphError, match=r"input 'a' is of the type 'TEXT', which is none; write ValueType\.TEXT"):
        graph.input("a", "TEXT")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"output 'a' is of the type <class 'str'>"):
        graph.output("a", str)  # type: ignore[arg-type]
    assert graph.spec() == Graph("test").spec()


def test_spec_is_a_copy() -> None:
    graph = Graph("test")
    graph.spec().nodes.add(name="other")
    assert not graph.spec().nodes
