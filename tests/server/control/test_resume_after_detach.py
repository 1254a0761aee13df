"""A client that was lost and comes back: it is given what it has not had, and nothing twice."""

from __future__ import annotations

import pytest

from tests.server.control.table import call_table, events_of, kinds


@pytest.mark.parametrize("seen", range(4))
async def test_resume_after_detach_is_exact(seen: int) -> None:
    """It leaves after `seen` events; two values come while nobody is attached, one and the end after it is back."""
    async with call_table(detach_grace_s=60) as table:
        call = table.accept()
        table.accepts(call, 1)
        table.yields(call, 1, 0, y="one")
        table.yields(call, 1, 1, y="two")
        table.yields(call, 2, 0, y="t0")
        first = table.attach(call)
        before = events_of(first)
        assert kinds(before) == ["accepted", "started", "value"]
        table.calls.detach(call, first)
        table.yields(call, 2, 1, y="t1")
        table.finishes(call, 2, 2)
        table.yields(call, 3, 0, y="t2")
        resumed = table.calls.resume(before[0].accepted.resume_token, tenant="t")
        assert resumed is call
        reader = table.attach(call, seen)
        missed = events_of(reader)
        table.yields(call, 3, 1, y="t3")
        table.finishes(call, 3, 2)
        table.finishes(call, 1, 2)
        events = [*before[:seen], *missed, *events_of(reader)]
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert kinds(events) == ["accepted", "started", *["value"] * 4, "finished"]
        assert [e.value.text for e in events if e.WhichOneof("event") == "value"] == ["t0", "t1", "t2", "t3"]
        assert reader.is_done
