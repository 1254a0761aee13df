"""Callers that make one call after another over raw RPCs, and check what each of them is told.

A call is started with a request id of its own. When its stream breaks without a terminal event it is resumed, or, if it
was never accepted, started again with the same id, at the next control plane. Whatever happens it must come to exactly one
end, and its events must have gapless numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from omniflow.codec.error import error_from_rpc, status_from_proto
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.graph.v1 import graph_service_pb2_grpc
from omniflow_core.errors import Code, OmniFlowError, Reason

GIVE_UP_S = 30.0
RETRY_S = 0.05
CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
TRY_AGAIN = frozenset({Reason.DRAINING, Reason.STORE_UNAVAILABLE})
"""Refusals with a hint: the call has not begun."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of one call."""

    kind: str
    begin_s: float
    end_s: float = 0.0
    terminals: int = 0
    values: int = 0
    error: Reason | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    """Of the error."""
    texts: list[str] = field(default_factory=list)
    """What came in the output `text`."""
    faults: list[str] = field(default_factory=list)
    call_id: str = ""

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


class Targets:
    """Channels to the control planes of a cluster."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.channels = [grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) for target in targets]
        self.stubs: list[Any] = [graph_service_pb2_grpc.GraphServiceStub(channel) for channel in self.channels]

    async def close(self) -> None:
        for channel in self.channels:
            await channel.close()


class Caller:
    """Makes calls; `first` is the control plane that it prefers."""

    def __init__(self, targets: Targets, first: int) -> None:
        self._targets = targets
        self._first = first

    async def call(self, kind: str, *, session: str = "", **inputs: Any) -> Outcome:
        """One call to its end."""
        request = pb.StreamCallRequest(graph="graphs/chaos")
        request.call.request_id = str(uuid.uuid4())
        request.call.session = session
        for name, value in inputs.items():
            if isinstance(value, str):
                request.call.inputs[name].text = value
            else:
                request.call.inputs[name].json.struct_value.update(value)
        outcome = Outcome(kind=kind, begin_s=time.monotonic())
        run = _Run(request, outcome)
        for stub in itertools.islice(itertools.cycle(self._targets.stubs), self._first, None):
            if await run.attempt(stub):
                break
            if time.monotonic() - outcome.begin_s > GIVE_UP_S:
                outcome.faults.append("it did not end")
                break
            await asyncio.sleep(RETRY_S)
        outcome.end_s = time.monotonic()
        if outcome.terminals > 1:
            outcome.faults.append(f"{outcome.terminals} terminal events")
        return outcome


class _Run:
    """A call over one RPC after another."""

    def __init__(self, request: pb.StreamCallRequest, outcome: Outcome) -> None:
        self._request = request
        self._outcome = outcome
        self._token = ""
        self._sequence = 0

    async def attempt(self, stub: Any) -> bool:
        """One RPC. True when the call has ended."""
        try:
            async for response in self._open(stub):
                for event in response.events:
                    self._take(event)
        except grpc.aio.AioRpcError as broken:
            return self._ended_by(error_from_rpc(broken))
        return self._outcome.terminals > 0

    def _open(self, stub: Any) -> Any:
        if self._token:
            return stub.ResumeCall(pb.ResumeCallRequest(resume_token=self._token, after_sequence=self._sequence))
        return stub.StreamCall(self._request)

    def _take(self, event: Any) -> None:
        kind, outcome = event.WhichOneof("event"), self._outcome
        if kind == "heartbeat":
            return
        if outcome.terminals:
            outcome.faults.append(f"{kind} after the terminal event")
        if event.sequence != self._sequence + 1:
            outcome.faults.append(f"event {event.sequence} after {self._sequence}")
        self._sequence = event.sequence
        if kind == "accepted":
            self._token, outcome.call_id = event.accepted.resume_token, event.accepted.call_id
        elif kind == "value":
            outcome.values += 1
            if event.field == "text":
                outcome.texts.append(event.value.text)
        elif kind in ("finished", "failed"):
            outcome.terminals += 1
            if kind == "failed":
                failure = status_from_proto(event.failed.status)
                outcome.error, outcome.metadata = failure.reason, dict(failure.metadata)

    def _ended_by(self, error: OmniFlowError) -> bool:
        """Whether the status of an RPC says that nothing more will come."""
        outcome = self._outcome
        if outcome.terminals:
            return True
        if not error.is_stated:
            if error.code not in (Code.UNAVAILABLE, Code.UNKNOWN, Code.INTERNAL, Code.CANCELLED):
                outcome.faults.append(f"a status of nobody: {error}")
                return True
            return False
        if error.reason in TRY_AGAIN:
            return False
        outcome.terminals += 1  # a call that was refused, or is lost: the status is its end
        outcome.error = error.reason
        if self._token:
            outcome.faults.append(f"an end without an event: {error.reason}")
        return True


@dataclass(slots=True)
class Load:
    """All calls of a steady load."""

    outcomes: list[Outcome] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    is_over: bool = False

    def faults(self) -> list[str]:
        return [f"{o.kind} {o.call_id}: {fault}" for o in self.outcomes for fault in o.faults]

    def unended(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.terminals != 1]

    def errors(self, kind: str = "") -> Counter[str]:
        """How many calls ended with which error, those that ended well aside."""
        return Counter(str(o.error) for o in self.outcomes if o.error is not None and kind in ("", o.kind))

    def count(self, kind: str = "") -> int:
        return sum(1 for outcome in self.outcomes if kind in ("", outcome.kind))


@contextlib.asynccontextmanager
async def load(targets: Sequence[str], *, callers: int = 3, stream_s: float = 0.5) -> AsyncIterator[Load]:
    """A steady load: for each of `callers` one that echoes, one that echoes in a session, one that streams."""
    made, opened = Load(), Targets(targets)

    async def go_on(number: int, kind: str) -> None:
        caller = Caller(opened, number % len(targets))
        for turn in itertools.count():
            if made.is_over:
                return
            made.outcomes.append(await _one(caller, kind, number, turn, stream_s))
            await asyncio.sleep(0.01)

    try:
        made.tasks = [
            asyncio.ensure_future(go_on(number, kind))
            for number in range(callers)
            for kind in ("echo", "session", "stream")
        ]
        yield made
        made.is_over = True
        async with asyncio.timeout(GIVE_UP_S + 10):
            await asyncio.gather(*made.tasks)
    finally:
        for task in made.tasks:
            task.cancel()
        await opened.close()


async def _one(caller: Caller, kind: str, number: int, turn: int, stream_s: float) -> Outcome:
    if kind == "stream":
        outcome = await caller.call(kind, parameters={"count": 50, "rate_per_s": 50 / stream_s})
        wanted = 50
    else:
        session = f"sessions/{number}" if kind == "session" else ""
        text = f"{kind} {number}.{turn}"
        outcome = await caller.call(kind, session=session, text=text)
        wanted = 1
        if outcome.error is None and outcome.texts != [text]:
            outcome.faults.append(f"{outcome.texts} for {text!r}")
    if outcome.error is None and outcome.values != wanted:
        outcome.faults.append(f"{outcome.values} values")
    return outcome
