"""Admission of calls: sessions, limits, supersede."""

from __future__ import annotations

import pytest

from omniflow_core.control.calls import Admission, Arrival
from omniflow_core.errors import OmniFlowError, Reason


def admission(max_calls: int = 10, max_calls_per_tenant: int = 10) -> Admission:
    return Admission(max_calls=max_calls, max_calls_per_tenant=max_calls_per_tenant)


def test_session_calls_fifo() -> None:
    table = admission()
    assert table.arrive("a", tenant="t", session="s") == Arrival(is_admitted=True)
    assert table.arrive("b", tenant="t", session="s") == Arrival(is_admitted=False)
    assert table.arrive("c", tenant="t", session="s") == Arrival(is_admitted=False)
    assert table.end("a") == "b"
    assert table.end("b") == "c"
    assert table.end("c") is None
    table.check_integrity()
    assert len(table) == 0


def test_two_sessions_do_not_block() -> None:
    table = admission()
    table.arrive("a", tenant="t", session="s")
    assert table.arrive("b", tenant="t", session="other").is_admitted
    assert table.arrive("c", tenant="u", session="s").is_admitted, "tenants do not share sessions"


def test_calls_without_session_run_side_by_side() -> None:
    table = admission()
    assert table.arrive("a", tenant="t").is_admitted
    assert table.arrive("b", tenant="t").is_admitted
    assert table.end("a") is None


def test_queued_call_that_ends_admits_nobody() -> None:
    table = admission()
    for name in "abc":
        table.arrive(name, tenant="t", session="s")
    assert table.end("b") is None
    table.check_integrity()
    assert table.end("a") == "c"


def test_supersede_names_earlier_calls_and_is_admitted_after_them() -> None:
    table = admission()
    table.arrive("a", tenant="t", session="s")
    table.arrive("b", tenant="t", session="s")
    assert table.arrive("c", tenant="t", session="s", supersede=True) == Arrival(
        is_admitted=False, superseded=("a", "b")
    )
    assert table.end("b") is None
    assert table.end("a") == "c"


def test_end_of_unknown_call_changes_nothing() -> None:
    table = admission()
    table.arrive("a", tenant="t", session="s")
    assert table.end("x") is None
    assert table.end("a") is None
    assert table.end("a") is None
    table.check_integrity()


@pytest.mark.parametrize(
    ("limits", "field"), [({"max_calls": 2}, "max_calls"), ({"max_calls_per_tenant": 2}, "max_calls_per_tenant")]
)
def test_limit_refuses_with_a_retry_hint(limits: dict[str, int], field: str) -> None:
    table = admission(**limits)
    table.arrive("a", tenant="t")
    table.arrive("b", tenant="t", session="s")
    with pytest.raises(OmniFlowError) as caught:
        table.arrive("c", tenant="t", session="s")
    assert caught.value.reason is Reason.TOO_MANY_CALLS
    assert caught.value.info.retry_after_s == 1.0
    assert [v.field for v in caught.value.violations] == [field]
    table.check_integrity()
    assert table.end("a") is None
    assert not table.arrive("c", tenant="t", session="s").is_admitted, "b of the session still runs"
