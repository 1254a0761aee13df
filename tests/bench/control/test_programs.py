"""Programs of contestants: asked by lines of JSON, standing still outside of their turn, gone at the end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.control.programs import Program, ProgramError
from tests.bench.peers.protocol import WARM_CALLS
from tests.support.processes import is_running, wait_until
from tests.support.system import ROOT

pytestmark = pytest.mark.integration

FAKE = """
import os, subprocess, sys
sys.path.insert(0, {peers!r})
from protocol import expect, main, run_calls

class Fake:
    system = "fake 1.0"
    control_pid = os.getpid()

    async def prepare(self, topology, options):
        if options.get("ends"):
            os._exit(3)
        print("not an answer")
        self.child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        self.wanted = options.get("wanted", "x")
        self.calls = 0

    async def run(self, count, concurrency):
        latencies_ms = await run_calls(self.call, count, concurrency)
        expect(len(latencies_ms), count)
        return latencies_ms

    async def call(self):
        self.calls += 1
        expect(("x" if self.calls < 100 else self.calls), self.wanted)

    async def stop(self):
        self.child.kill()
        self.child.wait()

main(Fake)
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    path = tmp_path / "fake.py"
    path.write_text(FAKE.format(peers=str(ROOT / "tests" / "bench" / "peers")))
    return Program([sys.executable, str(path)], tmp_path / "logs" / "fake.log")


def states(program: Program) -> set[str]:
    """State letters of its processes."""
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in program.pids()}


async def test_program_times_the_calls_that_it_was_asked_for(program: Program) -> None:
    async with program:
        await program.prepare("fan5", {})
        assert (program.system, program.control_pid) == ("fake 1.0", program.pid)
        run = await program.run(7, concurrency=3)
    assert len(run.latencies_s) == 7
    assert 0.0 < max(run.latencies_s) <= run.wall_s


async def test_program_answers_a_wrong_reply_with_an_error(program: Program) -> None:
    async with program:
        await program.prepare("fan5", {})
        with pytest.raises(ProgramError, match="the reply is 100, not 'x'"):
            await program.run(100 - WARM_CALLS, concurrency=1)


async def test_program_that_ends_is_an_error_and_what_it_printed_is_in_its_log(
    program: Program, tmp_path: Path
) -> None:
    async with program:
        await program.prepare("fan5", {})
    assert (tmp_path / "logs" / "fake.log").read_text() == "not an answer\n"
    async with program:
        with pytest.raises(ProgramError, match="it ended at prepare"):
            await program.prepare("fan5", {"ends": True})


async def test_program_stands_still_with_its_processes_outside_of_its_turn(program: Program) -> None:
    async with program:
        await program.prepare("fan5", {})
        program.sleep()
        assert len(program.pids()) == 2
        await wait_until(lambda: states(program) == {"T"})
        with program.awake():
            await wait_until(lambda: "T" not in states(program))
            await program.run(1, concurrency=1)
        await wait_until(lambda: states(program) == {"T"})


async def test_program_ends_with_its_processes(program: Program) -> None:
    async with program:
        await program.prepare("fan5", {})
        program.sleep()
        pids = program.pids()
    assert not any(map(is_running, pids))


async def test_program_ends_with_its_processes_after_a_failure(program: Program) -> None:
    with pytest.raises(RuntimeError, match="ours"):
        async with program:
            await program.prepare("fan5", {})
            pids = program.pids()
            raise RuntimeError("ours")
    assert not any(map(is_running, pids))
