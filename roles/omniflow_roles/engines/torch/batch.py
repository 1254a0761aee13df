"""From a planned step to tensors: token ids, positions, slots, page tables, and which outputs are drawn from.

    step      row 7: decode at 41, pages (3, 0, 9)      row 8: chunk 0..4 of a prompt, pages (5,), does not draw
    tokens    ids        t41 | p0 p1 p2 p3              t41 may be drawn by the step before: then its place in that step's
              positions  41  | 0  1  2  3               draws is in `pending`, and its id is known on the device alone
              slots      9·16+9 | 5·16 ...
    draws     logit rows [0]

Everything is built in NumPy and handed to the device in few copies. A row's page table is turned into an array once for each
page that it gains, not once a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from omniflow_roles.engines.scheduling.step import Row, Step
from omniflow_roles.engines.torch.attention import (
    DecodePlan,
    GatheredDecode,
    GatheredPrefill,
    PagedBatch,
    Segment,
    SpanDecode,
)
from omniflow_roles.engines.torch.kv import KvTensors

Ints = npt.NDArray[np.int64]
TokensOf = Callable[[Row], Sequence[int]]
"""The known input tokens of a row: without its first when that is pending, and without its drafts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBatch:
    """A step in host memory."""

    step: Step
    rows: tuple[Row, ...]
    """The step's rows in the order of their tokens: those of a single token first."""
    ids: Ints
    """[tokens]; 0 where the id is pending."""
    pending: Ints
    """[tokens]; the place in the draws of the step before that holds the id, or -1."""
    positions: Ints
    """[tokens]"""
    write_slots: Ints
    """[tokens]"""
    decode_count: int
    """Rows of a single token."""
    logit_rows: Ints
    """[draws]; the tokens that a token is drawn after."""
    draw_places: dict[int, int]
    """First draw of each row that draws, by sequence."""

    @property
    def token_count(self) -> int:
        return len(self.ids)

    @property
    def has_pending(self) -> bool:
        return bool((self.pending >= 0).any())


class _Parts:
    """Of a batch that is being built, token by token."""

    __slots__ = ("draw_places", "ids", "logit_rows", "pending", "positions", "slots")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.pending: list[int] = []
        self.positions: list[int] = []
        self.slots: list[int] = []
        self.logit_rows: list[int] = []
        self.draw_places: dict[int, int] = {}


class BatchBuilder:
    """Builds batches over the pages of one pool."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._tables: dict[int, tuple[tuple[int, ...], Ints]] = {}
        """Page table of a sequence as the scheduler gave it, and as an array."""

    def build(self, step: Step, tokens_of: TokensOf, drawn_before: Mapping[int, int]) -> HostBatch:
        """`drawn_before` is `draw_places` of the step before, where pending ids come from."""
        singles = tuple(row for row in step.rows if row.count == 1)
        rows = (*singles, *(row for row in step.rows if row.count > 1)) if len(singles) < len(step.rows) else singles
        parts = _Parts()
        for row in singles:
            self._add_single(parts, row, tokens_of, drawn_before)
        for row in rows[len(singles) :]:
            self._add_chunk(parts, row, tokens_of, drawn_before)
        return HostBatch(
            step=step,
            rows=rows,
            ids=np.array(parts.ids, np.int64),
            pending=np.array(parts.pending, np.int64),
            positions=np.array(parts.positions, np.int64),
            write_slots=np.array(parts.slots, np.int64),
            decode_count=len(singles),
            logit_rows=np.array(parts.logit_rows, np.int64),
            draw_places=parts.draw_places,
        )

    def _add_single(self, parts: _Parts, row: Row, tokens_of: TokensOf, drawn_before: Mapping[int, int]) -> None:
        """Most rows of most steps: no arrays for one token."""
        position, size = row.start, self._page_size
        parts.pending.append(drawn_before[row.sequence_id] if row.pending else -1)
        parts.ids.append(0 if row.pending else tokens_of(row)[0])
        parts.positions.append(position)
        parts.slots.append(row.pages[position // size] * size + position % size)
        if row.draws:
            parts.draw_places[row.sequence_id] = len(parts.logit_rows)
            parts.logit_rows.append(len(parts.ids) - 1)

    def _add_chunk(self, parts: _Parts, row: Row, tokens_of: TokensOf, drawn_before: Mapping[int, int]) -> None:
        known = (*tokens_of(row), *row.drafts)
        if row.pending:
            parts.pending.append(drawn_before[row.sequence_id])
            parts.ids.append(0)
        parts.pending.extend([-1] * len(known))
        parts.ids.extend(known)
        parts.positions.extend(range(row.start, row.start + row.count))
        parts.slots.extend(self.slots(row)[row.start :].tolist())
        if row.draws:
            end = len(parts.ids)
            parts.draw_places[row.sequence_id] = len(parts.logit_rows)
            parts.logit_rows.extend(range(end - 1 - len(row.drafts), end))

    def forget(self, sequence_id: int) -> None:
        """The sequence will have no further row."""
        self._tables.pop(sequence_id, None)

    def table(self, row: Row) -> Ints:
        """Its pages, [pages]."""
        known = self._tables.get(row.sequence_id)
        if known is None or known[0] is not row.pages:
            known = self._tables[row.sequence_id] = (row.pages, np.array(row.pages, np.int64))
        return known[1]

    def slots(self, row: Row) -> Ints:
        """Slots of all tokens up to the row's last, [start + count]."""
        place = np.arange(row.start + row.count)
        slots: Ints = self.table(row)[place // self._page_size] * self._page_size + place % self._page_size
        return slots

    def page_tables(self, rows: Sequence[Row], *, width: int, padding: int) -> Ints:
        """[rows, width], filled up with `padding`."""
        tables = np.full((len(rows), width), padding, np.int64)
        for index, row in enumerate(rows):
            table = self.table(row)
            tables[index, : len(table)] = table
        return tables

    def on_cpu(self, batch: HostBatch, kv: KvTensors) -> PagedBatch:
        """The attention plan for a CPU, which gathers pages."""
        decode = self._decode_on_cpu(batch.rows[: batch.decode_count], kv) if batch.decode_count else None
        return PagedBatch(
            kv=kv,
            write_slots=torch.from_numpy(batch.write_slots),
            decode=decode,
            prefill=GatheredPrefill(segments=self._segments(batch)) if batch.decode_count < len(batch.rows) else None,
        )

    def _decode_on_cpu(self, rows: Sequence[Row], kv: KvTensors) -> DecodePlan:
        size = self._page_size
        if len(rows) == 1 and _is_span(table := self.table(rows[0])):
            return SpanDecode(begin=int(table[0]) * size, length=rows[0].start + 1)
        lengths = np.array([row.start + 1 for row in rows], np.int64)
        width = -(-int(lengths.max()) // size)
        tables = self.page_tables(rows, width=width, padding=kv.padding_page)
        spread = tables[:, :, None] * size + np.arange(size)
        return GatheredDecode(
            row_count=len(rows),
            slots=torch.from_numpy(spread.reshape(len(rows), -1)),
            lengths=torch.from_numpy(lengths),
        )

    def _segments(self, batch: HostBatch) -> tuple[Segment, ...]:
        """Of the rows of more than one token."""
        found: list[Segment] = []
        begin = batch.decode_count
        for row in batch.rows[batch.decode_count :]:
            slots = torch.from_numpy(self.slots(row))
            found.append(Segment(begin=begin, end=begin + row.count, prefix=row.start, slots=slots))
            begin += row.count
        return tuple(found)


def _is_span(table: Ints) -> bool:
    """Each page is followed by the next one of the pool."""
    return bool(table[-1] - table[0] == len(table) - 1 and (np.diff(table) == 1).all())
