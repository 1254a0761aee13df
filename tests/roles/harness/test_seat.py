"""Who runs and who waits at an interface."""

from __future__ import annotations

from typing import Any

from omniflow_roles.harness.seat import InterfaceSeat
from omniflow_roles.noop import Echo


class Two(Echo):
    max_concurrency = 2


class Work:
    """As much of an execution as a seat looks at."""

    def __init__(self, session: str = "", ordinal: int = 0) -> None:
        self.order_key = ("tenant", session, "node") if session else None
        self.ordinal = ordinal


def seat_with(*waiting: Any) -> InterfaceSeat:
    seat = InterfaceSeat(Two())
    seat.waiting.extend(waiting)
    return seat


def taken(seat: InterfaceSeat) -> list[Any]:
    found: list[Any] = []
    while (work := seat.take_next()) is not None:
        found.append(work)
    return found


def test_first_come_first_served_up_to_the_concurrency() -> None:
    a, b, c = Work(), Work(), Work()
    seat = seat_with(a, b, c)
    assert taken(seat) == [a, b]
    seat.leave(b)  # type: ignore[arg-type]
    assert taken(seat) == [c]


def test_work_of_one_session_runs_one_at_a_time_by_ordinal() -> None:
    late, early, other = Work("s", 9), Work("s", 3), Work("t", 1)
    seat = seat_with(late, early, other)
    assert taken(seat) == [early, other]
    seat.leave(other)  # type: ignore[arg-type]
    assert taken(seat) == []
    seat.leave(early)  # type: ignore[arg-type]
    assert taken(seat) == [late]


def test_leaving_is_idempotent_also_from_the_queue() -> None:
    a, b, c = Work(), Work(), Work()
    seat = seat_with(a, b, c)
    taken(seat)
    for _repeat in range(2):
        seat.leave(c)  # type: ignore[arg-type]
        seat.leave(a)  # type: ignore[arg-type]
    assert not seat.waiting
    assert len(seat.running) == 1
