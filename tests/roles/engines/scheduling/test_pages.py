"""The local pool of pages: holders, chains of sealed pages, what is evicted first."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniflow_roles.engines.scheduling.pages import LocalPages, Page


def sealed(pages: LocalPages, holder: int, content: tuple[int, ...], *, namespace: str = "") -> list[Page]:
    """A holder with the full pages of its content sealed."""
    taken = pages.acquire(holder, len(content) // pages.page_size)
    assert taken is not None
    pages.seal(holder, namespace, content, taken)
    return taken


def test_acquire_hands_pages_out_in_the_given_order() -> None:
    pages = LocalPages(4, 2, order=[2, 0, 3, 1])
    assert pages.acquire(1, 3) == [2, 0, 3]
    assert pages.acquire(2, 1) == [1]


def test_acquire_of_more_than_is_available_takes_nothing() -> None:
    pages = LocalPages(4, 2)
    pages.acquire(1, 2)
    assert pages.acquire(2, 3) is None
    assert pages.available == 2
    assert pages.acquire(2, 0) == []
    pages.check_integrity()


def test_release_gives_all_pages_of_a_holder_back_once() -> None:
    pages = LocalPages(4, 2)
    pages.acquire(1, 2)
    pages.acquire(1, 1)
    pages.release(1)
    pages.release(1)
    pages.release(7)
    assert pages.available == 4
    pages.check_integrity()


def test_page_comes_back_when_its_last_holder_has_gone() -> None:
    pages = LocalPages(2, 2)
    taken = sealed(pages, 1, (5, 6))
    pages.hold(2, taken)
    pages.hold(2, taken)
    assert pages.holders_of(taken[0]) == {1, 2}
    pages.release(1)
    assert pages.available == 1
    pages.release(2)
    assert pages.available == 2
    pages.check_integrity()


def test_match_finds_full_pages_only() -> None:
    pages = LocalPages(4, 2)
    taken = sealed(pages, 1, (1, 2, 3, 4, 5))
    assert len(taken) == 2
    assert pages.match("", (1, 2, 3, 4, 5, 6)) == taken
    assert pages.match("", (1, 2, 3)) == taken[:1]
    assert pages.match("", (1,)) == []


def test_match_stays_within_the_namespace() -> None:
    pages = LocalPages(4, 2)
    taken = sealed(pages, 1, (1, 2), namespace="a")
    assert pages.match("b", (1, 2)) == []
    assert pages.match("a", (1, 2)) == taken


def test_equal_content_behind_another_prefix_is_another_page() -> None:
    pages = LocalPages(4, 2)
    taken = sealed(pages, 1, (1, 2, 9, 9))
    assert pages.match("", (9, 9)) == []
    assert pages.match("", (3, 4, 9, 9)) == []
    other = sealed(pages, 2, (3, 4, 9, 9))
    assert pages.match("", (3, 4, 9, 9)) == other
    assert not set(taken) & set(other)


def test_seal_again_changes_nothing_and_goes_on_where_it_ended() -> None:
    pages = LocalPages(4, 2)
    taken = pages.acquire(1, 3)
    assert taken is not None
    content = [1, 2, 3, 4, 5, 6]
    pages.seal(1, "", content, taken[:1])
    pages.seal(1, "", content, taken[:1])
    pages.seal(1, "", content, [])
    assert pages.match("", content) == taken[:1]
    pages.seal(1, "", content, taken)
    pages.seal(1, "", content, taken[:2])
    assert pages.match("", content) == taken
    pages.check_integrity()


def test_seal_of_pages_that_another_holds_is_an_error() -> None:
    pages = LocalPages(4, 2)
    taken = pages.acquire(1, 1)
    assert taken is not None
    with pytest.raises(AssertionError, match="without holding"):
        pages.seal(2, "", (1, 2), taken)


def test_idle_pages_are_found_and_held_again() -> None:
    pages = LocalPages(4, 2)
    taken = sealed(pages, 1, (1, 2, 3, 4))
    pages.release(1)
    assert pages.available == 4
    assert pages.match("", (1, 2, 3, 4)) == taken
    pages.hold(2, taken)
    assert pages.available == 2
    pages.check_integrity()


def test_leaves_are_evicted_before_their_parents() -> None:
    pages = LocalPages(4, 1)
    sealed(pages, 1, (1, 2, 3, 4))
    pages.release(1)
    for left in (3, 2, 1, 0):
        assert pages.acquire(2, 1) is not None
        assert len(pages.match("", (1, 2, 3, 4))) == left
        pages.check_integrity()


def test_leaves_are_evicted_first_whatever_the_order_their_pages_were_taken_in() -> None:
    pages = LocalPages(4, 1)
    taken = pages.acquire(1, 4)
    assert taken is not None
    pages.seal(1, "", (1, 2, 3, 4), [taken[2], taken[0], taken[3], taken[1]])
    pages.release(1)
    for left in (3, 2, 1, 0):
        assert pages.acquire(2, 1) is not None
        assert len(pages.match("", (1, 2, 3, 4))) == left
        pages.check_integrity()


def test_least_recently_used_chain_is_evicted_first() -> None:
    pages = LocalPages(4, 1)
    for holder, content in enumerate([(1, 2), (3, 4)]):
        sealed(pages, holder, content)
        pages.release(holder)
    pages.match("", (1, 2))
    pages.acquire(9, 2)
    assert len(pages.match("", (1, 2))) == 2
    assert pages.match("", (3, 4)) == []


def test_free_pages_are_taken_before_cached_ones() -> None:
    pages = LocalPages(3, 1)
    taken = sealed(pages, 1, (1,))
    pages.release(1)
    pages.acquire(2, 2)
    assert pages.match("", (1,)) == taken


def test_twin_of_a_sealed_page_stays_private() -> None:
    pages = LocalPages(4, 1)
    first = sealed(pages, 1, (1, 2))
    twin = sealed(pages, 2, (1, 2))
    assert pages.match("", (1, 2)) == first
    assert not any(pages.is_sealed(page) for page in twin)
    pages.release(2)
    assert pages.match("", (1, 2)) == first
    pages.check_integrity()


def test_page_behind_an_evicted_twin_is_kept_and_sealed_again() -> None:
    pages = LocalPages(3, 1)
    sealed(pages, 1, (1,))
    own = sealed(pages, 2, (1, 2))  # its second page stands behind the first page of 1
    pages.release(1)
    assert pages.acquire(3, 1) is not None  # the only idle one
    assert pages.match("", (1, 2)) == []
    assert pages.holders_of(own[1]) == {2}
    pages.check_integrity()
    pages.seal(2, "", (1, 2), own)
    assert pages.match("", (1, 2)) == own
    pages.release(2)
    pages.release(3)
    assert pages.available == 3
    pages.check_integrity()


_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "grow", "grow", "end"]),
        st.integers(1, 4),
        st.lists(st.integers(0, 1), min_size=1, max_size=12),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(page_count=st.integers(1, 9), page_size=st.integers(1, 3), actions=_ACTIONS)
def test_what_match_finds_is_what_was_sealed(
    page_count: int, page_size: int, actions: list[tuple[str, int, list[int]]]
) -> None:
    pages = LocalPages(page_count, page_size)
    written: dict[Page, tuple[int, ...]] = {}
    contents: dict[int, list[int]] = {}
    tables: dict[int, list[Page]] = {}
    for action, holder, tokens in actions:
        if action == "end":
            pages.release(holder)
            contents.pop(holder, None)
        elif action == "start" and holder not in contents:
            found = pages.match("", tokens)
            for index, page in enumerate(found):
                assert written[page] == tuple(tokens[: (index + 1) * page_size])
            pages.hold(holder, found)
            contents[holder], tables[holder] = tokens[: len(found) * page_size], found
        elif action == "grow" and holder in contents:
            content, table = contents[holder], tables[holder]
            before = pages.available
            gained = pages.acquire(holder, (len(content) + len(tokens)) // page_size - len(table))
            if gained is None:
                assert pages.available == before
                continue
            content += tokens
            table += gained
            for index in range(len(table) - len(gained), len(table)):
                written[table[index]] = tuple(content[: (index + 1) * page_size])
            pages.seal(holder, "", content, table)
            assert len(pages.match("", content)) == len(table)
        pages.check_integrity()
    for holder in contents:
        assert pages.acquire(holder, page_count + 1) is None
        pages.release(holder)
    assert pages.available == page_count
