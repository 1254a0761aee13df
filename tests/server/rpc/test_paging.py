"""Pages of sorted names."""

from __future__ import annotations

import pytest

from omniflow_server.rpc.paging import page

NAMES = [f"n{i:04}" for i in range(1_200)]


@pytest.mark.parametrize(("size", "expected"), [(0, 50), (7, 7), (1_000, 1_000), (5_000, 1_000)])
def test_page_has_the_size_that_was_asked_for_up_to_the_limit(size: int, expected: int) -> None:
    names, token = page(NAMES, size, "")
    assert names == NAMES[:expected]
    assert token == names[-1]


def test_pages_join_to_the_whole() -> None:
    found: list[str] = []
    token = ""
    while True:
        names, token = page(NAMES, 100, token)
        found += names
        if not token:
            break
    assert found == NAMES


def test_list_may_change_between_pages() -> None:
    first, token = page(NAMES, 10, "")
    rest, _ = page(NAMES[10:12], 10, token)
    assert rest == NAMES[10:12]
    assert page(NAMES[:5], 10, token) == ([], "")
    assert first[-1] == token
