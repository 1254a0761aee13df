"""Pages of sorted names. The token is the last name of the page before, so that a list may change between pages."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

DEFAULT_PAGE = 50
LARGEST_PAGE = 1000


def page(names: Sequence[str], page_size: int, page_token: str) -> tuple[list[str], str]:
    """(the names of the page, the token of the next one or an empty string); `names` are sorted."""
    size = min(page_size or DEFAULT_PAGE, LARGEST_PAGE)
    start = bisect.bisect_right(names, page_token) if page_token else 0
    chosen = list(names[start : start + size])
    return chosen, chosen[-1] if start + size < len(names) else ""
