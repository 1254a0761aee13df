"""What the DSL refuses at the line that makes the mistake."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from omniflow.dsl import Graph, GraphError
from omniflow.flow import RolePlan
from omniflow.interface import Field, Interface, groups
from omniflow.values import ValueType

TEXT = ValueType.TEXT


class Upper(Interface):
    name = "test.upper"
    inputs = groups(text=Field(TEXT))
    outputs: ClassVar = {"text": Field(TEXT)}


@pytest.mark.parametrize("name", ["", "sh out", "1st", "graphs/shout", "sh\u00f6ut", "shout\n"])
def test_name_that_the_contract_does_not_allow_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match=r"graph .* a name is a letter"):
        Graph(name)
    graph = Graph("a-b_1")
    for make in (
        lambda: graph.input(name, TEXT),
        lambda: graph.output(name, TEXT),
        lambda: graph.node(name, Upper, inline=True),
    ):
        with pytest.raises(GraphError, match="a name is a letter"):
            make()
    with pytest.raises(GraphError, match="input 'a-b'"):
        graph.input("a-b", TEXT)
    assert graph.spec() == Graph("a-b_1").spec(), "nothing is left of what was refused"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": groups(text=TEXT)}, r"'text' is a bare ValueType; write text: Field\(ValueType.TEXT\)"),
        ({"outputs": {"text": TEXT}}, r"output of Wrong 'text' is a bare ValueType"),
        ({"outputs": {"text": "text"}}, "'text' is 'text', which is no Field"),
        ({"outputs": {"text": Field("text")}}, "is of the type 'text'"),  # type: ignore[arg-type]
        (
            {"inputs": {"text": Field(TEXT)}},
            "input group 'text' of Wrong holds no fields by name; write inputs = groups",
        ),
        ({"inputs": [Field(TEXT)]}, "the inputs of Wrong are a list"),
        ({"outputs": Field(TEXT)}, "the outputs of Wrong are a Field"),
        ({"name": ""}, "the name of Wrong is ''; write name = "),
        ({"name": "te st"}, "the name of Wrong is 'te st'; a name is a letter, then letters, digits, _, - and dots"),
        ({"outputs": {"te-xt": Field(TEXT)}}, "field 'te-xt': a name is a letter"),
    ],
)
def test_interface_that_is_declared_wrongly_is_refused(changes: dict[str, Any], message: str) -> None:
    wrong = type("Wrong", (Upper,), changes)
    with pytest.raises(GraphError, match=message):
        Graph("shout").node("upper", wrong, inline=True)


@pytest.mark.parametrize("missing", [("name",), ("inputs",), ("outputs",), ("name", "inputs", "outputs")])
def test_interface_that_lacks_a_part_is_refused(missing: tuple[str, ...]) -> None:
    parts = {"name": Upper.name, "inputs": Upper.inputs, "outputs": Upper.outputs}
    wrong = type("Wrong", (Interface,), {name: part for name, part in parts.items() if name not in missing})
    with pytest.raises(
        GraphError, match=f"node 'upper': Wrong lacks {' and '.join(missing)}; write in the class: "
    ) as caught:
        Graph("shout").node("upper", wrong, inline=True)
    assert all(f"{name} = " in str(caught.value) for name in missing)


@pytest.mark.parametrize("wrong", [Upper(), "test.upper", int, None])
def test_node_of_something_else_than_an_interface_class_is_refused(wrong: Any) -> None:
    with pytest.raises(GraphError, match="is no Interface class"):
        Graph("shout").node("upper", wrong, inline=True)


def test_role_whose_interfaces_are_no_names_is_refused() -> None:
    with pytest.raises(TypeError, match=r"role 'shout': write interfaces=\(\"shout.upper\",\), with the comma"):
        RolePlan(name="shout", interfaces="shout.upper")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"registered names, such as MyInterface\.name"):
        RolePlan(name="shout", interfaces=(Upper,))  # type: ignore[arg-type]
