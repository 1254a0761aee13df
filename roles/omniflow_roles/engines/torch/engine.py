"""The engine: requests in, pieces of completions out, and one thread that steps through everything between.

    declare ─▶ admit ─▶ plan ─▶ forward ─▶ commit ─▶ publish
    (scheduler: pages, order)   (executor)   (scheduler)   (stop checks, text, streams)

Overlapped, a step is planned and its tensors are built while the one before it runs; what that one drew is committed and
published one step late:

    thread      plan 2, build 2 │ launch 2, commit 1, publish 1 │ plan 3 ...
    device      ─── step 1 ─────┤ ─── step 2 ──────────────────────

A completion that turns out to have ended in step 1 has a row too many in step 2; its draw is dropped. Completions that need
the host before their next token (constraints, speculation) keep the engine from planning ahead while they run.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_roles.engines.requests import GenerationRequest, Piece, TokenLogprob
from omniflow_roles.engines.scheduling.scheduler import Scheduler
from omniflow_roles.engines.scheduling.step import Row, Step
from omniflow_roles.engines.torch.batch import BatchBuilder, HostBatch
from omniflow_roles.engines.torch.completion import Completion
from omniflow_roles.engines.torch.executor import DrawnTokens, Executor, Launched
from omniflow_roles.engines.torch.preparation import Preparation
from omniflow_roles.engines.torch.speculation import PromptLookup
from omniflow_roles.engines.torch.stream import Outbox, PieceStream

if TYPE_CHECKING:
    from omniflow_roles.engines.sampling.constraints import Constraint

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How an engine works."""

    is_overlapped: bool = False
    """Plan a step while the one before it runs. Pays where planning takes a share of a step (a GPU); on a CPU a row too many
    costs more than it gains."""
    speculated_tokens: int = 0
    """Tokens that are guessed ahead from earlier text and checked in one forward; 0 for none."""
    context_size: int = 2048
    """Most tokens of prompt and completion together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """What an engine has to do, and has done."""

    running: int
    waiting: int
    steps: int
    drawn_tokens: int
    preemptions: int


@dataclass(eq=False, slots=True)
class _Request:
    """A request under way."""

    request: GenerationRequest
    stream: PieceStream
    constraints: Sequence[Constraint | None]
    """One for each completion."""
    sequence_ids: tuple[int, ...] = ()
    open_count: int = 0
    """Completions that have not ended."""


class Engine:
    """Continuous batching over one model. `start` and `close` from one thread; `generate` from any event loop."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        builder: BatchBuilder,
        executor: Executor,
        preparation: Preparation,
        options: EngineOptions,
    ) -> None:
        self._scheduler = scheduler
        self._builder = builder
        self._executor = executor
        self._preparation = preparation
        self._options = options
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._commands: deque[Callable[[], None]] = deque()
        self._end: OmniFlowError | None = None
        """Why it takes no more requests."""
        self._ids = itertools.count(1)
        self._completions: dict[int, Completion] = {}
        self._requests: dict[int, _Request] = {}
        self._lookups: dict[int, PromptLookup] = {}
        self._outbox = Outbox()
        self._outstanding: Launched | None = None
        self._step_count = self._drawn_count = 0

    # --- for callers ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the engine's thread."""
        self._executor.start(is_overlapped=self._options.is_overlapped)
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; requests under way end with DRAINING."""
        self._stop(OmniFlowError(Reason.DRAINING, "the engine was closed"))
        if self._thread is not None:
            self._thread.join()
        self._executor.close()

    def load(self) -> EngineLoad:
        """May be a step old."""
        return EngineLoad(
            running=self._scheduler.running_count,
            waiting=self._scheduler.waiting_count,
            steps=self._step_count,
            drawn_tokens=self._drawn_count,
            preemptions=self._scheduler.preemption_count,
        )

    def check(self, request: GenerationRequest) -> None:
        """Raises INVALID_FIELD for a request that this engine can never carry out."""
        if not request.prompt:
            raise invalid_field("prompt", "it is empty; a completion needs a token to begin after")
        total = len(request.prompt) + request.plan.max_tokens
        if total > self._options.context_size:
            raise invalid_field(
                "call.sampling.max_tokens",
                f"a prompt of {len(request.prompt)} tokens leaves room for "
                f"{max(0, self._options.context_size - len(request.prompt))} of a completion, not for "
                f"{request.plan.max_tokens}: the model holds {self._options.context_size}",
            )
        self._preparation.check(request)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Piece]:
        """Pieces of the request's completions as they are drawn. Leaving the iteration cancels what is left of it.

        Raises INVALID_FIELD for what `check` refuses, POOL_EXHAUSTED for a request that the pool of pages can never hold.
        """
        self.check(request)
        make, plan = self._preparation.constraints, request.plan
        constraints = await asyncio.to_thread(make, plan) if plan.is_constrained else make(plan)
        under_way = _Request(request, PieceStream(asyncio.get_running_loop()), constraints)
        self._send(lambda: self._admit(under_way))
        try:
            while (piece := await under_way.stream.next()) is not None:
                yield piece
        finally:
            if not under_way.stream.has_ended:
                with contextlib.suppress(OmniFlowError):  # it has been closed: then everything has ended
                    self._send(lambda: self._cancel(under_way))

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Loads a LoRA adapter between two steps; from then on requests may name it. Raises as `LoraAdapters.load`."""
        await self.between_steps(lambda: self._preparation.load_adapter(name, folder))

    async def unload_adapter(self, name: str) -> None:
        """Frees an adapter's place. Raises UNKNOWN_RESOURCE, and CONFLICT while a request uses it."""
        await self.between_steps(lambda: self._unload_adapter(name))

    async def between_steps(self, work: Callable[[], None]) -> None:
        """Runs something in the engine's thread while no step is under way, and raises what it raises."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def run() -> None:
            try:
                self._check_running()
                self._land_outstanding()
                work()
            except Exception as error:
                loop.call_soon_threadsafe(done.set_exception, error)
            else:
                loop.call_soon_threadsafe(done.set_result, None)

        self._send(run)
        await done

    def _send(self, command: Callable[[], None]) -> None:
        with self._changed:
            self._check_running()
            self._commands.append(command)
            self._changed.notify()

    def _check_running(self) -> None:
        """Raises why it takes no more requests; a new error each time, for each has a traceback of its own."""
        if self._end is not None:
            raise OmniFlowError.of(self._end.info)

    # --- the engine's thread from here on --------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            with torch.inference_mode():
                while self._take_commands():
                    self._advance()
        except Exception:
            # Its own state cannot be trusted any more; whoever owns it has to make another.
            logger.exception("the engine has failed, and takes no more requests")
            self._stop(OmniFlowError(Reason.INTERNAL, "the engine has failed; the log of its role has the details"))
        assert self._end is not None
        self._run_commands()  # what was sent before the end became known has somebody who waits for it
        self._fail_all(self._end)
        self._outbox.flush()

    def _stop(self, error: OmniFlowError) -> None:
        with self._changed:
            self._end = self._end or error
            self._changed.notify()

    def _take_commands(self) -> bool:
        """Waits until there is something to do; False when the engine is to end."""
        with self._changed:
            while not (self._commands or self._end or self._outstanding or self._scheduler.has_work):
                self._changed.wait()
        self._run_commands()
        return self._end is None

    def _run_commands(self) -> None:
        with self._changed:
            commands, self._commands = self._commands, deque()
        for command in commands:
            command()

    def _advance(self) -> None:
        """One step begun, one step ended."""
        before, launched = self._outstanding, None
        if before is None or self._may_run_ahead(before.work.batch.step):
            launched = self._launch(before)
            if launched is not None and not self._options.is_overlapped:
                before, launched = launched, None
        if before is not None:
            self._land(before)
        self._outstanding = launched
        self._outbox.flush()

    def _may_run_ahead(self, step: Step) -> bool:
        """Not past rows that need the host before their next token: they would have a row in every other step only."""
        if not self._options.is_overlapped:
            return False
        running = (self._completions.get(row.sequence_id) for row in step.rows)
        return not any(completion is not None and self._is_stepwise(completion.request) for completion in running)

    def _is_stepwise(self, request: GenerationRequest) -> bool:
        """Its next token cannot be planned before the host knows the one before it."""
        return request.plan.is_constrained or self._speculates(request)

    def _speculates(self, request: GenerationRequest) -> bool:
        plan = request.plan
        return bool(self._options.speculated_tokens) and not (plan.is_adjusted or plan.is_constrained)

    def _land_outstanding(self) -> None:
        if self._outstanding is not None:
            self._land(self._outstanding)
            self._outstanding = None

    def _unload_adapter(self, name: str) -> None:
        if any(completion.request.adapter == name for completion in self._completions.values()):
            raise OmniFlowError(Reason.CONFLICT, f"adapter {name!r} is in use; cancel its requests or wait for them")
        self._preparation.unload_adapter(name)

    # requests

    def _admit(self, under_way: _Request) -> None:
        added: list[int] = []
        sequences = self._preparation.sequences(
            under_way.request, under_way.constraints, self._ids.__next__, self._is_stepwise
        )
        try:
            for completion, spec in sequences:
                self._scheduler.add(spec)
                added.append(spec.sequence_id)
                self._completions[spec.sequence_id] = completion
                self._requests[spec.sequence_id] = under_way
                if self._speculates(under_way.request):
                    self._lookups[spec.sequence_id] = PromptLookup(completion.tokens)
        except Exception as error:
            for sequence_id in added:
                self._forget(sequence_id)
            self._outbox.add(under_way.stream, error)
            return
        under_way.sequence_ids = tuple(added)
        under_way.open_count = len(added)

    def _cancel(self, under_way: _Request) -> None:
        for sequence_id in under_way.sequence_ids:
            if sequence_id in self._completions:
                self._forget(sequence_id)

    def _forget(self, sequence_id: int) -> None:
        """Of a completion that has ended, however: its pages, and what is kept for it."""
        self._scheduler.finish(sequence_id)
        self._builder.forget(sequence_id)
        completion = self._completions.pop(sequence_id, None)
        self._requests.pop(sequence_id, None)
        self._lookups.pop(sequence_id, None)
        if completion is not None:
            self._preparation.forget(completion)

    def _fail_all(self, error: OmniFlowError) -> None:
        self._fail(tuple(self._completions), error)

    def _fail(self, sequence_ids: Sequence[int], error: OmniFlowError) -> None:
        for under_way in {self._requests[s] for s in sequence_ids if s in self._requests}:
            self._outbox.add(under_way.stream, OmniFlowError.of(error.info))
            self._cancel(under_way)

    # steps

    def _launch(self, before: Launched | None) -> Launched | None:
        step = self._scheduler.plan(self._drafts())
        if step is None:
            return None
        self._step_count += 1
        drawn_before = before.work.batch.draw_places if before is not None else {}
        batch = self._builder.build(step, self._tokens_of, drawn_before)
        return self._executor.launch(self._preparation.work(batch, self._completions), before)

    def _tokens_of(self, row: Row) -> Sequence[int]:
        tokens = self._completions[row.sequence_id].tokens
        return tokens[row.start + row.pending : row.start + row.count - len(row.drafts)]

    def _drafts(self) -> dict[int, Sequence[int]]:
        count = self._options.speculated_tokens
        return {s: drafts for s, lookup in self._lookups.items() if (drafts := lookup.propose(count))}

    def _land(self, launched: Launched) -> None:
        """Commits a step and publishes what it drew."""
        batch = launched.work.batch
        try:
            drawn = launched.wait()
        except Exception:
            logger.exception("step %d failed", batch.step.number)
            message = "the engine failed in a step of this request; the log of its role has the details"
            self._fail([row.sequence_id for row in batch.rows], OmniFlowError(Reason.INTERNAL, message))
            self._scheduler.commit(batch.step, {})
            return
        taken = {
            row.sequence_id: self._take(row, batch, drawn)
            for row in batch.rows
            if row.draws and row.sequence_id in self._completions
        }
        self._scheduler.commit(batch.step, taken)
        for sequence_id in taken:
            if self._completions[sequence_id].has_ended:
                self._conclude(sequence_id)

    def _take(self, row: Row, batch: HostBatch, drawn: DrawnTokens) -> list[int]:
        """Tokens of the row that count: up to the first draw that differs from its draft, or that ends the completion."""
        completion = self._completions[row.sequence_id]
        under_way = self._requests[row.sequence_id]
        place = batch.draw_places[row.sequence_id]
        taken: list[int] = []
        for index in range(len(row.drafts) + 1):
            token = drawn.tokens[place + index]
            taken.append(token)
            piece = completion.take(token, _logprob(completion, drawn, place + index))
            if piece is not None:
                if piece.finish_reason:
                    cached = self._scheduler.cached_tokens(row.sequence_id)
                    piece = dataclasses.replace(piece, cached_count=cached)
                self._outbox.add(under_way.stream, piece)
            if completion.has_ended or (index < len(row.drafts) and token != row.drafts[index]):
                break
        self._drawn_count += len(taken)
        if row.sequence_id in self._lookups:
            self._lookups[row.sequence_id].extend(taken)
        return taken

    def _conclude(self, sequence_id: int) -> None:
        under_way = self._requests[sequence_id]
        self._forget(sequence_id)
        under_way.open_count -= 1
        if not under_way.open_count:
            self._outbox.add(under_way.stream, None)


def _logprob(completion: Completion, drawn: DrawnTokens, place: int) -> TokenLogprob | None:
    count = completion.request.plan.top_logprobs
    if count is None or drawn.logprobs is None:
        return None
    top: tuple[tuple[int, float], ...] = ()
    if count and drawn.top_ids is not None and drawn.top_logprobs is not None:
        top = tuple(zip(drawn.top_ids[place][:count], drawn.top_logprobs[place][:count], strict=True))
    return TokenLogprob(token=drawn.tokens[place], logprob=drawn.logprobs[place], top=top)


async def collect(engine: Engine, request: GenerationRequest) -> list[list[int]]:
    """Token ids of each completion, for callers that want them whole."""
    ids: list[list[int]] = [[] for _ in range(request.plan.completions)]
    async with aclosing(engine.generate(request)) as pieces:  # type: ignore[type-var]
        async for piece in pieces:
            ids[piece.completion].extend(piece.ids)
    return ids
