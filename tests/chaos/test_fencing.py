"""An owner that stood still for longer than its lease writes nothing more for its session when it is back."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from omniflow_core.errors import Reason
from tests.chaos.fencing_flow import RECORD
from tests.chaos.load import Caller, Targets
from tests.chaos.system import cluster

SESSION = "sessions/fenced"
OLD_S = "1.0"
"""The old owner's node ends while the owner stands still: its result waits in the socket."""
PAUSE_S = 3.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_owner_that_comes_back_starts_nothing_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record"
    monkeypatch.setenv(RECORD, str(record))
    async with cluster(flow="tests/chaos/fencing_flow.py") as running:
        targets = Targets(running.targets)
        try:
            old_owner, new_owner = Caller(targets, 0), Caller(targets, 1)
            lost = asyncio.ensure_future(old_owner.call("old", session=SESSION, text=OLD_S))
            await asyncio.sleep(0.5)
            running.send("control-0", signal.SIGSTOP)
            try:
                taken = await new_owner.call("new", session=SESSION, text="0")
                await asyncio.sleep(PAUSE_S)
            finally:
                running.send("control-0", signal.SIGCONT)
            outcome = await lost
            following = await old_owner.call("after", session=SESSION, text="0")
        finally:
            await targets.close()
    assert (outcome.error, outcome.terminals, outcome.faults) == (Reason.OWNER_LOST, 1, [])
    assert (taken.error, following.error) == (None, None)
    epochs = [call.call_id.rpartition("-")[2] for call in (outcome, taken, following)]
    assert epochs[0] != epochs[1] == epochs[2], "the session stays with who has taken it over"
    assert record.read_text().split() == [taken.call_id, following.call_id]
