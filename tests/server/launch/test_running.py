"""A supervisor for the time of a block."""

from __future__ import annotations

from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError
from omniflow_server.launch import identity
from omniflow_server.launch.running import running
from omniflow_server.launch.status import Phase
from omniflow_server.launch.supervisor import Supervisor
from tests.server.launch.scripted import SETTINGS, FileReadiness, plan, script

pytestmark = pytest.mark.integration


def supervisor(folder: Path, body: str | None = None) -> Supervisor:
    spec = script(folder, "control", body) if body else script(folder, "control")
    return Supervisor(plan(folder, spec), SETTINGS, FileReadiness(folder))


async def test_running_enters_when_ready_and_stops_in_order(tmp_path: Path) -> None:
    subject = supervisor(tmp_path)
    async with running(subject):
        assert subject.status().phase is Phase.READY
        pid = subject.status().processes[0].pid
    assert identity.start_ticks(pid) == 0
    assert (tmp_path / "notes").read_text() == "control stopped\n"


async def test_running_raises_what_keeps_it_from_getting_ready(tmp_path: Path) -> None:
    with pytest.raises(OmniFlowError, match="control died"):
        async with running(supervisor(tmp_path, "sys.exit(2)")):
            pytest.fail("entered")


async def test_running_stops_in_order_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with running(supervisor(tmp_path)):
            raise ZeroDivisionError
    assert (tmp_path / "notes").read_text() == "control stopped\n"
