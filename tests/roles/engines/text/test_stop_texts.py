"""Holding back what may become a stop text."""

from __future__ import annotations

import itertools

import pytest

from omniflow_roles.engines.text.stop_texts import StopTexts


def test_stop_texts_hold_back_a_possible_beginning() -> None:
    stops = StopTexts(["STOP"])
    assert [stops.push(piece) for piece in ["go ST", "AND", " STO", "P!", "more"]] == ["go ", "STAND", " ", "", ""]
    assert stops.has_stopped
    assert not stops.is_holding


def test_stop_texts_give_the_held_text_back_at_the_end() -> None:
    stops = StopTexts(["STOP"])
    assert stops.push("a ST") == "a "
    assert stops.is_holding
    assert stops.flush() == "ST"
    assert not stops.has_stopped


def test_stop_texts_the_earliest_counts() -> None:
    stops = StopTexts(["later", "soon"])
    assert stops.push("now soon later") == "now "


def test_stop_texts_without_any_pass_everything_at_once() -> None:
    stops = StopTexts(["", *()])
    assert stops.push("all") == "all"
    assert stops.flush() == ""


@pytest.mark.parametrize("given_stops", [("ab",), ("aab", "b"), ("abab", "ba"), ("aa", "aaa"), ("c",)])
def test_stop_texts_piece_by_piece_the_first_complete_one_ends_the_text(given_stops: tuple[str, ...]) -> None:
    for text in ("".join(characters) for size in range(9) for characters in itertools.product("ab", repeat=size)):
        stops = StopTexts(given_stops)
        passed = "".join(stops.push(character) for character in text) + stops.flush()
        complete = [(text.find(stop) + len(stop), text.find(stop)) for stop in given_stops if stop in text]
        assert passed == (text[: min(complete)[1]] if complete else text)
        assert stops.has_stopped is bool(complete)
