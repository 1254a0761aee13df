"""The pipelines that this replica has a stage of: finds the run that a start belongs to, or begins it.

A run is known while an activation of it is under way here, and at the last stage for as long as its exit is. One that has
failed is remembered: a start that was on its way then would go on with what others have lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from omniflow.interface import Interface
from omniflow.large_values import ValueStore
from omniflow.wire import packed
from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_roles.harness.execution import Execution, started_execution
from omniflow_roles.harness.fences import Remembered
from omniflow_roles.harness.inputs import StartActivation
from omniflow_roles.harness.peers import PeerLinks
from omniflow_roles.harness.pipeline import PipelineRun, RunKey, StageSink
from omniflow_roles.harness.pipeline_exit import ExitLink, PipelineExit
from omniflow_roles.harness.pipeline_next import NextStage
from omniflow_roles.harness.sink import ResultSink

if TYPE_CHECKING:
    from omniflow_roles.harness.host import RoleHost


class Pipelines:
    """Runs of this process, by their keys."""

    def __init__(self, peers: PeerLinks, store: ValueStore, link_with: Callable[[str], ExitLink | None]) -> None:
        """`link_with` gives the newest link of the control plane with that incarnation."""
        self._peers = peers
        self._store = store
        self._link_with = link_with
        self._runs: dict[RunKey, PipelineRun] = {}
        self._exits: dict[str, set[PipelineExit]] = {}
        """Those of each call."""
        self._broken: Remembered[RunKey] = Remembered()
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._runs)

    def begin(self, start: StartActivation, upstream: ResultSink, interface: Interface, host: RoleHost) -> Execution:
        """The execution of a start with a pipeline. Raises OmniFlowError when it cannot be begun."""
        if start.delivered_yields:
            raise invalid_field(
                "start.delivered_yields", "an activation of a pipeline cannot go on where another was lost"
            )
        run = self._run_of(start)
        sink = StageSink(run, upstream, packed(start.pipeline.origin_path), host)
        run.join(sink)
        try:
            sink.execution = started_execution(start, sink, interface, host.fetcher, host.threads, scope=sink)
        except OmniFlowError:
            run.fail(sink)
            raise
        return sink.execution

    def end_call(self, call_id: str) -> None:
        """Nothing more leaves for the call."""
        for end in tuple(self._exits.get(call_id, ())):
            end.cancel("the call has ended")

    def _run_of(self, start: StartActivation) -> PipelineRun:
        message = start.pipeline
        key = (start.activation.call_id, message.entry_activation_id, message.exit.handle, message.stage)
        run = self._runs.get(key)
        if run is None and key not in self._broken:
            run = self._begin_run(start, key)
        if run is None or run.is_broken:
            raise OmniFlowError(Reason.CALL_CANCELLED, "the pipeline that the activation belongs to has ended")
        return run

    def _begin_run(self, start: StartActivation, key: RunKey) -> PipelineRun:
        run = PipelineRun(key, yield_window=start.yield_window, byte_credit=start.byte_credit, on_empty=self._on_empty)
        if start.pipeline.stages:
            run.outlet = NextStage(start, run, self._peers, self._store, self._numbers)
        else:
            run.outlet = end = PipelineExit(start, run, self._exit_link(start), self._store, self._forget)
            self._exits.setdefault(key[0], set()).add(end)
        self._runs[key] = run
        return run

    def _exit_link(self, start: StartActivation) -> ExitLink:
        link = self._link_with(start.pipeline.exit.incarnation_id)
        if link is None:
            node = start.activation.node
            message = f"Node {node!r} has no link with the control plane that its outputs go to."
            raise OmniFlowError(Reason.REPLICA_LOST, message, metadata={"node": node})
        return link

    def _on_empty(self, run: PipelineRun) -> None:
        if run.is_broken or not run.outlet.is_lasting:
            self._forget(run)

    def _forget(self, run: PipelineRun) -> None:
        """Repeats change nothing."""
        if self._runs.get(run.key) is not run:
            return
        del self._runs[run.key]
        if run.is_broken:
            self._broken.add(run.key)
        run.outlet.close()
        if isinstance(run.outlet, PipelineExit):
            exits = self._exits[run.key[0]]
            exits.discard(run.outlet)
            if not exits:
                del self._exits[run.key[0]]
