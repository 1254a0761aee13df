"""Pipelines: chains of nodes whose yields go from replica to replica, and come back at the last one's link.

    start(a, pipeline) ─▶ link of A ─▶ A ─▶ B ─▶ C ─▶ link of C ─yields under the exit's handle─▶ PipelineRun ─▶ the call
                          link of A ◀─completed: how many there are─ A                               ▲
                               └─────────────────────────────────────────────────────────────────────┘

The control plane chooses the replicas when the first node is started, and grants each stage a window of activations ahead.
For the core there is one activation, and all that leaves the last node are its yields. What tells their number comes over
another link than they do, so the end waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow_core.control.commands import StartActivation
from omniflow_core.control.events import ActivationFailed
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.plan import NodePlan
from omniflow_core.graph.spec import NodeSpec, OnImpossible
from omniflow_server.control import results

if TYPE_CHECKING:
    from omniflow_server.control.call import Call

ACTIVATION_WINDOW = 64
"""Activations of a stage that may run or wait at the same time for one call. As for inline nodes and nodes of segments."""


class ExitLink(Protocol):
    """The link to the replica of the last node."""

    @property
    def name(self) -> str: ...
    @property
    def replica(self) -> replica_pb2.Replica: ...
    @property
    def incarnation_id(self) -> str:
        """Of the control plane, as the replica knows it."""

    @property
    def is_interrupted(self) -> bool:
        """Nothing carries it now."""

    def open_exit(self, run: PipelineRun) -> int:
        """A handle whose results go to the run."""

    def close_exit(self, handle: int) -> None:
        """Nothing more comes under the handle, and the replica may forget it. Repeats change nothing."""

    def ack_exit(self, handle: int, next_ordinal: int) -> None: ...


class PipelineRun:
    """One run of a pipeline, from the start of its first node to the end of the last. An `ActivationHost` of that start."""

    def __init__(self, call: Call, command: StartActivation, exit_link: ExitLink) -> None:
        self._call = call
        self._activation_id = command.activation_id
        self._attempt = command.attempt
        self._node = command.node.name
        self._link = exit_link
        self._handle = exit_link.open_exit(self)
        self._cancel: Callable[[str], None] = lambda _: None
        self._came = 0
        self._completed: pb.ActivationCompleted | None = None
        self._has_ended = False

    @property
    def handle(self) -> int:
        """The exit's."""
        return self._handle

    def started(self, cancel: Callable[[str], None]) -> None:
        """The first node's activation was sent; `cancel` stops it, and all below it."""
        self._cancel = cancel

    def drop(self) -> None:
        """The start was not sent."""
        self._has_ended = True
        self._link.close_exit(self._handle)

    # Where acknowledgements and cancels of the activation go.

    def ack(self, call_id: str, activation_id: int, next_ordinal: int) -> None:
        if not self._has_ended:
            self._link.ack_exit(self._handle, next_ordinal)

    def cancel(self, call_id: str, activation_id: int, reason: str) -> None:
        self._cancel(reason)

    # What the links report.

    def yielded(self, message: pb.ActivationYield) -> None:
        """A yield of the last node."""
        event = results.left(self._activation_id, self._attempt, message)
        if event.stored_bytes:
            self._call.keeping_replicas.add(self._link)
        self._came += 1
        self._call.handle(event)
        self._end_if_complete()

    def completed(self, message: pb.ActivationCompleted) -> None:
        """The first node's activation and all below it have completed; yields may still be on their way."""
        self._completed = message
        self._end_if_complete()

    def failed(self, error: ErrorInfo) -> None:
        """The run has failed, or its first replica was lost."""
        if self._has_ended:
            return
        self._end()
        self._call.handle(ActivationFailed(self._activation_id, error, self._attempt))

    def lost(self) -> None:
        """The link that its yields come over was lost, and some of them with it."""
        if self._has_ended:
            return
        message = f"Node {self._node!r} lost the replica {self._link.name}, which its yields go through."
        self._cancel("the replica of the last node was lost")
        self.failed(
            ErrorInfo(
                reason=Reason.REPLICA_LOST, message=message, metadata={"node": self._node, "replica": self._link.name}
            )
        )

    def _end_if_complete(self) -> None:
        message = self._completed
        if message is None or self._came < message.yield_count or self._has_ended:
            return
        self._end()
        self._call.handle(results.finished(self._activation_id, self._attempt, message))

    def _end(self) -> None:
        self._has_ended = True
        self._link.close_exit(self._handle)
        self._call.activation_ended(self._activation_id)


class PipelineMessages:
    """Makes the pipelines of starts. `yield_window` is that of nodes without one of their own."""

    def __init__(self, *, yield_window: int) -> None:
        self._yield_window = yield_window

    def message(
        self, command: StartActivation, exit_link: ExitLink, handle: int, replicas: Sequence[replica_pb2.Replica]
    ) -> pb.Pipeline:
        """What the start takes along; `replicas` are those of the nodes after the first, in order."""
        plan = command.node.pipeline
        assert plan is not None, "only a pipeline's first node is started with one"
        nodes: list[NodePlan] = [command.node]
        for _ in plan.nodes[1:]:
            nodes.append(nodes[-1].deliveries[0].node)
        message = pb.Pipeline(
            exit=pb.PipelineExit(
                incarnation_id=exit_link.incarnation_id,
                handle=handle,
                fields=plan.outputs,
                # The core counts against this or less, so neither waits for the other.
                yield_window=self._window(plan.nodes[0]),
            ),
            entry_activation_id=command.activation_id,
            origin_path=command.origin_path,
        )
        for before, replica in zip(nodes[:-1], replicas, strict=True):
            message.stages.append(self._stage(before, replica))
        return message

    def _stage(self, before: NodePlan, replica: replica_pb2.Replica) -> pb.PipelineStage:
        delivery = before.deliveries[0]
        spec = delivery.node.spec
        assert spec is not None, "only the source has no spec"
        return pb.PipelineStage(
            node=spec.name,
            interface=spec.interface,
            input_group=delivery.group,
            routes=[pb.PipelineRoute(output_field=r.source, input_field=r.target) for r in delivery.routes],
            required_fields=sorted(delivery.required),
            fails_when_partial=spec.on_impossible is OnImpossible.FAIL,
            replica=replica,
            yield_window=self._window(spec),
            activation_window=ACTIVATION_WINDOW,
        )

    def _window(self, spec: NodeSpec) -> int:
        return spec.yield_window or self._yield_window
