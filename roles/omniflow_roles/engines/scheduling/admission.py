"""Admission: whether a sequence may run, in pages. Declared first, so that no forward can fail for want of them.

    declare ─▶ Refused (it can never fit)          admit ─▶ Admitted (its prefix is held) or Waits (short by n pages)

A sequence that runs may count on its growth: when one is admitted, the pages at hand cover what everything that runs will
still ask for within a horizon, and what the newcomer will. A prefix that is cached makes a newcomer cheap, not its growth.

Beyond the horizon pages can run short and a sequence be preempted. Each time doubles the horizon of its next admission,
and of those beside it while it runs. Once the horizon reaches the ends of all, nothing can run short any more: a sequence
is preempted at most about log2(max_tokens / growth_tokens) + 1 times, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_roles.engines.scheduling.pages import Page, PageSource
from omniflow_roles.engines.scheduling.sequences import LiveSequence, SequenceSpec

_MAX_DOUBLINGS = 32  # a horizon of 2 ** 32 tokens is beyond every end


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """It may run."""

    pages: tuple[Page, ...]
    """The computed beginning of its content, held for it. Shorter than the content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Not now."""

    short_by: int
    """Pages that would have to come free, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Never."""

    field: str
    text: str
    reason: Reason

    def error(self) -> OmniFlowError:
        return invalid_field(self.field, self.text, reason=self.reason)


class AdmissionControl:
    """Judges sequences by the pages they need. `growth_tokens`: how far growth is covered, in tokens a sequence."""

    def __init__(self, pages: PageSource, *, growth_tokens: int) -> None:
        self._pages = pages
        self._growth_tokens = growth_tokens

    def declare(self, spec: SequenceSpec) -> Refused | None:
        """Whether it can ever run, alone in an empty pool."""
        size, count = self._pages.page_size, self._pages.page_count
        prompt = len(spec.content)
        if prompt < 1:
            return Refused(field="prompt", text="it is empty", reason=Reason.INVALID_FIELD)
        if spec.max_tokens < 1:
            return Refused(field="call.sampling.max_tokens", text="at least 1", reason=Reason.INVALID_FIELD)
        # the last token drawn is never computed, so it takes no room
        room = size * count + 1 - prompt
        if room >= spec.max_tokens:
            return None
        pool = f"the pool has {count} pages of {size} tokens"
        if room < 1:
            text = f"{prompt} tokens need {self._pages_for(prompt)} pages, {pool}"
            return Refused(field="prompt", text=text, reason=Reason.POOL_EXHAUSTED)
        needed = self._pages_for(prompt + spec.max_tokens - 1)
        text = (
            f"a prompt of {prompt} tokens and {spec.max_tokens} drawn ones need {needed} pages, {pool}: "
            f"at most {room} can be drawn"
        )
        return Refused(field="call.sampling.max_tokens", text=text, reason=Reason.POOL_EXHAUSTED)

    def admit(self, sequence: LiveSequence, running: Iterable[LiveSequence]) -> Admitted | Waits:
        """Holds the prefix of a sequence that may run now beside those that run; else takes nothing."""
        everyone = [sequence, *running]
        horizon = self._growth_tokens << min(_MAX_DOUBLINGS, max(each.preemption_count for each in everyone))
        needed = sum(self._growth(each, horizon) for each in everyone)
        # the last token is always computed: a token is drawn from it
        sharable = (len(sequence.content) - 1) // self._pages.page_size
        least_short = needed - sharable - self._pages.available
        if least_short > 0:
            return Waits(short_by=least_short)
        shared = self._pages.match(sequence.spec.namespace, sequence.content)[:sharable]
        self._pages.hold(sequence.sequence_id, shared)
        short_by = needed - len(shared) - self._pages.available
        if short_by > 0:
            self._pages.release(sequence.sequence_id)
            return Waits(short_by=short_by)
        return Admitted(pages=tuple(shared))

    def _growth(self, sequence: LiveSequence, horizon: int) -> int:
        """Pages that it will still ask for: for all of its prompt, and for `horizon` tokens drawn after it."""
        most = min(sequence.known + horizon, sequence.end - 1)
        return max(0, self._pages_for(most) - len(sequence.pages) - len(sequence.spare_pages))

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self._pages.page_size)
