"""The fake interface's side of one activation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omniflow_core.graph.spec import NodeSpec, Replay
from tests.properties.flow_evaluator import Script
from tests.properties.flow_values import Activation

if TYPE_CHECKING:
    from tests.properties.flow_hosts import Host
    from tests.properties.flow_piping import PipeRun

MOST_ATTEMPTS = 3


@dataclass(slots=True)
class Running:
    """An activation that has started and not ended."""

    activation_id: int
    """As the scheduler has it that started it: the call's, or that of a segment's run."""
    activation: Activation
    spec: NodeSpec
    window: int
    script: Script
    attempt: int = 1
    is_accepted: bool = False
    sent: int = 0
    acked: int = 0
    host: Host | None = None
    """Where it runs inside a segment; then this is what the control plane has heard of it."""
    pipe: PipeRun | None = None
    """What runs the pipeline that it is the first of; then this is what the control plane has heard of all of it."""

    @property
    def is_stuck(self) -> bool:
        """It has to wait for an acknowledgement."""
        return self.is_accepted and self.sent < len(self.script.yields) and self.sent - self.acked >= self.window

    @property
    def gave_all(self) -> bool:
        """It has yielded all and ends well, so that its last yield can come with its end."""
        return self.sent == len(self.script.yields) and not self.script.fails

    @property
    def can_run_again(self) -> bool:
        """Whether the loss of its replica passes unseen."""
        replay = self.spec.replay
        if replay is Replay.NONE or self.attempt >= MOST_ATTEMPTS:
            return False
        return replay is Replay.CONTINUE or self.spec.is_deterministic or not self.sent
