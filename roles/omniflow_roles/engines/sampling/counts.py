"""Penalties and biases of the running sequences, kept on the device and applied to the logits of a step.

    seen = in prompt or drawn
    logits[t] = logits[t] / repetition  if positive, else * repetition       where seen[t]
    logits[t] -= frequency * (times t was drawn) + presence * (t was drawn)
    logits[t] += bias[t]

Biases come last, so that they mean the same with and without a repetition penalty. Sequences that have neither need no
slot: slot -1 stands for them, and changes nothing.

    sequence 7 ── slot 2 ─▶ [drawn: float32 | prompt: bool | penalties | biased tokens, biases]      one row each

A token is counted where it was drawn, on the device, before the host knows it. Everything is done in the order of the calls
and of the device's current stream. Slots that come free are handed out again last, and there are two for each row: while a
step is planned, the one under way may still count a token of a sequence that has ended, and nobody else may have its slot
then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from omniflow_roles.engines.sampling.plan import MOST_BIASED_TOKENS, SamplingPlan


class TokenCounts:
    """Slots of the running sequences. Memory is taken when the first one needs it: 5 bytes a token of the vocabulary and
    slot for penalties, 12 KiB a slot for biases; from then on its place is fixed, so that captured CUDA graphs may use it.
    """

    def __init__(self, max_rows: int, vocabulary_size: int, device: torch.device | str) -> None:
        """`max_rows` sequences at most hold a slot at a time."""
        self._device = torch.device(device)
        self._vocabulary_size = vocabulary_size
        self._free = deque(range(2 * max_rows))
        self._slots: dict[int, int] = {}
        self._row_count = 2 * max_rows + 1  # the last one is slot -1's
        self._penalties: _Penalties | None = None
        self._biases: _Biases | None = None

    def slot_of(self, sequence_id: int) -> int:
        """The slot of a sequence, -1 for one that holds none."""
        return self._slots.get(sequence_id, -1)

    def hold(self, sequence_id: int, plan: SamplingPlan, prompt: Sequence[int], drawn: Sequence[int] = ()) -> int:
        """Gives a sequence a slot, and counts what it has: at its admission, and again after a preemption.

        Returns the slot, -1 when the plan needs none. Ids outside the vocabulary (places of embeddings) count for nothing.
        """
        if not plan.is_adjusted:
            return -1
        if sequence_id not in self._slots:
            self._slots[sequence_id] = self._free.popleft()
        slot = self._slots[sequence_id]
        if plan.needs_counts and self._penalties is None:
            self._penalties = _Penalties(self._row_count, self._vocabulary_size, self._device)
        if plan.logit_bias and self._biases is None:
            self._biases = _Biases(self._row_count, self._vocabulary_size, self._device)
        if self._penalties is not None:
            self._penalties.set(slot, plan, prompt, drawn)
        if self._biases is not None:
            self._biases.set(slot, plan)
        return slot

    def release(self, sequence_id: int) -> None:
        """Takes the slot back. Unknown sequences change nothing."""
        if sequence_id in self._slots:
            self._free.append(self._slots.pop(sequence_id))

    def apply(self, logits: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Adjusted logits [R, V] float32 for logits [R, V] of any float type and slots [R] int64. Changes neither."""
        scores = logits.float()
        if self._device.type != "cpu":
            return self._adjusted(scores, slots)
        rows = (slots >= 0).nonzero()[:, 0]  # the others are left alone, which takes less time
        return scores.index_copy(0, rows, self._adjusted(scores[rows], slots[rows])) if len(rows) else scores

    def add(self, slots: torch.Tensor, tokens: torch.Tensor) -> None:
        """Counts a drawn token for each of R rows: slots [R] and tokens [R], int64 on the device."""
        if self._penalties is not None:
            self._penalties.add(self._rows(slots), tokens)

    def _adjusted(self, scores: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        rows = self._rows(slots)
        if self._penalties is not None:
            scores = self._penalties.apply(scores, rows)
        if self._biases is not None:
            scores = self._biases.apply(scores, rows)
        return scores

    def _rows(self, slots: torch.Tensor) -> torch.Tensor:
        return slots.remainder(self._row_count)


class _Penalties:
    """Occurrences and penalties by slot. A slot without penalties has factors that change nothing, whatever it counts."""

    def __init__(self, row_count: int, vocabulary_size: int, device: torch.device) -> None:
        with torch.inference_mode(False):  # a tensor made in that mode could only ever be changed in it
            self._drawn = torch.zeros(row_count, vocabulary_size, device=device)
            self._prompt = torch.zeros(row_count, vocabulary_size, dtype=torch.bool, device=device)
            self._factors = torch.tensor([[1.0, 0.0, 0.0]]).repeat(row_count, 1).to(device)

    def set(self, slot: int, plan: SamplingPlan, prompt: Sequence[int], drawn: Sequence[int]) -> None:
        factors = torch.tensor([plan.repetition_penalty, plan.frequency_penalty, plan.presence_penalty])
        self._factors[slot] = _moved(factors, self._factors.device)
        self._drawn[slot] = 0
        self._prompt[slot] = False
        if plan.needs_counts:
            self._prompt[slot].index_fill_(0, self._ids(prompt), True)
            ids = self._ids(drawn)
            self._drawn[slot].scatter_add_(0, ids, torch.ones_like(ids, dtype=torch.float32))

    def add(self, rows: torch.Tensor, tokens: torch.Tensor) -> None:
        places = rows * self._drawn.shape[1] + tokens
        self._drawn.view(-1).scatter_add_(0, places, torch.ones_like(places, dtype=torch.float32))

    def apply(self, scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        repetition, frequency, presence = self._factors[rows].T[:, :, None]
        drawn = self._drawn[rows]
        is_drawn = drawn > 0
        repeated = torch.where(scores < 0, scores * repetition, scores / repetition)
        scores = torch.where(self._prompt[rows] | is_drawn, repeated, scores)
        return scores - frequency * drawn - presence * is_drawn

    def _ids(self, tokens: Sequence[int]) -> torch.Tensor:
        ids = torch.tensor(tokens, dtype=torch.int64)
        return _moved(ids[(ids >= 0) & (ids < self._drawn.shape[1])], self._drawn.device)


class _Biases:
    """Biased tokens by slot, MOST_BIASED_TOKENS each. The places that a plan leaves add nothing to different tokens: many
    additions to one and the same would wait for each other on a GPU."""

    def __init__(self, row_count: int, vocabulary_size: int, device: torch.device) -> None:
        self._spread = torch.arange(MOST_BIASED_TOKENS) % vocabulary_size
        with torch.inference_mode(False):
            self._tokens = self._spread.repeat(row_count, 1).to(device)
            self._values = torch.zeros(row_count, MOST_BIASED_TOKENS, device=device)

    def set(self, slot: int, plan: SamplingPlan) -> None:
        tokens, values = self._spread.clone(), torch.zeros(MOST_BIASED_TOKENS)
        count = len(plan.logit_bias)
        tokens[:count] = torch.tensor(list(plan.logit_bias), dtype=torch.int64)
        values[:count] = torch.tensor(list(plan.logit_bias.values()))
        self._tokens[slot] = _moved(tokens, self._tokens.device)
        self._values[slot] = _moved(values, self._values.device)

    def apply(self, scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return scores.scatter_add(1, self._tokens[rows], self._values[rows])


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """On the device, without waiting for what it does."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
