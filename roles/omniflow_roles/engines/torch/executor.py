"""Carries out built steps one after another on the CPU: forward, then draw.

With a thread of its own the engine can plan the next step meanwhile (PyTorch gives the interpreter free within its kernels);
without one, `launch` returns when the step is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from omniflow_roles.engines.sampling.counts import TokenCounts
from omniflow_roles.engines.sampling.draw import Drawn, RowParameters, draw
from omniflow_roles.engines.torch.batch import BatchBuilder, HostBatch
from omniflow_roles.engines.torch.kv import KvTensors
from omniflow_roles.engines.torch.lora_tokens import GroupedTokens
from omniflow_roles.engines.torch.runner import ModelRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPlan:
    """How the tokens of a step are drawn; one entry a draw."""

    parameters: RowParameters
    uniforms: np.ndarray
    """[draws] float64 in [0, 1)."""
    count_slots: np.ndarray | None
    """[draws] int64: slots of `TokenCounts` for the penalties, -1 for none; None when no row has any."""
    masks: torch.Tensor | None
    """[draws, vocabulary] bool, True where a constraint allows the token; None when no row has one."""
    top_logprobs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """A step with everything that its execution needs."""

    batch: HostBatch
    draws: DrawPlan
    embeddings: tuple[tuple[int, torch.Tensor], ...]
    """Where in the batch's tokens embeddings from outside begin, and what they are, [tokens, hidden]."""
    adapters: GroupedTokens | None
    """Which tokens have a LoRA adapter; None when none has."""


def with_embeddings(
    runner: ModelRunner, ids: torch.Tensor, given: Sequence[tuple[int, torch.Tensor]]
) -> torch.Tensor | None:
    """Embeddings [tokens, hidden] of a step into which some come from outside; None when all are the ids' own."""
    if not given:
        return None
    embedded = runner.embed(ids).clone()
    for begin, span in given:
        embedded[begin : begin + len(span)] = span.to(embedded)
    return embedded


class Launched(Protocol):
    """A step on its way."""

    @property
    def work(self) -> StepWork: ...

    def wait(self) -> DrawnTokens:
        """Returns when the step is done; raises what it raised."""


class Executor(Protocol):
    """Where steps run."""

    def start(self, *, is_overlapped: bool) -> None:
        """`is_overlapped`: `launch` returns before the step is done."""

    def launch(self, work: StepWork, before: Launched | None) -> Launched:
        """Begins a step after those that were launched before; `before` drew its pending tokens."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTokens:
    """What a step drew, in host memory."""

    tokens: Sequence[int]
    logprobs: Sequence[float] | None
    top_ids: Sequence[Sequence[int]] | None
    top_logprobs: Sequence[Sequence[float]] | None

    @classmethod
    def of(cls, drawn: Drawn) -> DrawnTokens:
        """Copies from the device; waits for it."""
        return cls(
            tokens=drawn.tokens.tolist(),
            logprobs=None if drawn.logprobs is None else drawn.logprobs.tolist(),
            top_ids=None if drawn.top_ids is None else drawn.top_ids.tolist(),
            top_logprobs=None if drawn.top_logprobs is None else drawn.top_logprobs.tolist(),
        )


class CpuExecutor:
    """Steps on the CPU."""

    def __init__(self, runner: ModelRunner, kv: KvTensors, builder: BatchBuilder, counts: TokenCounts) -> None:
        self._runner = runner
        self._kv = kv
        self._builder = builder
        self._counts = counts
        self._thread: ThreadPoolExecutor | None = None

    def start(self, *, is_overlapped: bool) -> None:
        if is_overlapped:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="step")

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()

    def launch(self, work: StepWork, before: Launched | None) -> CpuLaunched:
        assert before is None or isinstance(before, CpuLaunched)
        launched = CpuLaunched(work)
        if self._thread is not None:
            launched.future = self._thread.submit(self._run, work, before)
            return launched
        try:
            launched.future.set_result(self._run(work, before))
        except Exception as error:
            launched.future.set_exception(error)
        return launched

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _run(self, work: StepWork, before: CpuLaunched | None) -> Drawn | None:
        batch = work.batch
        ids = torch.from_numpy(batch.ids)
        if batch.has_pending:
            assert before is not None
            drawn = before.drawn()
            pending = torch.from_numpy(batch.pending)
            ids = torch.where(pending >= 0, drawn.tokens[pending.clamp(min=0)], ids)
        logits = self._runner.forward(
            ids,
            torch.from_numpy(batch.positions),
            self._builder.on_cpu(batch, self._kv),
            torch.from_numpy(batch.logit_rows),
            with_embeddings(self._runner, ids, work.embeddings),
            work.adapters,
        )
        return self._draw(logits, work.draws) if len(batch.logit_rows) else None

    def _draw(self, logits: torch.Tensor, plan: DrawPlan) -> Drawn:
        raw = logits
        slots = None
        if plan.count_slots is not None:
            slots = torch.from_numpy(plan.count_slots)
            logits = self._counts.apply(logits, slots)
        drawn = draw(
            logits,
            plan.parameters,
            torch.from_numpy(plan.uniforms),
            masks=plan.masks,
            top_logprobs=plan.top_logprobs,
            raw_logits=raw,
        )
        if slots is not None:
            self._counts.add(slots, drawn.tokens)
        return drawn


class CpuLaunched:
    """A step of a `CpuExecutor`."""

    def __init__(self, work: StepWork) -> None:
        self.work = work
        self.future: Future[Drawn | None] = Future()

    def drawn(self) -> Drawn:
        """What it drew. Waits."""
        drawn = self.future.result()
        assert drawn is not None, "a step that draws nothing has no pending tokens after it"
        return drawn

    def wait(self) -> DrawnTokens:
        drawn = self.future.result()
        return (
            DrawnTokens(tokens=(), logprobs=None, top_ids=None, top_logprobs=None)
            if drawn is None
            else DrawnTokens.of(drawn)
        )
