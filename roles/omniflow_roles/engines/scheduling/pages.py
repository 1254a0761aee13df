"""Pages of KV: who holds them, and which hold a prefix that others may take over.

A page is free, held (by one or several sequences) or idle: sealed, held by nobody, kept as cache until its room is needed.
Sealed pages form chains: a page is found by the content of its tokens *below* the page before it, so equal content at
another place is another page, and content is compared itself, never a digest of it.

    namespace "a" ── [7 7 1 2] page 3 ── [5 5 5 5] page 0      held by 12 and 13
                                      └─ [9 9 9 9] page 8      idle: evicted before page 3

Two sequences that compute the same chain side by side both keep their own pages; only the first ones are sealed, the
twins stay private. So a sealed page can be held while the page before it in the chain is idle. Evicting that one takes
the pages behind it out of the chain (nothing could find them any more); their holders keep them, and seal them again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Protocol

Page = int
"""Index into the pool: page p holds the slots p * page_size .. (p + 1) * page_size - 1."""


class PageSource(Protocol):
    """The pool as a scheduler sees it. Holders are sequence ids; a holder has one content, so its pages are one chain."""

    page_size: int
    """Tokens a page."""
    page_count: int
    """Pages that sequences can ever hold together."""

    @property
    def available(self) -> int:
        """Pages that `acquire` can give now: free ones and idle ones."""

    def match(self, namespace: str, content: Sequence[int]) -> list[Page]:
        """The longest chain of sealed pages that begins `content`, full pages only. Marks them used; holds nothing."""

    def hold(self, holder: int, pages: Sequence[Page]) -> None:
        """Adds a holder to pages that `match` has just found. Idempotent."""

    def acquire(self, holder: int, count: int) -> list[Page] | None:
        """Takes `count` pages nobody else holds, evicting idle ones. None when short, and then nothing is taken."""

    def seal(self, holder: int, namespace: str, content: Sequence[int], pages: Sequence[Page]) -> None:
        """Offers the holder's first pages, which hold the KV of content[: len(pages) * page_size]. Idempotent."""

    def release(self, holder: int) -> None:
        """Gives up all pages of the holder; its sealed ones become idle. Unknown holders change nothing."""

    def check_integrity(self) -> None:
        """Recomputes the accounts. For tests and idle engines."""


class _Link:
    """A sealed page in its chain, found by its content; or (page -1, no parent) a root, found by its namespace."""

    __slots__ = ("children", "depth", "key", "page", "parent")

    def __init__(self, page: Page, parent: _Link | None, key: tuple[int, ...] | str) -> None:
        self.page = page
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.key = key
        self.children: dict[tuple[int, ...], _Link] = {}

    def to_root(self) -> Iterator[_Link]:
        """This page and those before it, deepest first, without the root."""
        link: _Link = self
        while link.parent is not None:
            yield link
            link = link.parent


class LocalPages:
    """A pool of this process. `order` says in which order its pages are handed out first (all of them, each once)."""

    def __init__(self, page_count: int, page_size: int, order: Sequence[int] | None = None) -> None:
        self.page_count = page_count
        self.page_size = page_size
        self._free: list[Page] = list(range(page_count) if order is None else order)[::-1]
        self._holders: dict[Page, set[int]] = {}
        self._pages_of: dict[int, dict[Page, None]] = {}
        self._roots: dict[str, _Link] = {}
        self._sealed: dict[Page, _Link] = {}
        self._idle: OrderedDict[Page, None] = OrderedDict()
        """Least recently used first; a page never stands before an idle one that follows it in its chain."""
        self._sealed_to: dict[int, tuple[_Link, int]] = {}
        """Where the last `seal` of a holder ended, so that the next one need not walk the chain again."""

    @property
    def available(self) -> int:
        return len(self._free) + len(self._idle)

    def holders_of(self, page: Page) -> frozenset[int]:
        """The sequences that hold the page."""
        return frozenset(self._holders.get(page, ()))

    def is_sealed(self, page: Page) -> bool:
        """Whether `match` can find the page."""
        return page in self._sealed

    def match(self, namespace: str, content: Sequence[int]) -> list[Page]:
        link = self._roots.get(namespace)
        if link is None:
            return []
        size = self.page_size
        for start in range(0, len(content) - size + 1, size):
            child = link.children.get(tuple(content[start : start + size]))
            if child is None:
                break
            link = child
        self._mark_used(link)
        return [found.page for found in link.to_root()][::-1]

    def hold(self, holder: int, pages: Sequence[Page]) -> None:
        for page in pages:
            if page in self._idle:
                del self._idle[page]
                self._holders[page] = set()
            self._holders[page].add(holder)
        self._pages_of.setdefault(holder, {}).update(dict.fromkeys(pages))

    def acquire(self, holder: int, count: int) -> list[Page] | None:
        if count > self.available:
            return None
        while len(self._free) < count:
            self._unseal(self._sealed[next(iter(self._idle))])
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._holders[page] = {holder}
        self._pages_of.setdefault(holder, {}).update(dict.fromkeys(pages))
        return pages

    def seal(self, holder: int, namespace: str, content: Sequence[int], pages: Sequence[Page]) -> None:
        if not pages:
            return
        link, done = self._sealed_to.get(holder, (None, 0))
        if link is None or self._sealed.get(link.page) is not link:
            link, done = self._roots.setdefault(namespace, _Link(-1, None, namespace)), 0
        size = self.page_size
        for index in range(done, len(pages)):
            key = tuple(content[index * size : (index + 1) * size])
            child = link.children.get(key)
            if child is None:
                page = pages[index]
                assert holder in self._holders.get(page, ()), f"{holder} seals page {page} without holding it"
                assert page not in self._sealed, f"page {page} is sealed for other content"
                child = link.children[key] = self._sealed[page] = _Link(page, link, key)
            link = child
        self._sealed_to[holder] = (link, max(done, len(pages)))

    def release(self, holder: int) -> None:
        self._sealed_to.pop(holder, None)
        deepest: _Link | None = None
        for page in self._pages_of.pop(holder, ()):
            holders = self._holders[page]
            holders.discard(holder)
            if holders:
                continue
            del self._holders[page]
            link = self._sealed.get(page)
            if link is None:
                self._free.append(page)
                continue
            self._idle[page] = None
            if deepest is None or link.depth > deepest.depth:
                deepest = link
        if deepest is not None:
            self._mark_used(deepest)

    def check_integrity(self) -> None:
        everywhere = sorted([*self._free, *self._holders, *self._idle])
        assert everywhere == list(range(self.page_count)), "a page is lost, or in two places"
        held = {(page, holder) for page, holders in self._holders.items() for holder in holders}
        assert held == {(page, holder) for holder, pages in self._pages_of.items() for page in pages}
        assert all(self._holders.values()), "a page is kept for nobody"
        assert set(self._idle) == set(self._sealed) - set(self._holders), "idle pages are the sealed ones nobody holds"
        assert self._sealed_to.keys() <= self._pages_of.keys(), "a place in a chain was kept for a holder that is gone"
        self._check_chains()

    def _check_chains(self) -> None:
        assert all(root.children for root in self._roots.values()), "an empty namespace was kept"
        links = list(self._roots.values())
        found: dict[Page, _Link] = {}
        while links:
            link = links.pop()
            for key, child in link.children.items():
                assert child.parent is link, "a chain does not lead back"
                assert child.key == key, "a page stands under other content"
                found[child.page] = child
                links.append(child)
        assert found == self._sealed, "a sealed page is in no chain, or a chain has an unsealed page"
        order = {page: place for place, page in enumerate(self._idle)}
        for page in self._idle:
            before = [order[link.page] for link in self._sealed[page].to_root() if link.page in order]
            assert before == sorted(before), "a page would be evicted before one that follows it"

    def _mark_used(self, link: _Link) -> None:
        """Deepest first, so that the leaves go before their parents."""
        for used in link.to_root():
            if used.page in self._idle:
                self._idle.move_to_end(used.page)

    def _unseal(self, link: _Link) -> None:
        """Takes a page and what follows it out of the chain; those that nobody holds are free then."""
        parent, key = link.parent, link.key
        assert parent is not None and isinstance(key, tuple), "only pages are evicted"
        del parent.children[key]
        if not parent.children and isinstance(parent.key, str):
            del self._roots[parent.key]
        links = [link]
        while links:
            gone = links.pop()
            links.extend(gone.children.values())
            del self._sealed[gone.page]
            if gone.page in self._idle:
                del self._idle[gone.page]
                self._free.append(gone.page)
