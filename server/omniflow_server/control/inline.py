"""Runs inline nodes in the control plane: no hop, no serialization, the same rules as in a role process.

Coroutines run on the loop; plain functions run in a bounded pool of threads. What is CPU-heavy belongs in a role.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from omniflow.activation import Activation
from omniflow.graph.v1 import graph_event_pb2
from omniflow.interface import Context, Inputs, Interface, Outputs
from omniflow.large_values import ValueFetcher, decode
from omniflow.threads import ThreadPool
from omniflow.values import Value
from omniflow_core.control.commands import Facet, StartActivation
from omniflow_core.control.events import ActivationAccepted, ActivationFailed, ActivationFinished, ActivationYielded
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_server.control.carried import CarriedValue, data_of
from omniflow_server.control.tasks import BackgroundTasks

if TYPE_CHECKING:
    from omniflow_server.control.call import Call

log = logging.getLogger(__name__)


ACTIVATIONS_PER_NODE = 64
"""Activations of one node of one call that run at the same time. The rest wait and are not accepted, so their producers
wait too. A bound per interface would let one slow reader hold up every other call, and one for all nodes of a call would let
producers take the places that their consumers need."""

_Place = tuple[str, str]
"""A call and a node of it."""


class InlineExecutor:
    """Hosts the inline interfaces of this process."""

    def __init__(
        self, *, tasks: BackgroundTasks, fetcher: ValueFetcher, threads: ThreadPool, yield_window: int, byte_credit: int
    ) -> None:
        self._tasks = tasks
        self._fetcher = fetcher
        self._threads = threads
        self._yield_window = yield_window
        self._byte_credit = byte_credit
        self._interfaces: dict[str, Interface] = {}
        self._setup = asyncio.Lock()
        self._activations: dict[tuple[str, int], tuple[Activation, Interface]] = {}
        self._running: dict[_Place, int] = defaultdict(int)
        self._waiting: dict[_Place, dict[int, tuple[Call, StartActivation]]] = defaultdict(dict)
        self._started: list[tuple[Call, int]] = []
        """Activations of which their call has not been told that they were accepted."""

    async def host(self, name: str, interface: type[Interface]) -> None:
        """Sets an interface up, once, also when several graphs that name it are installed at the same time."""
        async with self._setup:
            if name in self._interfaces:
                return
            instance = interface()
            result = instance.setup()
            if inspect.isawaitable(result):
                await result
            self._interfaces[name] = instance

    async def close(self) -> None:
        """Tears the interfaces down."""
        for instance in self._interfaces.values():
            result = instance.teardown()
            if inspect.isawaitable(result):
                await result

    def start(self, call: Call, command: StartActivation) -> None:
        """Runs an activation in a task of its own, or lets it wait until the call has fewer."""
        place = (call.call_id, command.node.name)
        if self._running[place] < ACTIVATIONS_PER_NODE:
            self._run(call, command)
        else:
            self._waiting[place][command.activation_id] = (call, command)

    def _run(self, call: Call, command: StartActivation) -> None:
        self._running[call.call_id, command.node.name] += 1
        spec = command.node.spec
        assert spec is not None
        context = Context(
            call_id=call.call_id,
            activation_id=command.activation_id,
            node=spec.name,
            attempt=command.attempt,
            tenant=call.tenant,
            session=call.session,
            sampling=call.sampling,
            priority=call.priority,
            deadline_unix_s=call.deadline_unix_s,
        )
        needs_fetch = _has_remote(command)
        inputs = Inputs("", {}) if needs_fetch else _joined([_read(facet) for facet in command.facets])
        interface = self._interfaces[spec.interface]
        activation = Activation(
            interface,
            inputs,
            context,
            _CallSink(self, call, command.activation_id, spec.name),
            yield_window=spec.yield_window or self._yield_window,
            byte_credit=self._byte_credit,
            threads=self._threads,
        )
        self._activations[call.call_id, command.activation_id] = activation, interface
        prepare = (lambda: self._fetch(command)) if needs_fetch else None
        self._tasks.create_task(activation.run(prepare))
        if not self._started:
            asyncio.get_running_loop().call_soon(self._accept_soon)
        self._started.append((call, command.activation_id))

    def _accept_soon(self) -> None:
        """Gives those that were started in the last turn of the loop, or in this one, a turn of their own first."""
        started, self._started = self._started, []
        asyncio.get_running_loop().call_soon(self._accept, started)

    def _accept(self, started: list[tuple[Call, int]]) -> None:
        """Tells calls of activations that run on; the end of the others has said that they were accepted."""
        for call, activation_id in started:
            if (call.call_id, activation_id) in self._activations:
                call.handle(ActivationAccepted(activation_id))

    def ack(self, call_id: str, activation_id: int, next_ordinal: int) -> None:
        hosted = self._activations.get((call_id, activation_id))
        if hosted is not None:
            hosted[0].ack(next_ordinal)

    def cancel(self, call_id: str, activation_id: int, reason: str) -> None:
        hosted = self._activations.get((call_id, activation_id))
        if hosted is not None:
            hosted[0].cancel(reason)
            return
        for place, waiting in self._waiting.items():
            if place[0] == call_id and activation_id in waiting:
                call, _ = waiting.pop(activation_id)
                call.activation_ended(activation_id)
                error = ErrorInfo(reason=Reason.CALL_CANCELLED, message=reason)
                call.handle(ActivationFailed(activation_id, error))
                return

    def announce_cancel(self, call: Call) -> None:
        """Calls the hooks of the interfaces that run something for the call, before it is stopped."""
        hosted = (self._activations.get((call.call_id, activation_id)) for activation_id in call.running)
        for interface in {found[1] for found in hosted if found is not None}:
            try:
                interface.on_cancel(call.call_id)
            except Exception as error:
                log.error("on_cancel of %s failed", interface.name, exc_info=error)

    def ended(self, call_id: str, activation_id: int, node: str) -> None:
        """The activation makes room for one that waits."""
        del self._activations[call_id, activation_id]
        place = (call_id, node)
        self._running[place] -= 1
        waiting = self._waiting.get(place)
        if waiting:
            self._run(*waiting.pop(next(iter(waiting))))
        if not waiting:
            self._waiting.pop(place, None)
        if not self._running[place]:
            del self._running[place]

    async def _fetch(self, command: StartActivation) -> Inputs:
        facets = []
        for facet in command.facets:
            fields = {
                name: tuple([await decode(_carried(v).message, self._fetcher) for v in values])
                for name, values in facet.fields.items()
            }
            facets.append(Inputs(facet.group, fields, context=facet.context))
        return _joined(facets)


class _CallSink:
    """Hands what an activation gives to its call."""

    __slots__ = ("_activation_id", "_call", "_executor", "_node")

    def __init__(self, executor: InlineExecutor, call: Call, activation_id: int, node: str) -> None:
        self._executor = executor
        self._call = call
        self._activation_id = activation_id
        self._node = node

    def yielded(self, ordinal: int, outputs: Outputs) -> int:
        size_bytes = sum(map(_size_of, outputs.values()))
        fields = {name: CarriedValue(native=value) for name, value in outputs.items()}
        self._call.handle(ActivationYielded(self._activation_id, ordinal, fields, size_bytes))
        return size_bytes

    def progress(self, completed: int, total: int, message: str) -> None:
        progress = graph_event_pb2.Progress(completed=completed, total=total, message=message)
        self._call.append_event(graph_event_pb2.GraphEvent(node=self._node, progress=progress))

    def answered(self, ordinal: int, outputs: Outputs, context: Context) -> None:
        event = self._finished(ordinal + 1, context)
        event.last = {name: CarriedValue(native=value) for name, value in outputs.items()}
        event.size_bytes = sum(map(_size_of, outputs.values()))
        self._end()
        self._call.handle(event)

    def completed(self, yield_count: int, context: Context) -> None:
        event = self._finished(yield_count, context)
        self._end()
        self._call.handle(event)

    def _finished(self, yield_count: int, context: Context) -> ActivationFinished:
        usage = context.usage
        return ActivationFinished(
            self._activation_id,
            yield_count,
            context.finish_reason,
            usage.input_tokens,
            usage.cached_input_tokens,
            usage.output_tokens,
        )

    def failed(self, error: ErrorInfo, is_retryable: bool) -> None:
        self._end()
        named = dataclasses.replace(error, metadata={"node": self._node, **error.metadata})
        self._call.handle(ActivationFailed(self._activation_id, named))

    def _end(self) -> None:
        self._executor.ended(self._call.call_id, self._activation_id, self._node)
        self._call.activation_ended(self._activation_id)


def _carried(value: object) -> CarriedValue:
    assert isinstance(value, CarriedValue)
    return value


def _has_remote(command: StartActivation) -> bool:
    """A payload must be fetched."""
    for facet in command.facets:
        for values in facet.fields.values():
            for value in values:
                if _carried(value).is_remote:
                    return True
    return False


def _read(facet: Facet) -> Inputs:
    fields = {name: tuple([_carried(value).native for value in values]) for name, values in facet.fields.items()}
    return Inputs(facet.group, fields, context=facet.context)


def _joined(facets: list[Inputs]) -> Inputs:
    """The inputs of an activation: of its only group, or of the facets of a count join."""
    return facets[0] if len(facets) == 1 else Inputs("", {}, facets=tuple(facets))


def _size_of(value: Value) -> int:
    """Bytes of a value, near enough for flow control."""
    data = data_of(value)
    if data is not None:
        return memoryview(data).nbytes
    return len(value) if isinstance(value, str) else 64
