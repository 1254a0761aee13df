"""Running a plan: every process up, ready when all are, stopped in order.

    run()      the store first, then the rest
               children ── one task each ──▶ exit ──▶ restart (or give up: everything stops, run() raises)
               watcher  ── looks at the control planes while anything is not ready ──▶ mark_ready
    restart()  one process after another; also by request over a socket (omniflow_server.launch.requests)
    stop()     the control planes first: they refuse new calls and let those that run end on roles that still serve;
               then the roles, then the store

A supervisor that is killed leaves nothing: its children are killed by the kernel (omniflow.process.die_with_parent).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.config import dump_json
from omniflow_server.launch import identity, logs, requests, store
from omniflow_server.launch.children import Child
from omniflow_server.launch.plan import LaunchPlan
from omniflow_server.launch.readiness import Observation, Readiness
from omniflow_server.launch.rolling import RollingRestart
from omniflow_server.launch.settings import SupervisorSettings
from omniflow_server.launch.state import StateFile, write_private
from omniflow_server.launch.status import FlowStatus, Phase, ProcessKind, ProcessState

log = logging.getLogger(__name__)

_LOG_CHECK_INTERVAL_S = 5.0


class Supervisor:
    """Keeps the processes of one plan up. `on_change` is called with every new status, on the loop."""

    def __init__(
        self,
        plan: LaunchPlan,
        settings: SupervisorSettings,
        readiness: Readiness,
        on_change: Callable[[FlowStatus], None] = lambda status: None,
    ) -> None:
        self._plan, self._settings, self._readiness, self._on_change = plan, settings, readiness, on_change
        self._state = StateFile(plan.runtime)
        self._children = [Child(spec, settings, self._changed) for spec in plan.processes]
        self._ordinals = {control.name: ordinal for ordinal, control in enumerate(plan.controls)}
        self._rolling = RollingRestart(
            self._children, settings, is_whole=self._is_whole, until=self._until, on_change=self._changed
        )
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._changes = asyncio.Event()
        self._is_serving = False
        self._error = ""
        self._started_unix_s = 0.0
        self._start_ticks = 0
        self._published: FlowStatus | None = None

    async def run(self) -> None:
        """Until `stop`. Raises OmniFlowError when a process is given up or the first readiness takes too long, and
        CONFLICT when the name is taken."""
        with self._state.held():
            self._prepare()
            try:
                await self._run_children()
            finally:
                self._clean_up()
        if self._error:
            raise OmniFlowError(Reason.INTERNAL, self._error)

    async def wait_ready(self) -> None:
        """Returns when everything is ready for the first time; never, if `run` ends before."""
        await self._ready.wait()

    def restart(self, only: str = "") -> int:
        """Begins to restart one process after another, all but the store, or those of the role or process that `only` names;
        its number in `status().rolling`. Raises OmniFlowError CONFLICT when that cannot be now, or UNKNOWN_RESOURCE."""
        if self._stopping.is_set() or not self._ready.is_set():
            doing = "stopping" if self._stopping.is_set() else "starting"
            raise OmniFlowError(Reason.CONFLICT, f"{self._plan.name!r} is still {doing}")
        return self._rolling.begin(only)

    def stop(self) -> None:
        """Stops everything in order; `run` returns when it is done."""
        self._stopping.set()
        self._changes.set()

    def kill(self) -> None:
        """Stops everything at once."""
        self.stop()
        for child in self._children:
            child.kill()

    def status(self) -> FlowStatus:
        """What runs now."""
        return FlowStatus(
            name=self._plan.name,
            flow=self._plan.flow,
            graph=self._plan.graph,
            target=self._plan.target,
            internal_target=self._plan.internal_target,
            phase=self._phase(),
            pid=os.getpid(),
            start_ticks=self._start_ticks,
            started_unix_s=self._started_unix_s,
            processes=tuple(child.status for child in self._children),
            error=self._error,
            targets=self._plan.targets,
            internal_targets=self._plan.internal_targets,
            notes=self._plan.notes,
            rolling=self._rolling.status,
        )

    def _prepare(self) -> None:
        self._started_unix_s = time.time()
        self._start_ticks = identity.start_ticks(os.getpid())
        for spec in self._plan.processes:
            logs.rotate(spec.log, keep=self._settings.log_keep)
            if spec.folder is not None:
                spec.folder.mkdir(mode=0o700, exist_ok=True)
        for control in self._plan.controls:
            write_private(control.settings_file, dump_json(control.settings))
        self._publish()

    async def _run_children(self) -> None:
        async with requests.served(self._plan.runtime, self.restart), asyncio.TaskGroup() as group:
            for child in self._children:
                group.create_task(self._keep(child), name=child.spec.name)
            group.create_task(self._watch(), name="watch")
            group.create_task(self._bound_logs(), name="logs")
            group.create_task(self._rolling.run(self._stopping.is_set), name="rolling restart")
            await self._stopping.wait()
            self._publish()
            await self._stop_in_order()

    async def _keep(self, child: Child) -> None:
        if child.spec.kind is not ProcessKind.STORE:
            await self._until(self._is_store_ready)
        if self._stopping.is_set():
            child.stop()
        await child.run()
        if child.failure:
            self._fail(f"{child.failure}{self._log_of(child)}")
        self._changed()

    async def _stop_in_order(self) -> None:
        for kind in (ProcessKind.CONTROL, ProcessKind.REPLICA, ProcessKind.STORE):
            children = [child for child in self._children if child.spec.kind is kind]
            for child in children:
                child.stop()
            await self._wait(functools.partial(_are_over, children))

    async def _watch(self) -> None:
        """Looks while something is not ready, and sleeps otherwise."""
        try:
            async with asyncio.timeout(self._settings.ready_timeout_s):
                await self._look_until_ready()
        except TimeoutError:
            self._fail_late()
        while not self._stopping.is_set():
            self._ready.set()
            self._publish()
            await self._until(lambda: not self._are_all_ready())
            if self._stopping.is_set():
                return
            self._is_serving = False
            await self._look_until_ready()

    async def _look_until_ready(self) -> None:
        while not self._stopping.is_set():
            pids = {child.spec.name: child.status.pid for child in self._children}
            stores = await self._answering_stores()
            self._apply(await self._readiness.look() if self._is_store_ready() else Observation(), stores, pids)
            if self._is_whole():
                return
            await self._sleep(self._settings.poll_interval_s)

    async def _answering_stores(self) -> set[str]:
        sockets = {c.spec.name: c.spec.socket for c in self._children if c.status.state is ProcessState.STARTING}
        return {name for name, socket in sockets.items() if socket is not None and await store.is_answering(socket)}

    def _apply(self, observation: Observation, stores: set[str], pids: Mapping[str, int]) -> None:
        for child in self._children:
            # The look may have seen the life before this one.
            if child.status.pid == pids[child.spec.name] and self._is_seen_ready(child, observation, stores):
                child.mark_ready()
        self._is_serving = observation.is_serving
        self._changed()

    def _is_seen_ready(self, child: Child, observation: Observation, stores: set[str]) -> bool:
        spec = child.spec
        if spec.kind is ProcessKind.STORE:
            return spec.name in stores
        if spec.kind is ProcessKind.CONTROL:
            return observation.is_answering(self._ordinals[spec.name])
        return observation.is_ready(spec.role, spec.replica_id, child.status.pid)

    def _is_store_ready(self) -> bool:
        """Or there is none."""
        stores = (child.status.state for child in self._children if child.spec.kind is ProcessKind.STORE)
        return all(state is ProcessState.READY for state in stores)

    def _is_whole(self) -> bool:
        return self._is_serving and self._are_all_ready()

    def _are_all_ready(self) -> bool:
        return all(child.status.state is ProcessState.READY for child in self._children)

    def _fail_late(self) -> None:
        late = [child for child in self._children if child.status.state is not ProcessState.READY]
        names = ", ".join(child.spec.name for child in late) or f"the health of {self._plan.graph}"
        text = f"not ready after {self._settings.ready_timeout_s:g} s (supervisor.ready_timeout_s): {names}"
        self._fail(f"{text}{self._log_of(late[0] if late else self._children[0])}")

    def _fail(self, error: str) -> None:
        self._error = self._error or error
        self.stop()

    def _log_of(self, child: Child) -> str:
        tail = logs.tail(child.spec.log)
        where = f"\nits log: {child.spec.log}"
        return f"{where}\n{tail}" if tail else f"{where} (empty)"

    async def _bound_logs(self) -> None:
        while not self._stopping.is_set():
            await self._sleep(_LOG_CHECK_INTERVAL_S)
            for child in self._children:
                child.bound_log()

    async def _sleep(self, delay_s: float) -> None:
        """Sleeps, not longer than until the stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay_s)

    async def _until(self, is_true: Callable[[], bool]) -> None:
        """Waits for a condition over the states of the children, not longer than until the stop."""
        await self._wait(lambda: self._stopping.is_set() or is_true())

    async def _wait(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            self._changes.clear()
            await self._changes.wait()

    def _changed(self) -> None:
        self._changes.set()
        self._publish()

    def _publish(self) -> None:
        status = self.status()
        if status != self._published:
            self._published = status
            try:
                self._state.write(status)
            except OSError as problem:  # a full disk must not stop what serves
                log.warning("the state file cannot be written: %s", problem)
            self._on_change(status)

    def _phase(self) -> Phase:
        if self._error:
            return Phase.FAILED
        if self._stopping.is_set():
            return Phase.STOPPING
        if not self._ready.is_set():
            return Phase.STARTING
        if self._rolling.is_on_its_way:
            return Phase.RESTARTING
        return Phase.READY if self._is_whole() else Phase.DEGRADED

    def _clean_up(self) -> None:
        """Leaves the logs, and after a failure the state that says why."""
        for socket in self._plan.runtime.glob("*.sock"):
            socket.unlink(missing_ok=True)
        for control in self._plan.controls:
            control.settings_file.unlink(missing_ok=True)
        if not self._error:
            self._state.remove()


def _are_over(children: Sequence[Child]) -> bool:
    return all(child.status.state in (ProcessState.STOPPED, ProcessState.FAILED) for child in children)
