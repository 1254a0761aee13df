"""What stands between requests and steps: checks, sequences of a request, and how each row of a step is drawn.

Host work only, done while the device computes. Knows the tokenizer, and what is kept for each completion on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_roles.engines.requests import EmbeddedSpan, GenerationRequest
from omniflow_roles.engines.sampling.counts import TokenCounts
from omniflow_roles.engines.sampling.draw import RowParameters
from omniflow_roles.engines.sampling.plan import SamplingPlan
from omniflow_roles.engines.sampling.seeds import draw_key, request_seed, uniform
from omniflow_roles.engines.scheduling.sequences import SequenceSpec
from omniflow_roles.engines.scheduling.step import Row
from omniflow_roles.engines.text.detokenizer import Detokenizer
from omniflow_roles.engines.torch.batch import HostBatch
from omniflow_roles.engines.torch.completion import Completion
from omniflow_roles.engines.torch.executor import DrawPlan, StepWork
from omniflow_roles.engines.torch.lora import LoraAdapters
from omniflow_roles.engines.torch.lora_tokens import NO_ADAPTER, GroupedTokens
from omniflow_roles.engines.torch.runner import ModelRunner

if TYPE_CHECKING:
    from omniflow_roles.engines.sampling.constraints import Constraint, ConstraintCompiler

_FOLD_BITS = 62
"""Content ids of media are folded to so many bits and made negative, so that they are no token's."""


class Preparation:
    """Of one engine. `check` and `constraints` from any thread, the rest from the engine's."""

    def __init__(
        self, tokenizer: Any, runner: ModelRunner, *, max_rows: int, adapters: LoraAdapters | None = None
    ) -> None:
        self.counts = TokenCounts(max_rows, runner.vocabulary_size, runner.device)
        self._tokenizer = tokenizer
        self._runner = runner
        self._max_rows = max_rows
        self._adapters = adapters
        self._serials: dict[str, int] = {}
        """How often an adapter of a name has been loaded: what was computed with another of that name is not its prefix."""
        self._held: set[int] = set()
        """Sequences with a slot of `counts`."""
        self._end_token_ids = _end_tokens(tokenizer, runner.model)
        self._compiler: ConstraintCompiler | None = None
        self._parameters: tuple[tuple[SamplingPlan, ...], RowParameters] | None = None

    # --- requests ------------------------------------------------------------------------------------------------------

    def check(self, request: GenerationRequest) -> None:
        """Raises INVALID_FIELD for ids and embeddings that the model has no use for."""
        covered = [position for span in request.spans for position in _positions(span)]
        self._check_ids(request.prompt, frozenset(covered))
        if len(covered) != len(set(covered)):
            raise invalid_field("spans", "two spans of embeddings cover the same position")
        if request.adapter:
            self._adapter_index(request.adapter)
        for index, span in enumerate(request.spans):
            self._check_span(span, f"spans[{index}]", len(request.prompt))

    def _check_ids(self, prompt: tuple[int, ...], covered: frozenset[int]) -> None:
        size = self._runner.vocabulary_size
        if min(prompt) >= 0 and max(prompt) < size:
            return
        for position, token in enumerate(prompt):
            if not 0 <= token < size and position not in covered:
                raise invalid_field("prompt", f"token {token} at {position} is not one of the model's {size}")

    def _check_span(self, span: EmbeddedSpan, path: str, prompt_size: int) -> None:
        shape = tuple(span.embeddings.shape)
        if len(shape) != 2 or shape[1] != self._runner.hidden_size:
            raise invalid_field(
                f"{path}.embeddings", f"shape {list(shape)}; [positions, {self._runner.hidden_size}] is needed"
            )
        if span.start < 0 or span.start + shape[0] > prompt_size:
            raise invalid_field(
                f"{path}.start", f"positions {span.start} to {span.start + shape[0]} are not all in the prompt"
            )
        if span.content and len(span.content) != shape[0]:
            raise invalid_field(f"{path}.content", f"{len(span.content)} ids for {shape[0]} positions")

    def constraints(self, plan: SamplingPlan) -> list[Constraint | None]:
        """One for each completion; compiling can take a second. Raises INVALID_FIELD for what cannot be compiled."""
        if not plan.is_constrained:
            return [None] * plan.completions
        from omniflow_roles.engines.sampling.constraints import ConstraintCompiler

        if self._compiler is None:
            self._compiler = ConstraintCompiler(
                self._tokenizer, vocabulary_size=self._runner.vocabulary_size, end_token_ids=self._end_token_ids
            )
        return [self._compiler.compile(plan) for _ in range(plan.completions)]

    def sequences(
        self,
        request: GenerationRequest,
        constraints: Sequence[Constraint | None],
        next_id: Callable[[], int],
        is_stepwise: Callable[[GenerationRequest], bool],
    ) -> Iterator[tuple[Completion, SequenceSpec]]:
        """The sequences of a request, one a completion; the first one's prompt is shared by the others."""
        if request.adapter:
            self._adapter_index(request.adapter)
        seed = request_seed(request.plan.seed)
        content = _content(request)
        first = 0
        for index, constraint in enumerate(constraints):
            sequence_id = next_id()
            first = first or sequence_id
            detokenizer = Detokenizer(self._tokenizer.backend_tokenizer)
            completion = Completion(
                sequence_id=sequence_id,
                index=index,
                request=request,
                draw_key=draw_key(seed, index),
                decode=detokenizer.push,
                flush=detokenizer.flush,
                end_token_ids=self._end_token_ids,
                constraint=constraint,
            )
            yield (
                completion,
                SequenceSpec(
                    sequence_id=sequence_id,
                    content=content,
                    max_tokens=request.plan.max_tokens,
                    priority=request.priority,
                    share=request.tenant,
                    namespace=self._namespace(request, first),
                    sibling_of=first if index else None,
                    is_stepwise=is_stepwise(request),
                ),
            )

    def forget(self, completion: Completion) -> None:
        """Lets go of what is kept for it on the device."""
        if completion.sequence_id in self._held:
            self._held.discard(completion.sequence_id)
            self.counts.release(completion.sequence_id)

    def load_adapter(self, name: str, folder: Path) -> None:
        """Loads a LoRA adapter; no forward may run meanwhile. Raises as `LoraAdapters.load`."""
        self._some_adapters().load(name, folder)
        self._serials[name] = self._serials.get(name, 0) + 1

    def unload_adapter(self, name: str) -> None:
        """Unloads one that no completion uses; no forward may run meanwhile. Raises UNKNOWN_RESOURCE."""
        self._some_adapters().unload(name)

    def _adapter_index(self, name: str) -> int:
        return self._some_adapters().index(name)

    def _some_adapters(self) -> LoraAdapters:
        if self._adapters is None:
            raise OmniFlowError(Reason.UNKNOWN_RESOURCE, "this engine has no room for adapters; set max_adapters")
        return self._adapters

    def _namespace(self, request: GenerationRequest, first_id: int) -> str:
        """Where prefixes are shared: within a tenant and an adapter; within the request alone when content has no name."""
        is_private = any(not span.content for span in request.spans)
        own = str(first_id) if is_private else ""
        return "\0".join((request.tenant, request.adapter, str(self._serials.get(request.adapter, 0)), own))

    # --- steps ---------------------------------------------------------------------------------------------------------

    def work(self, batch: HostBatch, completions: Mapping[int, Completion]) -> StepWork:
        """A built step with how it is drawn, and the embeddings that take the place of its tokens' own."""
        return StepWork(
            batch=batch,
            draws=self._draws(batch, completions),
            embeddings=tuple(_embeddings(batch, completions)),
            adapters=self._adapter_tokens(batch, completions),
        )

    def _adapter_tokens(self, batch: HostBatch, completions: Mapping[int, Completion]) -> GroupedTokens | None:
        if self._adapters is None:
            return None
        names = [completions[row.sequence_id].request.adapter for row in batch.rows]
        if not any(names):
            return None
        indices = [self._adapters.index(name) if name else NO_ADAPTER for name in names]
        return GroupedTokens.of([row.count for row in batch.rows], indices, self._runner.device)

    def _draws(self, batch: HostBatch, completions: Mapping[int, Completion]) -> DrawPlan:
        plans: list[SamplingPlan] = []
        uniforms: list[float] = []
        slots: list[int] = []
        allowed: list[torch.Tensor | None] = []
        for row in batch.rows:
            if not row.draws:
                continue
            completion = completions[row.sequence_id]
            plan = completion.request.plan
            first = row.start + row.count - len(row.drafts) - len(completion.request.prompt)
            for index in range(len(row.drafts) + 1):
                plans.append(plan)
                uniforms.append(0.0 if plan.is_greedy else uniform(completion.draw_key, first + index))
            slots.extend([self._slot(completion, batch.rows)] * (len(row.drafts) + 1))
            constraint = completion.constraint
            allowed.append(None if constraint is None else constraint.mask())
        return DrawPlan(
            parameters=self._row_parameters(tuple(plans)),
            uniforms=np.array(uniforms, np.float64),
            count_slots=np.array(slots, np.int64) if any(slot >= 0 for slot in slots) else None,
            masks=self._masks(allowed),
            top_logprobs=max((p.top_logprobs for p in plans if p.top_logprobs is not None), default=None),
        )

    def _row_parameters(self, plans: tuple[SamplingPlan, ...]) -> RowParameters:
        """Made again only when other rows are drawn than in the step before."""
        known = self._parameters
        if (
            known is None
            or len(known[0]) != len(plans)
            or any(a is not b for a, b in zip(known[0], plans, strict=True))
        ):
            known = self._parameters = (plans, RowParameters.of(plans, device=self._runner.device))
        return known[1]

    def _masks(self, allowed: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        if all(mask is None for mask in allowed):
            return None
        every = torch.ones(self._runner.vocabulary_size, dtype=torch.bool)
        return torch.stack([every if mask is None else mask for mask in allowed])

    def _slot(self, completion: Completion, rows: Sequence[Row]) -> int:
        plan = completion.request.plan
        if not plan.is_adjusted:
            return -1
        sequence_id = completion.sequence_id
        if sequence_id not in self._held:
            if len(self._held) >= self._max_rows:
                # Preempted ones count their tokens anew when their turn comes.
                present = {row.sequence_id for row in rows}
                for absent in self._held - present:
                    self.counts.release(absent)
                self._held &= present
            size = len(completion.request.prompt)
            self.counts.hold(sequence_id, plan, completion.request.prompt, completion.tokens[size:])
            self._held.add(sequence_id)
        return self.counts.slot_of(sequence_id)


def _end_tokens(tokenizer: Any, model: Any) -> frozenset[int]:
    """Of the tokenizer and of the model's own generation defaults, which may name several."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in (*ids, tokenizer.eos_token_id) if token is not None)


def _positions(span: EmbeddedSpan) -> range:
    return range(span.start, span.start + len(span.embeddings))


def _content(request: GenerationRequest) -> tuple[int, ...]:
    """Content ids of the prompt: token ids, and folded ids of media where embeddings come from outside."""
    if not request.spans:
        return request.prompt
    content = list(request.prompt)
    for span in request.spans:
        for offset, position in enumerate(_positions(span)):
            own = span.content[offset] if span.content else offset
            content[position] = -1 - (own & ((1 << _FOLD_BITS) - 1))
    return tuple(content)


def _embeddings(batch: HostBatch, completions: Mapping[int, Completion]) -> Iterator[tuple[int, torch.Tensor]]:
    begin = 0
    for row in batch.rows:
        for span in completions[row.sequence_id].request.spans:
            size = len(span.embeddings)
            low, high = max(row.start, span.start), min(row.start + row.count, span.start + size)
            if low < high:
                yield begin + low - row.start, span.embeddings[low - span.start : high - span.start]
        begin += row.count
