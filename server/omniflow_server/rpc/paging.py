"""Pages of sorted names. The token is the last name of the page before, so that a list may change between pages."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

DEFAULT_PAGE = 50
LARGEST_PAGE = 1000


PAGE_BYTES = 3 * 1024 * 1024
"""Bytes of a page's items, within what a client takes in one message by default."""


def how_many_fit(sizes_bytes: Sequence[int]) -> int:
    """How many items of a page fit into one message; at least one."""
    total = 0
    for count, size in enumerate(sizes_bytes):
        total += size
        if total > PAGE_BYTES and count:
            return count
    return len(sizes_bytes)


def page(names: Sequence[str], page_size: int, page_token: str) -> tuple[list[str], str]:
    """(the names of the page, the token of the next one or an empty string); `names` are sorted."""
    size = min(page_size or DEFAULT_PAGE, LARGEST_PAGE)
    start = bisect.bisect_right(names, page_token) if page_token else 0
    chosen = list(names[start : start + size])
    return chosen, chosen[-1] if start + size < len(names) else ""
