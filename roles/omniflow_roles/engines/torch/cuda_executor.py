"""Carries out steps on a CUDA device: everything is queued on one stream, and nothing waits for it but the reading of draws.

    host      fill slot 0 │ queue step 1 │ fill slot 1 │ queue step 2 │ read draws of step 1 │ fill slot 0 ...
    device                 copy, graph 1 ─────────────── copy, graph 2 ──────────────

Host buffers are pinned and there are two sets of them: one is filled while the copies from the other may still be under way.
Steps in which every row decodes are captured graphs; those with chunks of prompts are launched kernel by kernel.
"""

from __future__ import annotations

import numpy as np
import torch

from omniflow_roles.engines.sampling.counts import TokenCounts
from omniflow_roles.engines.sampling.draw import Drawn, RowParameters, draw
from omniflow_roles.engines.torch.attention import PagedBatch
from omniflow_roles.engines.torch.batch import BatchBuilder, HostBatch
from omniflow_roles.engines.torch.executor import DrawnTokens, DrawPlan, Launched, StepWork, with_embeddings
from omniflow_roles.engines.torch.graphs import (
    IDS,
    LENGTHS,
    PENDING,
    POSITIONS,
    SLOTS,
    DecodeGraphs,
    StaticInputs,
    batch_sizes,
)
from omniflow_roles.engines.torch.kv import KvTensors
from omniflow_roles.engines.torch.runner import ModelRunner
from omniflow_roles.engines.torch.triton_decode import TritonDecode
from omniflow_roles.engines.torch.triton_prefill import TritonPrefill, blocks_of

_SPLITS = 8
"""Parts that a row's tokens are attended in: enough to fill a large GPU with one row of a few kv heads."""


class CudaExecutor:
    """Steps on a CUDA device."""

    def __init__(
        self,
        runner: ModelRunner,
        kv: KvTensors,
        builder: BatchBuilder,
        counts: TokenCounts,
        *,
        max_rows: int,
        max_draws: int,
        max_pages: int,
    ) -> None:
        """`max_draws` of one step; `max_pages` of one row."""
        self._runner = runner
        self._kv = kv
        self._builder = builder
        self._counts = counts
        self._sizes = batch_sizes(max_rows)
        self._inputs = StaticInputs.allocate(rows=max_rows, pages=max_pages, draws=max_draws, device=runner.device)
        self._graphs = DecodeGraphs(runner, kv, self._inputs, splits=_SPLITS)
        self._stream = torch.cuda.Stream(runner.device)
        self._slots = tuple(_HostSlot(rows=max_rows, pages=max_pages, draws=max_draws) for _ in range(2))
        self._step = 0
        self._parameters: RowParameters | None = None
        """Whose values the static parameters have."""

    def start(self, *, is_overlapped: bool) -> None:
        """Launches return before their step is done either way."""

    def close(self) -> None:
        self._stream.synchronize()

    def launch(self, work: StepWork, before: Launched | None) -> CudaLaunched:
        slot = self._slots[self._step % 2]
        self._step += 1
        with torch.cuda.stream(self._stream):
            drawn = self._decode(work, slot) if _is_decode(work) else self._eager(work)
            return CudaLaunched(work, slot, drawn, len(work.batch.logit_rows), self._inputs.last)

    # --- captured ------------------------------------------------------------------------------------------------------

    def _decode(self, work: StepWork, slot: _HostSlot) -> Drawn | None:
        batch, plan = work.batch, work.draws
        rows = next(size for size in self._sizes if size >= batch.token_count)
        self._fill(batch, slot, rows)
        is_plain = plan.count_slots is None and plan.masks is None and plan.top_logprobs is None
        if is_plain:
            self._fill_draws(plan, slot)
        if not self._graphs.replay(rows, plan.parameters.path if is_plain else None):
            return self._eager(work)
        if is_plain:
            return None
        return self._draw(self._graphs.logits(rows)[: batch.token_count], plan)

    def _fill(self, batch: HostBatch, slot: _HostSlot, rows: int) -> None:
        """Inputs of the step, and of the rows that pad it."""
        count = batch.token_count
        ints = slot.ints
        ints[IDS, :count], ints[PENDING, :count] = batch.ids, batch.pending
        ints[POSITIONS, :count], ints[SLOTS, :count] = batch.positions, batch.write_slots
        ints[LENGTHS, :count] = batch.positions + 1
        padding = self._kv.padding_page
        ints[IDS, count:rows], ints[PENDING, count:rows], ints[POSITIONS, count:rows] = 0, -1, 0
        ints[SLOTS, count:rows], ints[LENGTHS, count:rows] = padding * self._kv.page_size, 1
        self._inputs.ints.copy_(slot.pinned_ints, non_blocking=True)
        width = max(len(row.pages) for row in batch.rows)
        tables = slot.tables[: rows * width].reshape(rows, width)
        tables[:count] = self._builder.page_tables(batch.rows, width=width, padding=padding)
        tables[count:] = padding
        on_device = slot.pinned_tables[: rows * width].to(self._runner.device, non_blocking=True)
        self._inputs.tables[:rows, :width].copy_(on_device.view(rows, width))

    def _fill_draws(self, plan: DrawPlan, slot: _HostSlot) -> None:
        if plan.parameters is not self._parameters:
            self._parameters = plan.parameters
            self._inputs.parameters[:, : plan.parameters.packed.shape[1]].copy_(
                plan.parameters.packed, non_blocking=True
            )
        if not plan.parameters.path.is_all_greedy:
            slot.uniforms[: len(plan.uniforms)] = plan.uniforms
            self._inputs.uniforms.copy_(slot.pinned_uniforms, non_blocking=True)

    # --- kernel by kernel ------------------------------------------------------------------------------------------------

    def _eager(self, work: StepWork) -> Drawn | None:
        batch = work.batch
        ids = self._moved(batch.ids)
        if batch.has_pending:
            pending = self._moved(batch.pending)
            ids = torch.where(pending >= 0, self._inputs.last[pending.clamp(min=0)], ids)
        logits = self._runner.forward(
            ids,
            self._moved(batch.positions),
            self._paged(batch),
            self._moved(batch.logit_rows),
            with_embeddings(self._runner, ids, work.embeddings),
            work.adapters,
        )
        return self._draw(logits, work.draws) if len(batch.logit_rows) else None

    def _paged(self, batch: HostBatch) -> PagedBatch:
        decode = None
        if batch.decode_count:
            rows = batch.rows[: batch.decode_count]
            width = max(len(row.pages) for row in rows)
            tables = self._builder.page_tables(rows, width=width, padding=self._kv.padding_page)
            decode = TritonDecode(
                row_count=len(rows),
                tables=self._moved(tables),
                lengths=self._moved(batch.positions[: len(rows)] + 1),
                splits=_SPLITS,
            )
        return PagedBatch(
            kv=self._kv,
            write_slots=self._moved(batch.write_slots),
            decode=decode,
            prefill=self._prefill(batch) if batch.decode_count < len(batch.rows) else None,
        )

    def _prefill(self, batch: HostBatch) -> TritonPrefill:
        rows = batch.rows[batch.decode_count :]
        chunks: list[tuple[int, int, int]] = []
        begin = batch.decode_count
        for row in rows:
            chunks.append((begin, begin + row.count, row.start))
            begin += row.count
        width = max(len(row.pages) for row in rows)
        return TritonPrefill(
            first_token=batch.decode_count,
            blocks=self._moved(blocks_of(chunks)),
            tables=self._moved(self._builder.page_tables(rows, width=width, padding=self._kv.padding_page)),
        )

    def _draw(self, logits: torch.Tensor, plan: DrawPlan) -> Drawn:
        adjusted, slots = logits, None
        if plan.count_slots is not None:
            slots = self._moved(plan.count_slots)
            adjusted = self._counts.apply(logits, slots)
        masks = None if plan.masks is None else plan.masks.pin_memory().to(self._runner.device, non_blocking=True)
        drawn = draw(
            adjusted,
            plan.parameters,
            self._moved(plan.uniforms),
            masks=masks,
            top_logprobs=plan.top_logprobs,
            raw_logits=logits,
        )
        if slots is not None:
            self._counts.add(slots, drawn.tokens)
        self._inputs.last[: len(drawn.tokens)].copy_(drawn.tokens)
        return drawn

    def _moved(self, array: np.ndarray) -> torch.Tensor:
        """On the device, without waiting for the copy."""
        return torch.from_numpy(array).pin_memory().to(self._runner.device, non_blocking=True)


class _HostSlot:
    """Pinned buffers of one step: NumPy views to fill, tensors to copy from."""

    def __init__(self, *, rows: int, pages: int, draws: int) -> None:
        with torch.inference_mode(False):
            self.pinned_ints = torch.zeros(5, rows, dtype=torch.int64, pin_memory=True)
            self.pinned_tables = torch.zeros(rows * pages, dtype=torch.int32, pin_memory=True)
            self.pinned_uniforms = torch.zeros(rows, dtype=torch.float64, pin_memory=True)
            self.pinned_tokens = torch.zeros(draws, dtype=torch.int64, pin_memory=True)
        self.ints = self.pinned_ints.numpy()
        self.tables = self.pinned_tables.numpy()
        self.uniforms = self.pinned_uniforms.numpy()


class CudaLaunched:
    """A step on the device's stream, whose draws are on their way to the host. Made on the stream."""

    def __init__(self, work: StepWork, slot: _HostSlot, drawn: Drawn | None, count: int, last: torch.Tensor) -> None:
        self.work = work
        self._tokens = slot.pinned_tokens[:count]
        self._tokens.copy_(last[:count], non_blocking=True)
        reported = (None, None, None) if drawn is None else (drawn.logprobs, drawn.top_ids, drawn.top_logprobs)
        self._others = [None if tensor is None else tensor.to("cpu", non_blocking=True) for tensor in reported]
        self._done = torch.cuda.Event()
        self._done.record()

    def wait(self) -> DrawnTokens:
        self._done.synchronize()
        logprobs, top_ids, top_logprobs = (None if tensor is None else tensor.tolist() for tensor in self._others)
        return DrawnTokens(tokens=self._tokens.tolist(), logprobs=logprobs, top_ids=top_ids, top_logprobs=top_logprobs)


def _is_decode(work: StepWork) -> bool:
    """Every row computes one token and draws the next, with embeddings of its own and no adapter."""
    batch = work.batch
    is_plain = not work.embeddings and work.adapters is None
    return is_plain and batch.decode_count == batch.token_count == len(batch.logit_rows)
