"""What becomes of the recogniser's words; no engine is needed."""

from __future__ import annotations

import pytest

from omniflow_roles.models.assistant.asr import sentence_case


@pytest.mark.parametrize(
    ("heard", "written"),
    [("why is it", "Why is it"), ("do i know what i'm in", "Do I know what I'm in"), ("i", "I"), ("", "")],
)
def test_sentence_case_is_how_a_person_writes(heard: str, written: str) -> None:
    assert sentence_case(heard) == written
