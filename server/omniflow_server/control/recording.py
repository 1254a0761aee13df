"""The control record of a call: every event of its scheduler without the values, small enough to be kept always.

    Call ── event ──▶ CallRecorder.handle ──▶ CallScheduler.handle
                         entries += 32 bytes   (and 32 more for each detail that most events do not have)

What is kept of a value is its size, and what the scheduler asked of it: counts and digests. With the graph and the
scheduler's options that is enough to run the call again (`omniflow_core.control.replay`), whatever became of it.
"""

from __future__ import annotations

import enum
import hashlib
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from omniflow_core.control.commands import Command
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    CancelRequested,
    Event,
    ExitYielded,
    InputArrived,
    Value,
)
from omniflow_core.control.replay import RecordedEvent, StandIn, checksum_of
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.errors import ErrorInfo, Reason

FORMAT = 1
"""Layout of the entries; described beside ControlRecord.format in the contract."""

_ENTRY = struct.Struct("<BBHIIIQQ")
"""kind, attempt, text, activation, ordinal, checksum, size, time_us"""
ENTRY_BYTES = _ENTRY.size
_pack = _ENTRY.pack
_PATH_ENTRY = struct.Struct("<BBHIII4I")
"""An entry of the same size with four ordinals in the place of size and time."""
_pack_path = _PATH_ENTRY.pack
_ORDINALS = 4
_LOW_HALF = 0xFFFF_FFFF
_LIMITS = (0xFF, 0xFF, 0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF, (1 << 64) - 1, (1 << 64) - 1)

_OWN_BYTES = 512
"""What a record costs that holds nothing."""
_TEXT_BYTES = 128
"""What a text costs beside its characters."""
_LONGEST_TEXT = 512
_MOST_TEXTS = 0xFFFF
_BYTES_AT_THE_END = 3 * ENTRY_BYTES + _TEXT_BYTES + _LONGEST_TEXT
"""What the end of an activation may still take when its call has got its terminal event: details, and an error's text."""

_RAISED = 128
"""Added to the kind of an event that the scheduler broke on."""
_HAS_VALUE, _IS_LAST = 1, 2
_NOT_A_COUNT = 1


class Kind(enum.IntEnum):
    """Kinds of entries: events, and from 16 on details of the event that follows."""

    ADMITTED = 1
    INPUT = 2
    ACCEPTED = 3
    YIELDED = 4
    FINISHED = 5
    FAILED = 6
    CANCELLED = 7
    EXIT = 8
    """A yield of the last node of a pipeline."""
    GIVEN = 16
    """A single input of the call."""
    OPEN = 17
    """A streaming input of the call."""
    STORED = 18
    """Bytes of a yield that its producer keeps."""
    TOKENS = 19
    """Counters of an activation: input, output and cached tokens, and the activations that it has started itself."""
    HISTORIES = 20
    """How many histories an activation extended."""
    COUNT = 21
    """An answer of `count_of`."""
    DIGEST = 22
    """An answer of `digest_of`."""
    LAST = 23
    """The yield that came with the end of its activation: its fields and size."""
    PATH = 24
    """Up to four ordinals of a path, after those of entries before it."""


# Arithmetic on members of an enum costs as much as the rest of an entry.
_ACCEPTED, _YIELDED, _FINISHED = int(Kind.ACCEPTED), int(Kind.YIELDED), int(Kind.FINISHED)
_EXIT, _PATH = int(Kind.EXIT), int(Kind.PATH)


class CallRecorder:
    """Records what passes between a call and its scheduler, up to `limit_bytes`; then it only counts what it leaves out.

    `began_ns` is when the call was accepted, on the clock of `now_ns`.
    """

    __slots__ = (
        "_began_us",
        "_codes",
        "_entries",
        "_is_open",
        "_is_sealed",
        "_limit_bytes",
        "_now_ns",
        "_text_bytes",
        "left_out",
    )

    def __init__(self, *, limit_bytes: int, began_ns: int, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._limit_bytes = limit_bytes - _OWN_BYTES
        """Of entries; texts are taken off as they come."""
        self._began_us = began_ns // 1000
        self._now_ns = now_ns
        self._entries = bytearray()
        self._codes: dict[str | tuple[str, ...], int] = {"": 0}
        """Index of each text: names of fields, or a single text."""
        self._text_bytes = 0
        self._is_open = True
        self._is_sealed = False
        self.left_out = 0
        """Events that came when the record was full."""

    # --- on the way of every event ------------------------------------------------------------------------------------

    def handle(self, scheduler: CallScheduler, event: Event) -> list[Command]:
        """Hands an event to the scheduler and records both sides. Raises what the scheduler raises, and records that."""
        try:
            commands = scheduler.handle(event)
        except Exception:
            if self._is_open:
                self._record(event, 0, _RAISED)
            raise
        if self._is_open:
            self._record(event, checksum_of(commands), 0)
        return commands

    def _record(self, event: Event, checksum: int, raised: int) -> None:
        if self._is_sealed and isinstance(event, ActivationYielded | ExitYielded | ActivationAccepted):
            return  # it changes nothing any more
        if len(self._entries) >= self._limit_bytes:
            self.left_out += 1
            return
        time_us = self._now_ns() // 1000 - self._began_us
        if type(event) is ActivationYielded:
            names = tuple(event.fields)
            text = self._codes.get(names)
            if text is None:
                text = self._code(names)
            if event.stored_bytes:
                self._add(Kind.STORED, size=event.stored_bytes)
            kind, attempt, activation = _YIELDED, event.attempt, event.activation_id
            ordinal, size = event.ordinal, event.size_bytes
        elif type(event) is ActivationAccepted:
            kind, attempt, text, activation, size = _ACCEPTED, event.attempt, 0, event.activation_id, 0
            ordinal = int(event.hosts_segment)
        else:
            kind, attempt, text, activation, ordinal, size = _ENCODE[type(event)](self, event)
        try:
            self._entries += _pack(kind + raised, attempt, text, activation, ordinal, checksum, size, time_us)
        except struct.error:  # what does not fit is as wrong for the scheduler as what is kept of it
            entry = (kind + raised, attempt, text, activation, ordinal, checksum, size, time_us)
            self._entries += _pack(*map(min, entry, _LIMITS))

    def counting(self, count_of: Callable[[Value], int | None]) -> Callable[[Value], int | None]:
        """`count_of` for the scheduler, whose answers are recorded."""

        def ask(value: Value) -> int | None:
            count = count_of(value)
            if count is None or count < 0:
                self._add(Kind.COUNT, ordinal=_NOT_A_COUNT)
            else:
                self._add(Kind.COUNT, size=count)
            return count

        return ask

    def digesting(self, digest_of: Callable[[Mapping[str, Value]], bytes]) -> Callable[[Mapping[str, Value]], bytes]:
        """`digest_of` for the scheduler, whose answers are recorded."""

        def ask(fields: Mapping[str, Value]) -> bytes:
            digest = digest_of(fields)
            kept = hashlib.blake2b(digest, digest_size=16).digest()
            self._add(Kind.DIGEST, size=int.from_bytes(kept[:8], "little"), more=int.from_bytes(kept[8:], "little"))
            return digest

        return ask

    # --- what is kept ---------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> bytes:
        """The entries so far."""
        return bytes(self._entries)

    @property
    def texts(self) -> list[str]:
        """What the entries refer to by index."""
        return [text if isinstance(text, str) else ",".join(text) for text in self._codes]

    @property
    def size_bytes(self) -> int:
        """What the record takes, near enough."""
        return len(self._entries) + self._text_bytes + _OWN_BYTES

    def seal(self, active_count: int) -> int:
        """The call has got its terminal event. Returns how many bytes the record may still grow to."""
        used = len(self._entries)
        self._limit_bytes = min(self._limit_bytes, used + active_count * _BYTES_AT_THE_END)
        self._is_sealed = True
        return self.size_bytes + max(0, self._limit_bytes - used)

    def close(self) -> None:
        """Nothing of the call runs any more: later events, which change nothing, are not recorded."""
        self._is_open = False
        self._entries = bytearray(self._entries)  # without the room for more

    def _code(self, text: str | tuple[str, ...]) -> int:
        found = self._codes.get(text)
        if found is not None:
            return found
        if len(self._codes) > _MOST_TEXTS:
            self._limit_bytes = 0
            return 0
        size = _TEXT_BYTES + (len(text) if isinstance(text, str) else sum(map(len, text)))
        self._text_bytes += size
        self._limit_bytes -= size
        return self._codes.setdefault(text, len(self._codes))

    def _add(
        self,
        kind: Kind,
        *,
        text: str | tuple[str, ...] = "",
        activation: int = 0,
        ordinal: int = 0,
        size: int = 0,
        more: int = 0,
    ) -> None:
        """A detail of the next event."""
        if self._is_open and len(self._entries) < self._limit_bytes:
            entry = (kind, 0, self._code(text), activation, ordinal, 0, size, more)
            try:
                self._entries += _pack(*entry)
            except struct.error:
                self._entries += _pack(*map(min, entry, _LIMITS))

    # --- events that are not yields: (kind, attempt, text, activation, ordinal, size) ---------------------------------

    def _admitted(self, event: CallAdmitted) -> _Parts:
        for name in event.inputs:
            self._add(Kind.GIVEN, text=name)
        for name in sorted(event.open_inputs):
            self._add(Kind.OPEN, text=name)
        return Kind.ADMITTED, 0, 0, 0, 0, 0

    def _input(self, event: InputArrived) -> _Parts:
        flags = (_HAS_VALUE if event.value is not None else 0) | (_IS_LAST if event.is_last else 0)
        return Kind.INPUT, 0, self._code(event.name), 0, flags, event.size_bytes

    def _exit(self, event: ExitYielded) -> _Parts:
        if event.stored_bytes:
            self._add(Kind.STORED, size=event.stored_bytes)
        path = event.origin_path
        for first in range(0, len(path), _ORDINALS):  # beyond the limit too: a part of a path would be another one
            part = path[first : first + _ORDINALS]
            self._entries += _pack_path(_PATH, 0, 0, 0, len(part), 0, *part, *(0,) * (_ORDINALS - len(part)))
        text = self._code(tuple(event.fields))
        return _EXIT, event.attempt, text, event.activation_id, event.ordinal, event.size_bytes

    def _finished(self, event: ActivationFinished) -> _Parts:
        if event.input_tokens or event.output_tokens or event.started_activations:
            self._add(
                Kind.TOKENS,
                activation=event.input_tokens,
                ordinal=event.output_tokens,
                size=event.cached_input_tokens,
                more=event.started_activations,
            )
        if event.histories:
            self._add(Kind.HISTORIES, size=len(event.histories))
        if event.last is not None and not self._is_sealed:
            self._add(Kind.LAST, text=tuple(event.last), size=event.size_bytes, more=event.stored_bytes)
        text = self._code(event.finish_reason)
        return _FINISHED, event.attempt, text, event.activation_id, event.yield_count, 0

    def _failed(self, event: ActivationFailed) -> _Parts:
        return Kind.FAILED, event.attempt, self._code(_text_of(event.error)), event.activation_id, 0, 0

    def _cancelled(self, event: CancelRequested) -> _Parts:
        return Kind.CANCELLED, 0, self._code(_text_of(event.error)), 0, 0, 0


_Parts = tuple[int, int, int, int, int, int]

_ENCODE: Mapping[type, Callable[..., _Parts]] = {
    CallAdmitted: CallRecorder._admitted,
    InputArrived: CallRecorder._input,
    ExitYielded: CallRecorder._exit,
    ActivationFinished: CallRecorder._finished,
    ActivationFailed: CallRecorder._failed,
    CancelRequested: CallRecorder._cancelled,
}


def _text_of(error: ErrorInfo) -> str:
    return f"{error.reason}\n{error.message}"[:_LONGEST_TEXT]


# --- reading ------------------------------------------------------------------------------------------------------------


def events_of(entries: bytes, texts: Sequence[str]) -> Iterator[RecordedEvent]:
    """The events of a record, with stand-ins for their values. Raises ValueError for bytes that are no record."""
    if len(entries) % ENTRY_BYTES:
        raise ValueError(f"{len(entries)} bytes are no whole number of entries of {ENTRY_BYTES} bytes")
    details = _Details()
    index = 0
    for kind, attempt, text, activation, ordinal, checksum, size, time_us in _ENTRY.iter_unpack(entries):
        if text >= len(texts):
            raise ValueError(f"an entry names text {text} of {len(texts)}")
        event_kind = kind & ~_RAISED
        if event_kind in _DETAILS:
            details.take(event_kind, texts[text], activation, ordinal, size, time_us)
            continue
        if event_kind not in _EVENTS:
            raise ValueError(f"there is no kind of entry {kind}")
        yield RecordedEvent(
            index=index,
            time_us=time_us,
            event=_event(event_kind, attempt, texts[text], activation, ordinal, size, details, index),
            checksum=checksum,
            counts=tuple(details.counts),
            digests=tuple(details.digests),
            has_raised=kind >= _RAISED,
        )
        index += 1
        details = _Details()


def count_events(entries: bytes) -> int:
    """How many events are among the entries."""
    return sum(kind & ~_RAISED in _EVENTS for kind in entries[::ENTRY_BYTES])


_EVENTS = frozenset(kind for kind in Kind if kind < Kind.GIVEN)
_DETAILS = frozenset(Kind) - _EVENTS


class _Details:
    """Details of the event that comes next."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.opened: list[str] = []
        self.stored_bytes = 0
        self.tokens = (0, 0, 0)
        self.started = 0
        self.path: list[int] = []
        self.histories = 0
        self.last: tuple[str, int, int] | None = None
        self.counts: list[int | None] = []
        self.digests: list[bytes] = []

    def take(self, kind: int, text: str, activation: int, ordinal: int, size: int, more: int) -> None:
        match kind:
            case Kind.GIVEN:
                self.given.append(text)
            case Kind.OPEN:
                self.opened.append(text)
            case Kind.STORED:
                self.stored_bytes = size
            case Kind.TOKENS:
                self.tokens = (activation, size, ordinal)
                self.started = more
            case Kind.PATH:
                self.path += (size & _LOW_HALF, size >> 32, more & _LOW_HALF, more >> 32)[:ordinal]
            case Kind.HISTORIES:
                self.histories = size
            case Kind.LAST:
                self.last = (text, size, more)
            case Kind.COUNT:
                self.counts.append(None if ordinal == _NOT_A_COUNT else size)
            case Kind.DIGEST:
                self.digests.append(size.to_bytes(8, "little") + more.to_bytes(8, "little"))


def _event(
    kind: int, attempt: int, text: str, activation: int, ordinal: int, size: int, details: _Details, index: int
) -> Event:
    match kind:
        case Kind.ADMITTED:
            return CallAdmitted({name: StandIn(index, name) for name in details.given}, frozenset(details.opened))
        case Kind.INPUT:
            value = StandIn(index, text) if ordinal & _HAS_VALUE else None
            return InputArrived(text, value, bool(ordinal & _IS_LAST), size)
        case Kind.ACCEPTED:
            return ActivationAccepted(activation, attempt, bool(ordinal))
        case Kind.YIELDED:
            fields = {name: StandIn(index, name) for name in text.split(",") if name}
            return ActivationYielded(activation, ordinal, fields, size, attempt, details.stored_bytes)
        case Kind.EXIT:
            fields = {name: StandIn(index, name) for name in text.split(",") if name}
            return ExitYielded(activation, ordinal, fields, tuple(details.path), size, attempt, details.stored_bytes)
        case Kind.FINISHED:
            histories = tuple(StandIn(index, str(number)) for number in range(details.histories))
            finished = ActivationFinished(activation, ordinal, text, *details.tokens, attempt, histories)
            finished.started_activations = details.started
            if details.last is not None:
                names, finished.size_bytes, finished.stored_bytes = details.last
                finished.last = {name: StandIn(index, name) for name in names.split(",") if name}
            return finished
        case Kind.FAILED:
            return ActivationFailed(activation, _error(text), attempt)
        case _:
            return CancelRequested(_error(text))


def _error(text: str) -> ErrorInfo:
    """A reason of another version is INTERNAL, which every version knows."""
    reason, _, message = text.partition("\n")
    return ErrorInfo(reason=Reason(reason) if reason in Reason.__members__ else Reason.INTERNAL, message=message)
