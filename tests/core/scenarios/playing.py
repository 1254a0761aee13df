"""Plays a whole call: fake workers that accept, yield as far as their window allows, and finish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from omniflow_core.control.events import Value
from tests.core.scenarios.driven import STOP, Driven

Script = Callable[[str, str], Iterable[Value]]
"""Yields of an activation by its name and input group: fields, or the value of field y."""


class Player:
    """Steps through a call. `pick` chooses which of the activations that can go on does so."""

    def __init__(self, drive: Driven, script: Script, *, workers: int = 1_000_000) -> None:
        self.drive = drive
        self.pick: Callable[[list[str]], str] = lambda ready: ready[0]
        self.size = 0
        """Bytes of each yield."""
        self.most_running = 0
        self._script = script
        self._workers = workers
        self._accepted: dict[str, int] = {}
        """Accepted activations with the attempt that was."""
        self._scripts: dict[str, list[Value]] = {}
        self._is_admitted = False

    def run(self, *, steps: int = -1, **inputs: Value) -> None:
        """Admits the call unless it is, and goes on to its end or for some steps."""
        if not self._is_admitted:
            self._is_admitted = True
            self.drive.admit(**inputs)
        while not self.drive.is_released and steps != 0:
            self.step()
            steps -= 1

    def step(self) -> None:
        """One event of an activation that can go on."""
        self.most_running = max(self.most_running, len(self.drive.running))
        ready = [name for name in self.drive.running if self._can_go_on(name)]
        assert ready, f"nobody can go on: {self.drive.running}, acknowledged {self.drive.acked}"
        name = self.pick(ready)
        if self.drive.terminal is not None:
            self.drive.fail(name, STOP)  # it has been told to stop
            return
        if not self._is_accepted(name):
            self._accepted[name] = self.drive.starts[name].attempt
            self.drive.accept(name)
            return
        script, given = self._script_of(name), self.drive.running[name]
        if given == len(script):
            del self._accepted[name]
            self.drive.finish(name)
            return
        value = script[given]
        self.drive.give(name, self.size, **(value if isinstance(value, Mapping) else {"y": value}))

    def _script_of(self, name: str) -> list[Value]:
        if name not in self._scripts:
            self._scripts[name] = list(self._script(name, self.drive.starts[name].group))
        return self._scripts[name]

    def _is_accepted(self, name: str) -> bool:
        return self._accepted.get(name) == self.drive.starts[name].attempt

    def _can_go_on(self, name: str) -> bool:
        start = self.drive.starts[name]
        if self.drive.terminal is not None:
            return True
        if not self._is_accepted(name):
            busy = sum(1 for n in self._accepted if self.drive.starts[n].node is start.node)
            return busy < self._workers
        given = self.drive.running[name]
        assert start.node.spec is not None
        window = start.node.spec.yield_window or 64
        return given == len(self._script_of(name)) or given - self.drive.acked[name] < window
