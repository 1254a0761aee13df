"""What the reader of a call holds: an iterator over its events, above the source that brings them.

    EventStream       ->  _CallRun, over RPCs of its own
    ConversationCall  ->  Lane, over the stream that its conversation shares

A handle takes what is ready from its source, and asks the source only when nothing is. Nothing else refers to a handle:
when it is dropped in the middle (a plain `break` out of `async for`), its finalizer makes the source leave the call. What
entering, leaving and sending mean is each handle's own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from omniflow.events import Event


class EventSource(Protocol):
    """What brings the events of one call."""

    ready: deque[Event]
    """Events that wait for their reader; the same deque for the source's whole life."""
    is_live: bool
    """Neither ended nor left: there is something to leave when the handle is dropped."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that the source runs on."""

    @property
    def call_id(self) -> str:
        """The server's identifier; empty before `Accepted`."""

    async def next(self) -> Event:
        """The next event. Raises StopAsyncIteration after the last one, OmniFlowError for a call that failed."""

    def leave(self, reason: str) -> asyncio.Task[None] | None:
        """Ends the source, and cancels the call if it runs: the task, if any, that tells the server."""


SourceT = TypeVar("SourceT", bound=EventSource)


class CallHandle(Generic[SourceT]):
    """Events of one call, in order; the base of what users hold.

    Each handle has its own `__anext__`. The interpreter caches attribute look-ups per function and type: one function for
    both costs a process that reads both by turns 20 ns more for each event, a fifth of what handing one out takes.
    """

    __slots__ = ("__weakref__", "_ready", "_source")

    _drop_reason: ClassVar[str]
    """Why the call is cancelled when the handle is dropped."""

    def __init__(self, source: SourceT) -> None:
        self._source = source
        self._ready = source.ready

    @property
    def call_id(self) -> str:
        """The server's identifier; empty before `Accepted`."""
        return self._source.call_id

    def __aiter__(self) -> Self:
        return self

    async def next_batch(self) -> list[Event]:
        """The events that are ready, after waiting for the first; empty at the end."""
        try:
            batch = [await self._source.next()]
        except StopAsyncIteration:
            return []
        batch.extend(self._ready)
        self._ready.clear()
        return batch

    async def aclose(self) -> None:
        """Leaves the call, and cancels it unless it has ended."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        source = getattr(self, "_source", None)
        if source is not None and source.is_live and not source.loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in between
                # A finalizer may run on any thread.
                source.loop.call_soon_threadsafe(source.leave, self._drop_reason)
