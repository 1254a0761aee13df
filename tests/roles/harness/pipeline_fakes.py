"""One stage of a pipeline between fakes: who starts its activations, the next replica, and the control plane's link.

stage.start(1, "x") ─▶ real host, real sinks ─▶ stage.peers.children      not the last stage
      results(1) ◀──┘                         └▶ stage.control.left       the last one
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, ClassVar, cast

from omniflow.codec.common import value_from_proto
from omniflow.codec.error import status_from_proto
from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.large_values import ValueFetcher, ValueStore
from omniflow.links.outbox import Outbox
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import ValueType
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_roles.harness.execution import Execution
from omniflow_roles.harness.host import RoleHost
from omniflow_roles.harness.peers import PeerActivation, PeerLinks
from omniflow_roles.harness.pipeline_exit import PipelineExit
from omniflow_roles.harness.pipelines import Pipelines
from omniflow_roles.harness.replica import State
from omniflow_roles.harness.sink import ResultSink
from tests.roles.driver import start_command

TEXT = Field(ValueType.TEXT)
EXIT = 1000
"""Handle of the exit."""
BIG = bytes(100_000)
"""More than a frame takes along."""
TOLD = ErrorInfo(reason=Reason.INTERFACE_FAILED, message="the model is gone", metadata={"node": "z"})


def numbered(count: int) -> list[Outputs]:
    """Yields with a number and a large value."""
    return [{"text": str(number), "blob": BIG} for number in range(count)]


class Script(Interface):
    """Does what the test says, for each activation by its text."""

    name = "test.script"
    inputs = groups(text=TEXT)
    outputs: ClassVar = {"text": TEXT, "more": TEXT, "blob": Field(ValueType.BYTES)}
    max_concurrency = 64

    def __init__(self) -> None:
        self.orders: dict[str, asyncio.Queue[Outputs | Exception | None]] = defaultdict(asyncio.Queue)
        self.stopped: list[str] = []
        self.given: dict[str, int] = defaultdict(int)
        """Yields that the activation was let go on from."""

    async def run(self, inputs: Inputs, context: Context) -> Any:
        text = str(inputs["text"])
        try:
            while (order := await self.orders[text].get()) is not None:
                if isinstance(order, Exception):
                    raise order
                yield order
                self.given[text] += 1
        except asyncio.CancelledError:
            self.stopped.append(text)
            raise
        context.usage.output_tokens = self.given[text]
        context.finish_reason = "stop"

    def give(self, text: str, *outputs: Outputs | str) -> None:
        """The activation yields these; a text is the output "text"."""
        for one in outputs:
            self.orders[text].put_nowait({"text": one} if isinstance(one, str) else one)

    def end(self, *texts: str) -> None:
        """The activations give nothing more."""
        for text in texts:
            self.orders[text].put_nowait(None)

    def fail(self, text: str) -> None:
        """The activation raises."""
        error = OmniFlowError(Reason.INTERFACE_FAILED, "it broke", metadata={"node": "own"})
        self.orders[text].put_nowait(error)


class Shout(Interface):
    """The text in capitals: an activation that answers."""

    name = "test.shout"
    inputs = groups(text=TEXT)
    outputs: ClassVar = {"text": TEXT}
    max_concurrency = 64

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"text": str(inputs["text"]).upper()}


class FakeLink:
    """What is queued is read as results. Implements `LinkEnd` and `ExitLink`."""

    def __init__(self) -> None:
        self.pump = Outbox()
        self.retained_calls: list[str] = []
        self.exits: dict[int, PipelineExit] = {}
        self._results: list[messages.ExecuteResult] = []

    def forget(self) -> None:
        """What was queued is not wanted."""
        self.results().clear()

    def results(self) -> list[messages.ExecuteResult]:
        """All so far."""
        self.pump.wake()
        while (message := self.pump.take()) is not None:
            self._results.extend(messages.ExecuteResponse.FromString(message).results)
        return self._results

    @property
    def left(self) -> list[tuple[int, tuple[int, ...], str]]:
        """Ordinals, paths and texts of what came under the exit's handle."""
        outputs = [getattr(result, "yield") for result in self.results() if result.handle == EXIT]
        return [(o.ordinal, tuple(o.origin_path), str(value_from_proto(o.fields["text"]))) for o in outputs]

    @property
    def texts(self) -> list[str]:
        return [text for _, _, text in self.left]

    def ack(self, next_ordinal: int) -> None:
        self.exits[EXIT].acknowledge(next_ordinal)

    def accepted(self, sink: ResultSink) -> None: ...
    def ended(self, handle: int) -> None: ...
    def retained(self, call_id: str) -> None:
        self.retained_calls.append(call_id)

    def open_exit(self, handle: int, end: PipelineExit) -> None:
        self.exits[handle] = end

    def close_exit(self, handle: int) -> None:
        self.exits.pop(handle, None)


class FakeChild:
    """An activation that was started on the next replica; the test is that replica."""

    def __init__(
        self, start: messages.StartActivation, activation: PeerActivation, ended: Callable[[], object]
    ) -> None:
        self.start = start
        self.cancelled = ""
        self._activation = activation
        self._ended = ended

    @property
    def path(self) -> tuple[int, ...]:
        return tuple(self.start.pipeline.origin_path)

    @property
    def text(self) -> str:
        (value,) = self.start.facets[0].fields["text"].values
        return str(value_from_proto(value.value))

    def accept(self) -> None:
        self._activation.accepted()

    def complete(self, **fields: Any) -> None:
        self._ended()
        self._activation.completed(messages.ActivationCompleted(**fields))

    def fail(self, error: ErrorInfo = TOLD) -> None:
        self._ended()
        self._activation.failed(error)

    def lose(self) -> None:
        self._ended()
        self._activation.lost("next/next-0")

    def cancel(self, reason: str) -> None:
        self._ended()
        self.cancelled = reason


class FakePeers:
    """Stands for `PeerLinks` and the one `PeerLink`."""

    def __init__(self) -> None:
        self.is_over = False
        self.children: list[FakeChild] = []
        self._alive: dict[int, FakeChild] = {}
        self.links = 0
        self._handles = itertools.count(1)

    @property
    def texts(self) -> list[str]:
        """What was started, in order."""
        return [child.text for child in self.children]

    @property
    def alive(self) -> list[str]:
        return [child.text for child in self._alive.values()]

    def link_to(self, replica: replica_pb2.Replica) -> FakePeers:
        self.links += 1
        self.is_over = False
        return self

    def start(self, start: bytes, activation: PeerActivation) -> int:
        handle = next(self._handles)
        child = FakeChild(messages.StartActivation.FromString(start), activation, partial(self._alive.pop, handle))
        self.children.append(child)
        self._alive[handle] = child
        return handle

    def cancel(self, handle: int, reason: str) -> None:
        if handle in self._alive:
            self._alive[handle].cancel(reason)


class FakeStage:
    """The stage under test."""

    def __init__(self, host: RoleHost, pipelines: Pipelines, store: ValueStore, script: Script) -> None:
        self.host = host
        self.pipelines = pipelines
        self.store = store
        self.script = script
        self.peers: FakePeers
        self.control: FakeLink
        self.upstream = FakeLink()
        self.executions: dict[int, Execution] = {}

    def start(
        self, handle: int, text: str, *, interface: str = "test.script", call_id: str = "call", **fields: Any
    ) -> Execution | None:
        """Starts an activation; `fields` are those of the pipeline, and of the start with `start_` before them."""
        options = {name.removeprefix("start_"): fields.pop(name) for name in list(fields) if name.startswith("start_")}
        given: dict[str, Any] = {"entry_activation_id": 5, "origin_path": [7]} | fields
        message = messages.Pipeline(**given)
        command = start_command(handle, interface, {"text": text}, call_id=call_id, pipeline=message, **options)
        sink = ResultSink(handle, command.start.activation, self.upstream, self.store)
        execution = self.host.admit(command.start, sink)
        if execution is not None:
            self.executions[handle] = execution
        return execution

    def results(self, handle: int) -> list[messages.ExecuteResult]:
        """What was told of an activation to who has started it."""
        return [result for result in self.upstream.results() if result.handle == handle]

    def end(self, handle: int) -> messages.ActivationCompleted | None:
        """How an activation has completed; None while it has not."""
        results = self.results(handle)
        assert all(result.WhichOneof("result") == "completed" for result in results), results
        return results[0].completed if results else None

    def error(self, handle: int) -> tuple[ErrorInfo, bool] | None:
        """How an activation has failed; None while it has not."""
        failures = [result.failed for result in self.results(handle) if result.WhichOneof("result") == "failed"]
        assert len(failures) <= 1
        return (status_from_proto(failures[0].status), failures[0].is_retryable) if failures else None

    @property
    def is_idle(self) -> bool:
        load = self.host.load()
        return not (load.running or load.waiting)

    async def settle(self) -> None:
        """Until nothing goes on by itself any more."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def is_over(self) -> None:
        """Nothing is left of what was started."""
        async with asyncio.timeout(5):
            await self.host.wait_idle()
        assert self.is_idle


def next_stage(*routes: tuple[str, str], **fields: Any) -> messages.PipelineStage:
    """A stage on another replica; without routes it takes "text" as "text"."""
    carried = routes or (("text", "text"),)
    options: dict[str, Any] = {
        "node": "z",
        "interface": "test.z",
        "input_group": "main",
        "routes": [messages.PipelineRoute(output_field=o, input_field=i) for o, i in carried],
        "required_fields": ["text"],
        "fails_when_partial": True,
        "replica": replica_pb2.Replica(role="next", replica_id="next-0", incarnation_id="next-life"),
        "yield_window": 9,
        "activation_window": 64,
    }
    return messages.PipelineStage(**(options | fields))


def to_exit(**fields: Any) -> messages.PipelineExit:
    """The exit of a pipeline."""
    options: dict[str, Any] = {"incarnation_id": "control", "handle": EXIT, "fields": ["text"], "yield_window": 64}
    return messages.PipelineExit(**(options | fields))


def giving_on(*routes: tuple[str, str], exit_handle: int = EXIT, **fields: Any) -> dict[str, Any]:
    """The pipeline of an activation that is not of the last stage."""
    return {"stages": [next_stage(*routes, **fields)], "exit": to_exit(handle=exit_handle)}


def leaving(**fields: Any) -> dict[str, Any]:
    """The pipeline of an activation of the last stage."""
    return {"exit": to_exit(**fields), "stage": 1}


@contextlib.asynccontextmanager
async def fake_stage(*, max_activations: int = 0, interfaces: Sequence[Interface] = ()) -> AsyncIterator[FakeStage]:
    """A host between fakes."""
    store = ValueStore(endpoint="unix:/nowhere", incarnation_id="own-life", budget_bytes=1 << 24)
    peers, control = FakePeers(), FakeLink()
    pipelines = Pipelines(cast("PeerLinks", peers), store, lambda owner: control if owner == "control" else None)
    script = Script()
    async with (
        ValueFetcher(local=store) as fetcher,
        RoleHost(
            [script, Shout(), *interfaces],
            fetcher=fetcher,
            pipelines=pipelines,
            max_activations=max_activations,
            cleanup_grace_s=1.0,
        ) as host,
    ):
        host.state = State.READY
        stage = FakeStage(host, pipelines, store, script)
        stage.peers, stage.control = peers, control
        yield stage
