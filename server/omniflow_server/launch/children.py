"""Keeping one process up: start, wait, start again after a pause, until told to stop or given up; or anew when told so.

What it does not know: what the process is for, and when it is ready; somebody tells it by `mark_ready`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from dataclasses import replace

from omniflow_server.launch import identity, logs
from omniflow_server.launch.plan import ProcessSpec
from omniflow_server.launch.restarts import Death, RestartPolicy, Restarts
from omniflow_server.launch.settings import SupervisorSettings
from omniflow_server.launch.status import NEXT_STATES, ProcessState, ProcessStatus

_LAST_WORDS_LENGTH = 200


class Child:
    """One process of the plan. `run` is the task that keeps it; everything else is called on the same loop."""

    def __init__(self, spec: ProcessSpec, settings: SupervisorSettings, on_change: Callable[[], None]) -> None:
        self.spec = spec
        self.status = ProcessStatus(
            name=spec.name,
            role=spec.role,
            replica_id=spec.replica_id,
            state=ProcessState.STARTING,
            log=str(spec.log),
        )
        self.failure = ""
        """Why it was given up; empty while it was not."""
        self.is_failing = False
        """It does not come back by itself after `restart`: it ended too often, or said that it was started wrongly."""
        self._policy = RestartPolicy(
            delay_s=settings.restart_delay_s,
            delay_max_s=settings.restart_delay_max_s,
            stable_after_s=settings.stable_after_s,
            max_failed_starts=settings.max_failed_starts,
        )
        self._settings = settings
        self._on_change = on_change
        self._restarts = Restarts()
        self._process: Process | None = None
        self._ready_since: float | None = None
        self._is_stopping = asyncio.Event()
        self._is_renewed = False
        self._woken = asyncio.Event()
        """Ends a pause between two lives."""
        self._killer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Keeps the process up. Returns when it was stopped, or given up (then `failure` says why)."""
        while not self._is_stopping.is_set():
            death = await self._live()
            if self._is_stopping.is_set() or death is None:
                break
            if self._is_renewed:
                self._renew()
                continue
            self._restarts = self._restarts.after(death, self._policy)
            self.is_failing = self._restarts.is_failing(death, self._policy)
            if self._restarts.is_hopeless(death, self._policy):
                self._give_up(death)
                return
            await self._pause(death)
        if not self.failure:
            self._move(ProcessState.STOPPED)

    def mark_ready(self) -> None:
        """The process takes work."""
        if self.status.state is ProcessState.STARTING and self._process is not None:
            self._ready_since = asyncio.get_running_loop().time()
            self.is_failing = False
            self._move(ProcessState.READY)

    def stop(self) -> None:
        """Asks the process to end (SIGTERM), kills it after its grace; a process that is down is not started again."""
        self._is_stopping.set()
        self._woken.set()
        self._terminate()

    def restart(self) -> None:
        """Asks the process to end as `stop` does, and starts it anew with a fresh log; one that pauses is started now.

        Nothing for a process that is stopping for good, or was given up.
        """
        if self._is_stopping.is_set() or self.status.state is ProcessState.FAILED:
            return
        self._is_renewed = True
        self.is_failing = False
        self._woken.set()
        self._terminate()

    def kill(self) -> None:
        """Ends the process and what it started, at once."""
        self._is_stopping.set()
        self._woken.set()
        self._kill_group()

    def bound_log(self) -> None:
        """Rotates the log when it has grown too large."""
        logs.cut(self.spec.log, size_bytes=self._settings.log_size_bytes, keep=self._settings.log_keep)

    async def _live(self) -> Death | None:
        """One life of the process. None when it could not even be started."""
        spawning = asyncio.ensure_future(self._spawn())
        try:
            self._process = await asyncio.shield(spawning)
            self._show_birth(self._process.pid)
            if self._is_stopping.is_set() or self._is_renewed:  # told while it was being started
                self._terminate()
            status = await self._process.wait()
        except OSError as problem:
            return self._not_started(f"cannot be started: {self.spec.argv[0]}: {problem.strerror}")
        except asyncio.CancelledError:
            self._process = await spawning  # it may be half-way there, and nobody else knows of it
            self.kill()
            await self._process.wait()  # short: it is killed; but it must be reaped
            raise
        self._process = None
        return self._end_of_life(status)

    def _not_started(self, cause: str) -> Death | None:
        if self._restarts.has_been_ready:  # the others go on; an interpreter that is being replaced may be there again
            return Death(status=0, ready_for_s=None, cause=cause)
        self.failure = f"{self.spec.name} {cause}"
        self._move(ProcessState.FAILED)
        return None

    def _terminate(self) -> None:
        """SIGTERM, and SIGKILL after the grace."""
        if self._process is None or self._killer is not None:
            return
        self._move(ProcessState.STOPPING)
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        self._killer = asyncio.get_running_loop().call_later(self.spec.stop_grace_s, self._kill_group)

    def _kill_group(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _end_of_life(self, status: int) -> Death:
        if self._killer is not None:
            self._killer.cancel()
            self._killer = None
        now = asyncio.get_running_loop().time()
        ready_for_s = None if self._ready_since is None else now - self._ready_since
        self._ready_since = None
        return Death(status=status, ready_for_s=ready_for_s)

    async def _spawn(self) -> Process:
        self.bound_log()
        log = logs.open_for_child(self.spec.log)
        try:
            # A session of its own: Ctrl+C in the terminal reaches the supervisor alone, which then stops in order.
            return await asyncio.create_subprocess_exec(
                *self.spec.argv,
                env={**os.environ, **self.spec.env, "OMNIFLOW_PARENT_PID": str(os.getpid())},
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)

    def _show_birth(self, pid: int) -> None:
        self.status = replace(
            self.status, pid=pid, start_ticks=identity.start_ticks(pid), started_unix_s=time.time(), death=""
        )
        self._on_change()

    async def _pause(self, death: Death) -> None:
        delay_s = self._restarts.delay_s(self._policy)
        self._woken.clear()
        self._move(ProcessState.RESTARTING, death=f"{death}; next start in {delay_s:.1f} s{self._last_words(death)}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), delay_s)
        if self._is_stopping.is_set():
            return
        if self._is_renewed:
            self._renew()
        else:
            self._move(ProcessState.STARTING, restarts=self.status.restarts + 1)

    def _renew(self) -> None:
        """Before a life that somebody asked for: no pause, no death to be counted, and never given up for good."""
        self._is_renewed = False
        self.is_failing = False
        self._restarts = Restarts(has_been_ready=True)
        logs.rotate(self.spec.log, keep=self._settings.log_keep)
        self._move(ProcessState.STARTING)

    def _last_words(self, death: Death) -> str:
        """The last line of the log, when the process ended by itself: most say there why."""
        line = logs.tail(self.spec.log, lines=1)[:_LAST_WORDS_LENGTH] if death.status > 0 else ""
        return f": {line}" if line else ""

    def _give_up(self, death: Death) -> None:
        deaths = self._restarts.streak
        times = f"{deaths} times " if deaths > 1 else ""
        self.failure = f"{self.spec.name} died {times}before it was ready; the last time it {death}"
        self._move(ProcessState.FAILED, death=str(death))

    def _move(self, state: ProcessState, *, death: str = "", restarts: int | None = None) -> None:
        if state is self.status.state:
            return
        assert state in NEXT_STATES[self.status.state], f"{self.spec.name}: {self.status.state} -> {state}"
        is_down = self._process is None
        self.status = replace(
            self.status,
            state=state,
            death=death or self.status.death,
            restarts=self.status.restarts if restarts is None else restarts,
            pid=0 if is_down else self.status.pid,
            start_ticks=0 if is_down else self.status.start_ticks,
        )
        self._on_change()
