"""Background tasks have an owner."""

from __future__ import annotations

import asyncio
import logging

import pytest

from omniflow_server.control.tasks import BackgroundTasks


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        ended.append("cancelled")


async def test_tasks_are_ended_and_awaited_with_their_owner() -> None:
    ended: list[str] = []
    async with BackgroundTasks() as tasks:
        for _ in range(3):
            tasks.create_task(forever(ended))
        await asyncio.sleep(0)
        assert len(tasks) == 3
    assert ended == ["cancelled"] * 3
    assert len(tasks) == 0


async def test_failure_of_one_is_logged_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise RuntimeError("broken")

    ended: list[str] = []
    async with BackgroundTasks() as tasks:
        tasks.create_task(forever(ended))
        with caplog.at_level(logging.ERROR):
            await asyncio.wait([tasks.create_task(fail())])
        assert "broken" in caplog.text
        assert len(tasks) == 1
    assert ended == ["cancelled"]


async def test_task_that_starts_another_at_its_end_leaves_none() -> None:
    ended: list[str] = []

    async def starts_another(tasks: BackgroundTasks) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            tasks.create_task(forever(ended))

    async with BackgroundTasks() as tasks:
        tasks.create_task(starts_another(tasks))
        await asyncio.sleep(0)
    assert len(tasks) == 0
