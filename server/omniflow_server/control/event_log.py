"""The bounded event log of one call, and the readers that follow it.

    first_kept                read                 last
       |-- kept for resume --|-- not yet read ----|
       at most `limit_bytes`  is_full beyond `limit_bytes`

What has been handed to a stream is kept for a resume until the limit pushes it out; what nobody has read yet is never
dropped: when it passes the limit the log is full, and producers wait (their acknowledgements are held back).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from omniflow_core.errors import OmniFlowError, Reason, invalid_field

_OVERHEAD_BYTES = 64
"""What a kept fragment costs beside its bytes: a token event of 30 bytes is mostly object header."""


def _cost(fragment: bytes) -> int:
    return len(fragment) + _OVERHEAD_BYTES


class EventLog:
    """Fragments of events with gapless sequence numbers from 1."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._fragments: deque[bytes] = deque()
        self._kept_bytes = 0
        self._unread_bytes = 0
        self._read_sequence = 0
        self.first_kept = 1
        self.last = 0
        self.is_closed = False
        """The terminal event has been appended."""
        self._readers: set[LogReader] = set()
        self._drained: list[Callable[[], None]] = []

    @property
    def is_full(self) -> bool:
        return self._unread_bytes > self._limit_bytes

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    @property
    def reader_count(self) -> int:
        return len(self._readers)

    def append(self, fragment: bytes, *, is_terminal: bool = False) -> None:
        """Adds the event with sequence `last + 1`."""
        assert not self.is_closed, "nothing follows the terminal event"
        self._fragments.append(fragment)
        self.last += 1
        self._kept_bytes += _cost(fragment)
        self._unread_bytes += _cost(fragment)
        self.is_closed = is_terminal
        self._trim()
        for reader in self._readers:
            reader.notify()

    def when_drained(self, callback: Callable[[], None]) -> None:
        """Calls back once, when the log is no longer full."""
        self._drained.append(callback)

    async def wait_drained(self) -> None:
        """Returns when the log is not full."""
        while self.is_full:
            future = asyncio.get_running_loop().create_future()
            self.when_drained(lambda f=future: None if f.done() else f.set_result(None))  # type: ignore[misc]
            await future

    def attach(self, after_sequence: int, notify: Callable[[LogReader], None]) -> LogReader:
        """A reader of everything after a sequence number. Raises EVENTS_TRIMMED when that is no longer kept."""
        self._check_kept(after_sequence)
        if after_sequence > self.last:
            raise invalid_field("after_sequence", f"the call has only {self.last} events so far")
        reader = LogReader(self, after_sequence, notify)
        self._readers.add(reader)
        return reader

    def _check_kept(self, after: int) -> None:
        if after + 1 < self.first_kept:
            raise OmniFlowError(
                Reason.EVENTS_TRIMMED,
                f"Events before {self.first_kept} are no longer kept; start the call again.",
                metadata={"first_kept_sequence": str(self.first_kept)},
            )

    def _detach(self, reader: LogReader) -> None:
        self._readers.discard(reader)

    def _take(self, after: int, limit_bytes: int) -> tuple[list[bytes], int]:
        """Fragments after a sequence number, at least one if there is any, up to a size.

        Raises EVENTS_TRIMMED for a reader that a faster one has left behind.
        """
        self._check_kept(after)
        fragments: list[bytes] = []
        size, index = 0, after + 1 - self.first_kept
        if index == 0 and self._kept_bytes <= limit_bytes:
            taken = list(self._fragments)
            self._mark_read(self.last)
            return taken, sum(map(len, taken))
        for position in range(index, len(self._fragments)):
            fragment = self._fragments[position]
            if fragments and size + len(fragment) > limit_bytes:
                break
            fragments.append(fragment)
            size += len(fragment)
        self._mark_read(after + len(fragments))
        return fragments, size

    def _mark_read(self, sequence: int) -> None:
        if sequence <= self._read_sequence:
            return
        start = self._read_sequence + 1 - self.first_kept
        if sequence == self.last:
            self._unread_bytes = 0
        else:
            stop = sequence + 1 - self.first_kept
            self._unread_bytes -= sum(_cost(self._fragments[i]) for i in range(start, stop))
        self._read_sequence = sequence
        self._trim()
        if self._drained and not self.is_full:
            callbacks, self._drained = self._drained, []
            for callback in callbacks:
                callback()

    def _trim(self) -> None:
        while self._kept_bytes > self._limit_bytes and self.first_kept <= self._read_sequence:
            self._kept_bytes -= _cost(self._fragments.popleft())
            self.first_kept += 1


class LogReader:
    """A stream's place in a log."""

    __slots__ = ("_log", "_notify", "credit_bytes", "sequence")

    def __init__(self, log: EventLog, after_sequence: int, notify: Callable[[LogReader], None]) -> None:
        self._log = log
        self._notify = notify
        self.sequence = after_sequence
        self.credit_bytes: int | None = None
        """Bytes that the client still accepts; None without application-level flow control."""

    @property
    def has_more(self) -> bool:
        return self.sequence < self._log.last and (self.credit_bytes is None or self.credit_bytes > 0)

    @property
    def is_done(self) -> bool:
        """The terminal event has been taken."""
        return self._log.is_closed and self.sequence == self._log.last

    def notify(self) -> None:
        self._notify(self)

    def take(self, limit_bytes: int) -> list[bytes]:
        """The next fragments, at most `limit_bytes` and the client's credit unless a single one is larger."""
        if not self.has_more:
            return []
        if self.credit_bytes is not None:
            limit_bytes = min(limit_bytes, self.credit_bytes)
        fragments, size = self._log._take(self.sequence, limit_bytes)
        self.sequence += len(fragments)
        if self.credit_bytes is not None:
            self.credit_bytes -= size
        return fragments

    def close(self) -> None:
        self._log._detach(self)
