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


# --- fair shares ------------------------------------------------------------------------------------------------------


def fill(table: Admission, tenant: str, count: int, prefix: str = "") -> int:
    """Gives a tenant as many calls as it is admitted with, at most `count`."""
    for number in range(count):
        try:
            table.arrive(f"{prefix}{tenant}{number}", tenant=tenant)
        except OmniFlowError as refused:
            assert refused.reason is Reason.TOO_MANY_CALLS
            return number
        table.check_integrity()
    return count


def shared(max_calls: int) -> Admission:
    """A table that has seen two tenants."""
    table = admission(max_calls, max_calls)
    for tenant in "ab":
        table.arrive(tenant, tenant=tenant)
        table.end(tenant)
    return table


@pytest.mark.parametrize("limit", [1, 2, 7, 10, 100, 1024])
def test_only_tenant_uses_every_place(limit: int) -> None:
    table = admission(limit, limit)
    assert fill(table, "a", limit + 1) == limit


@pytest.mark.parametrize(("limit", "own"), [(1, 1), (2, 1), (7, 6), (10, 9), (100, 90), (1024, 921)])
def test_flood_of_one_tenant_leaves_the_last_tenth_to_others(limit: int, own: int) -> None:
    table = shared(limit)
    assert fill(table, "a", limit) == own
    assert fill(table, "b", limit) == limit - own
    assert len(table) == limit


def test_tenant_below_its_share_gets_up_to_it_as_calls_of_the_flood_end() -> None:
    table = shared(100)
    assert fill(table, "a", 100) == 90
    assert fill(table, "b", 100) == 10
    for number in range(40):
        table.end(f"a{number}")
        assert fill(table, "a", 1, "again") == 0, "it has half or more"
        assert fill(table, "b", 1, f"more{number}") == 1
    assert fill(table, "b", 1, "again") == fill(table, "a", 1, "again") == 0, "50 and 50"
    table.end("a40")
    assert fill(table, "b", 1, "again") == 0
    assert fill(table, "a", 1, "again") == 1, "each keeps its half"


@pytest.mark.parametrize(
    ("taken", "more"),
    [
        ({"a": 60, "b": 30}, {"a": 0, "b": 10, "c": 10}),
        ({"a": 34, "b": 33, "c": 23}, {"a": 0, "b": 1, "c": 10, "d": 10}),
        ({"a": 20, "b": 20}, {"a": 50, "b": 50, "c": 50}),
    ],
)
def test_last_tenth_is_for_tenants_with_less_than_their_share(taken: dict[str, int], more: dict[str, int]) -> None:
    """100 places; the share is of all tenants that have calls and the one that asks."""
    for tenant, expected in more.items():
        table = shared(100)
        for other, count in taken.items():
            assert fill(table, other, count) == count
        assert fill(table, tenant, 100, "more") == expected


def test_first_call_of_another_tenant_ends_the_use_of_every_place() -> None:
    table = admission(20, 20)
    assert fill(table, "a", 20) == 20
    assert fill(table, "b", 1) == 0, "there is no place, but b is known now"
    for number in range(3):
        table.end(f"a{number}")
    assert fill(table, "a", 3, "again") == 1
    assert fill(table, "b", 3) == 2
    table.check_integrity()


def test_refusal_for_a_share_names_the_limit_and_when_to_try_again() -> None:
    table = shared(20)
    fill(table, "a", 20)
    with pytest.raises(OmniFlowError) as caught:
        table.arrive("x", tenant="a")
    assert caught.value.info.message == (
        "Tenant 'a' has its share, 18 calls running or queued, and the last tenth of 20 is for tenants that have less; "
        "try again later."
    )
    assert caught.value.reason is Reason.TOO_MANY_CALLS
    assert caught.value.info.retry_after_s == 1.0
    assert [(v.field, v.description) for v in caught.value.violations] == [
        ("max_calls", "the limit is 20, of which 2 tenants share the last tenth")
    ]


def test_limit_of_a_tenant_holds_below_its_share() -> None:
    table = Admission(max_calls=100, max_calls_per_tenant=3)
    assert fill(table, "a", 10) == 3
    assert fill(table, "b", 10) == 3
