"""What an interface is given: contributions, left context, facets, delivered yields."""

from __future__ import annotations

import pytest

from omniflow import Context, Field, Inputs, ValueType, groups


def test_inputs_give_the_last_contribution_and_all_of_them() -> None:
    inputs = Inputs("main", {"word": ("a", "b"), "end": ("c",)})
    assert (inputs["word"], inputs["end"]) == ("b", "c")
    assert inputs.all("word") == ("a", "b")
    assert inputs.all("absent") == ()
    assert dict(inputs) == {"word": "b", "end": "c"}
    assert "absent" not in inputs
    assert inputs.group == "main"


def test_inputs_of_one_group_are_their_own_only_facet() -> None:
    inputs = Inputs("main", {"word": ("a",)})
    assert inputs.facets == (inputs,)
    assert inputs.facets[0] is inputs


def test_left_context_is_counted_by_field() -> None:
    inputs = Inputs("main", {"code": ("a", "b", "c"), "tone": ("x", "y", "z")}, context={"code": 2})
    assert [inputs.context_count(name) for name in ("code", "tone", "absent")] == [2, 0, 0]
    assert inputs.all("code")[inputs.context_count("code") :] == ("c",)


def test_facets_are_kept_apart_and_answer_together() -> None:
    images = Inputs("images", {"vit": ("v0", "v1"), "size": ("s0", "s1")})
    more = Inputs("more", {"vit": ("v2",), "done": ("d",)})
    inputs = Inputs("", {}, facets=(images, more))
    assert inputs.facets == (images, more)
    assert inputs.group == "images"
    assert inputs.all("vit") == ("v0", "v1", "v2")
    assert {name: inputs.all(name) for name in inputs} == {
        "vit": ("v0", "v1", "v2"),
        "size": ("s0", "s1"),
        "done": ("d",),
    }
    assert inputs["vit"] == "v2"
    assert len(inputs) == 3


def test_single_facet_is_as_if_it_were_the_whole() -> None:
    facet = Inputs("images", {"vit": ("v0",)})
    inputs = Inputs("", {}, facets=(facet,))
    assert inputs.group == "images"
    assert inputs.facets == (facet,)
    assert dict(inputs) == dict(facet)


def test_count_join_that_selected_nothing_has_no_facet() -> None:
    inputs = Inputs("", {}, facets=())
    assert (inputs.facets, inputs.group, dict(inputs), inputs.all("vit")) == ((), "", {}, ())


def test_facets_decide_group_and_fields() -> None:
    facet = Inputs("images", {"vit": ("v0",)})
    inputs = Inputs("other", {"old": ("x",)}, facets=(facet,))
    assert inputs.group == "images"
    assert dict(inputs) == {"vit": "v0"}


def test_first_attempt_has_delivered_nothing() -> None:
    assert Context(call_id="c", activation_id=1, node="n").delivered == ()
    assert Context(call_id="c", activation_id=1, node="n", delivered=({"n": "0"},)).delivered == ({"n": "0"},)


def test_groups_are_one_or_named() -> None:
    text = {"text": Field(ValueType.TEXT)}
    assert groups(**text) == {"main": text}
    assert groups(("typed", text), ("spoken", text)) == {"typed": text, "spoken": text}
    assert groups() == {"main": {}}


def test_groups_that_would_be_lost_are_refused() -> None:
    text = {"text": Field(ValueType.TEXT)}
    with pytest.raises(TypeError, match="either named groups or the fields of one group"):
        groups(("typed", text), **text)
    with pytest.raises(TypeError, match="two groups have one name: typed, typed"):
        groups(("typed", text), ("typed", text))
    with pytest.raises(TypeError, match=r'is no named group; write groups\(\("typed", '):
        groups(text)  # type: ignore[arg-type]
