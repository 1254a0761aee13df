"""Which sequences fit: never, not now, now."""

from __future__ import annotations

import pytest

from omniflow_core.errors import Reason
from omniflow_roles.engines.scheduling.admission import AdmissionControl, Admitted, Waits
from omniflow_roles.engines.scheduling.pages import LocalPages
from omniflow_roles.engines.scheduling.sequences import LiveSequence, SequenceSpec


def spec(prompt: int, max_tokens: int, *, sequence_id: int = 1) -> SequenceSpec:
    return SequenceSpec(sequence_id=sequence_id, content=tuple(range(prompt)), max_tokens=max_tokens)


def waiting(prompt: int, max_tokens: int, *, sequence_id: int = 1) -> LiveSequence:
    return LiveSequence.declared(spec(prompt, max_tokens, sequence_id=sequence_id), arrival=sequence_id, now=0)


def running(pages: LocalPages, prompt: int, max_tokens: int, *, sequence_id: int = 9) -> LiveSequence:
    """A sequence that has computed its prompt."""
    sequence = waiting(prompt, max_tokens, sequence_id=sequence_id)
    taken = pages.acquire(sequence_id, -(-prompt // pages.page_size))
    assert taken is not None
    sequence.admit(tuple(taken), pages.page_size, 0)
    sequence.computed = prompt - 1
    return sequence


def cache(pages: LocalPages, tokens: int, *, holder: int = 99) -> None:
    """Seals the pages of a prompt, and lets them go."""
    taken = pages.acquire(holder, tokens // pages.page_size)
    assert taken is not None
    pages.seal(holder, "", tuple(range(tokens)), taken)
    pages.release(holder)


@pytest.mark.parametrize("prompt", [1, 7, 40])
def test_declared_sequence_may_fill_the_pool_to_the_last_slot(prompt: int) -> None:
    control = AdmissionControl(LocalPages(10, 4), growth_tokens=8)
    most = 40 - prompt + 1  # the last token drawn takes no slot
    assert control.declare(spec(prompt, most)) is None
    refused = control.declare(spec(prompt, most + 1))
    assert refused is not None
    assert refused.field == "call.sampling.max_tokens"
    assert f"at most {most} can be drawn" in refused.text


def test_prompt_that_never_fits_is_refused_by_its_own_name() -> None:
    refused = AdmissionControl(LocalPages(10, 4), growth_tokens=8).declare(spec(41, 1))
    assert refused is not None
    assert refused.field == "prompt"
    assert "41 tokens need 11 pages, the pool has 10 pages of 4 tokens" in refused.text
    assert refused.error().reason is Reason.POOL_EXHAUSTED
    assert refused.error().violations[0].field == "prompt"


@pytest.mark.parametrize(("prompt", "max_tokens", "field"), [(0, 3, "prompt"), (3, 0, "call.sampling.max_tokens")])
def test_sequence_of_nothing_is_refused(prompt: int, max_tokens: int, field: str) -> None:
    refused = AdmissionControl(LocalPages(10, 4), growth_tokens=8).declare(spec(prompt, max_tokens))
    assert refused is not None
    assert (refused.field, refused.reason) == (field, Reason.INVALID_FIELD)


def test_admission_covers_prompt_and_growth() -> None:
    pages = LocalPages(5, 4)
    control = AdmissionControl(pages, growth_tokens=8)
    assert control.admit(waiting(12, 99), []) == Admitted(pages=())
    assert control.admit(waiting(13, 99), []) == Waits(short_by=1)
    assert control.admit(waiting(13, 8), []) == Admitted(pages=())  # 20 slots are all that it will ever need


def test_admission_covers_the_growth_of_what_runs() -> None:
    pages = LocalPages(6, 4)
    control = AdmissionControl(pages, growth_tokens=8)
    other = running(pages, 8, 99)
    assert pages.available == 4
    assert control.admit(waiting(4, 5), [other]) == Admitted(pages=())
    assert control.admit(waiting(4, 6), [other]) == Waits(short_by=1)
    other.spare_pages = pages.acquire(9, 1) or []
    assert control.admit(waiting(4, 5), [other]) == Admitted(pages=()), "a page that it has already is no growth"


def test_cached_prefix_counts_once_whether_idle_or_held() -> None:
    pages = LocalPages(6, 4)
    control = AdmissionControl(pages, growth_tokens=4)
    cache(pages, 8)
    first = control.admit(waiting(9, 4), [])
    assert isinstance(first, Admitted)
    assert len(first.pages) == 2
    assert pages.available == 4
    assert control.admit(waiting(9, 99, sequence_id=2), []) == Admitted(pages=first.pages)
    assert pages.available == 4
    pages.check_integrity()


def test_cached_prefix_lets_in_no_more_than_can_grow() -> None:
    pages = LocalPages(6, 4)
    control = AdmissionControl(pages, growth_tokens=8)
    cache(pages, 16)
    others = [running(pages, 4, 5, sequence_id=8)]
    pages.hold(7, pages.match("", range(16)))
    assert pages.available == 1
    # of its prompt only the last token is missing; for that and 8 more it would need 3 pages, the other needs 1
    assert control.admit(waiting(17, 9), others) == Waits(short_by=3)
    assert pages.holders_of(pages.match("", range(16))[0]) == {7}, "what waits holds nothing"


def test_wait_says_how_many_pages_are_missing_when_the_prefix_is_idle() -> None:
    pages = LocalPages(6, 4)
    control = AdmissionControl(pages, growth_tokens=4)
    cache(pages, 8)
    pages.acquire(50, 4)
    assert pages.available == 2
    assert control.admit(waiting(12, 4), []) == Waits(short_by=2)
    assert pages.available == 2


def test_last_token_is_computed_even_when_every_page_is_cached() -> None:
    pages = LocalPages(6, 4)
    cache(pages, 8)
    admission = AdmissionControl(pages, growth_tokens=4).admit(waiting(8, 1), [])
    assert isinstance(admission, Admitted)
    assert len(admission.pages) == 1


def test_each_preemption_doubles_the_growth_that_is_covered() -> None:
    pages = LocalPages(6, 4)
    control = AdmissionControl(pages, growth_tokens=4)
    newcomer = waiting(4, 99)
    assert control.admit(newcomer, []) == Admitted(pages=())
    newcomer.preemption_count = 2  # 16 tokens: 4 pages
    assert control.admit(newcomer, []) == Admitted(pages=())
    newcomer.preemption_count = 3
    assert control.admit(newcomer, []) == Waits(short_by=3)
    other = running(pages, 4, 99)
    other.preemption_count = 1
    assert control.admit(waiting(4, 99, sequence_id=2), [other]) == Admitted(pages=())
    other.preemption_count = 2
    assert control.admit(waiting(4, 99, sequence_id=3), [other]) == Waits(short_by=4)
