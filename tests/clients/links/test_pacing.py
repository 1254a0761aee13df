"""When a lane writes."""

from __future__ import annotations

import asyncio

from omniflow.links.pacing import Pacing


async def test_what_is_queued_in_one_turn_is_written_once_at_its_end() -> None:
    writes: list[None] = []
    pacing = Pacing(lambda: writes.append(None))
    for _ in range(3):
        pacing.wake()
    assert not writes
    await asyncio.sleep(0)
    assert len(writes) == 1
    pacing.wake()
    await asyncio.sleep(0)
    assert len(writes) == 2


async def test_what_is_queued_while_input_is_taken_in_is_written_at_its_end() -> None:
    writes: list[None] = []
    pacing = Pacing(lambda: writes.append(None))
    pacing.hold()
    pacing.wake()
    assert not writes
    pacing.release()
    assert len(writes) == 1
