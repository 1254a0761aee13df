"""Guesses come from where the newest tokens stood before, and only from there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omniflow_roles.engines.torch.speculation import PromptLookup


def test_what_followed_the_same_tokens_before_is_proposed() -> None:
    lookup = PromptLookup([1, 2, 3, 4, 5, 6, 9, 1, 2, 3])
    assert lookup.propose(2) == [4, 5]
    assert lookup.propose(99) == [4, 5, 6, 9, 1, 2, 3]


def test_newest_occurrence_counts() -> None:
    lookup = PromptLookup([1, 2, 3, 7, 0, 1, 2, 3, 8, 0])
    lookup.extend([1, 2, 3])
    assert lookup.propose(1) == [8]


def test_new_tokens_have_no_proposal() -> None:
    assert PromptLookup([1, 2, 3, 4]).propose(3) == []
    assert PromptLookup([1, 2]).propose(3) == []
    assert PromptLookup([]).propose(3) == []


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 5))
def test_proposal_is_what_stands_after_the_last_same_run(tokens: list[int], count: int) -> None:
    ends = [end for end in range(3, len(tokens)) if tokens[end - 3 : end] == tokens[-3:]]
    expected = tokens[ends[-1] : ends[-1] + count] if ends else []
    assert PromptLookup(tokens).propose(count) == expected
