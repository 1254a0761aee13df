"""Restarting the processes of a flow one after another, so that it serves all the time.

    llm-0 ─▶ llm-1 ─▶ tts-0 ─▶ control-0 ─▶ control-1        each: SIGTERM, it drains, its end, start, READY, then the next

Replicas go role by role, then the control planes; the store only when it is named. A process that does not come back ends
it: what runs goes on running, and the error names it. It does not know how a process is started or when it is ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.findings import nearest
from omniflow_server.launch import logs
from omniflow_server.launch.children import Child
from omniflow_server.launch.settings import SupervisorSettings
from omniflow_server.launch.status import CONTROL, ProcessKind, ProcessState, RollingStatus

_RANKS = {ProcessKind.REPLICA: 0, ProcessKind.CONTROL: 1, ProcessKind.STORE: 2}


def in_order(children: Sequence[Child], only: str) -> list[Child]:
    """What a rolling restart restarts, in its order; `only` is a role, a process, "control" for every control plane, or
    empty for all but the store. Raises OmniFlowError UNKNOWN_RESOURCE naming the nearest."""
    ordered = sorted(children, key=lambda child: _RANKS[child.spec.kind])  # stable: the order of the plan within
    if not only:
        return [child for child in ordered if child.spec.kind is not ProcessKind.STORE]
    named = [child for child in ordered if only in _names_of(child)]
    if not named:
        known = sorted({name for child in ordered for name in _names_of(child)})
        raise OmniFlowError(
            Reason.UNKNOWN_RESOURCE, f"no role or process of the flow is named {only!r}. {nearest(only, known)}"
        )
    return named


def _names_of(child: Child) -> set[str]:
    group = CONTROL if child.spec.kind is ProcessKind.CONTROL else child.spec.role
    return {child.spec.name, group} - {""}


class RollingRestart:
    """The rolling restarts of one supervisor, at most one at a time. `is_whole` says whether everything is ready and served,
    `until` waits for a condition over the children, and until the supervisor stops."""

    def __init__(
        self,
        children: Sequence[Child],
        settings: SupervisorSettings,
        *,
        is_whole: Callable[[], bool],
        until: Callable[[Callable[[], bool]], Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        self.status: RollingStatus | None = None
        self._children, self._settings = children, settings
        self._is_whole, self._until, self._on_change = is_whole, until, on_change
        self._queue: list[Child] = []

    @property
    def is_on_its_way(self) -> bool:
        return self.status is not None and not self.status.is_over

    def begin(self, only: str) -> int:
        """Plans one, for `run` to perform; its number. Raises OmniFlowError: CONFLICT while another is on its way, or while
        something is not ready (it would take away what still serves), unless `only` names what to restart."""
        queue = in_order(self._children, only)
        if self.status is not None and self.is_on_its_way:
            done = f"{self.status.done} of {self.status.total}"
            raise OmniFlowError(
                Reason.CONFLICT, f"a rolling restart is on its way, {done} processes are done; wait for it"
            )
        late = [child.spec.name for child in self._children if child.status.state is not ProcessState.READY]
        if late and not only:
            raise OmniFlowError(
                Reason.CONFLICT,
                f"not ready: {', '.join(late)}; a rolling restart begins when everything is (`omniflow status`), or restart "
                f"these by --only {late[0]}",
            )
        number = 1 if self.status is None else self.status.number + 1
        self._queue = queue
        self.status = RollingStatus(number=number, total=len(queue), process=queue[0].spec.name)
        self._on_change()
        return number

    async def run(self, is_stopping: Callable[[], bool]) -> None:
        """Performs what was begun, until the supervisor stops."""
        while not is_stopping():
            await self._until(lambda: self.is_on_its_way)
            while self.is_on_its_way and not is_stopping():
                await self._step(self._queue.pop(0))

    async def _step(self, child: Child) -> None:
        self._show(process=child.spec.name)
        was_whole = self._is_whole()
        child.restart()
        try:
            async with asyncio.timeout(child.spec.stop_grace_s + self._settings.ready_timeout_s):
                await self._until(lambda: child.is_failing or self._is_back(child, was_whole=was_whole))
        except TimeoutError:
            self._give_up(
                child, f"is not ready after {self._settings.ready_timeout_s:g} s (supervisor.ready_timeout_s)"
            )
        else:
            self._end_step(child)

    def _is_back(self, child: Child, *, was_whole: bool) -> bool:
        """Where all was well before, all must be again: a control plane that answers may not have found its roles yet."""
        return self._is_whole() if was_whole else child.status.state is ProcessState.READY

    def _end_step(self, child: Child) -> None:
        if child.is_failing or child.status.state is ProcessState.FAILED:
            self._give_up(child, f"does not come back: it {child.status.death}")
        elif self.status is not None and child.status.state is ProcessState.READY:  # else the supervisor stops
            self._show(done=self.status.done + 1)

    def _give_up(self, child: Child, why: str) -> None:
        tail = logs.tail(child.spec.log)
        done = self.status.done if self.status else 0
        rest = f"; {len(self._queue)} processes were not restarted" if self._queue else ""
        self._show(error=f"{child.spec.name} {why}{rest} ({done} were)\nits log: {child.spec.log}\n{tail}".rstrip())

    def _show(self, *, done: int | None = None, process: str = "", error: str = "") -> None:
        assert self.status is not None
        self.status = replace(
            self.status,
            done=self.status.done if done is None else done,
            process=process or self.status.process,
            error=error,
        )
        self._on_change()
