"""Scoring what a recogniser gave back."""

from __future__ import annotations

import pytest

from omniflow_roles.models.assistant.readback import share_read_back, words


def test_words_are_lower_case_and_keep_inner_apostrophes() -> None:
    assert words("It’s 9 o'clock — 'really', e-mail!") == ["it's", "9", "o'clock", "really", "e", "mail"]


@pytest.mark.parametrize(
    ("said", "heard", "share"),
    [
        ("Music is sound.", "music is sound", 1.0),
        ("the capital of France is Paris", "the cap of francis paris", 0.5),
        ("one two three four", "four three two one", 0.25),
        ("one two three four", "", 0.0),
        ("one two", "well one or two or three", 1.0),
        ("a a a", "a", 1 / 3),
        ("", "anything", 1.0),
    ],
)
def test_share_read_back_counts_words_in_order(said: str, heard: str, share: float) -> None:
    assert share_read_back(said, heard) == pytest.approx(share)
