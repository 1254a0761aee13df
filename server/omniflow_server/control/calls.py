"""All calls of this process: acceptance, request ids, sessions, clients that come and go, and what is kept of ended ones.

accept ─▶ queued (session) ─▶ running ─▶ ended, kept for resume ─▶ forgotten
                no client attached for detach_grace: cancelled with CLIENT_LOST
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf import timestamp_pb2

from omniflow.codec.graph import sampling_from_proto
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.interface import Sampling
from omniflow.large_values import ValueStore
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.control.calls import Admission
from omniflow_core.control.events import CallAdmitted, InputArrived
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_core.graph.plan import GraphPlan
from omniflow_server.control.call import Call, Dispatcher
from omniflow_server.control.carried import CarriedValue
from omniflow_server.control.catalog import Catalog, CatalogEntry
from omniflow_server.control.event_log import LogReader
from omniflow_server.control.inputs import InputLine, check_inputs
from omniflow_server.control.questions import count_of, digest_of
from omniflow_server.control.recording import CallRecorder
from omniflow_server.control.resume_tokens import ResumeTokens
from omniflow_server.control.settings import ControlSettings
from omniflow_server.control.tasks import BackgroundTasks

log = logging.getLogger(__name__)

MAX_DETACH_GRACE_S = 300.0
STORE_LIMIT_BYTES = 64 * 1024 * 1024
"""Bytes that one call's buckets, chunks and held events may store before its producers wait."""
MAX_ACTIVATIONS = 1_000_000
"""Activations of one call; more is a loop that does not end."""
MAX_ATTEMPTS = 3
"""Attempts of one activation whose replicas are lost."""
RESUME_TOKEN_TTL_S = 24 * 3600
KEPT_REQUEST_IDS = 16_384
"""Request ids of forgotten calls that are still recognised: a repeat must not run the call again."""
_ID_BYTES = 12
"""Of a call's identifier, besides the epoch of its owner."""
KEPT_CALLS = 1024
"""Ended calls kept at most, and bytes of their events and records: short calls are many, and memory is bounded."""
KEPT_BYTES = 12 * 1024 * 1024


@dataclass(slots=True, kw_only=True, eq=False)
class _Record:
    """What the table knows of a call beside the call itself."""

    call: Call
    graph: graph_spec_pb2.GraphSpec
    """The definition that the call runs; shared with the catalog."""
    inputs: InputLine | None
    """None once the call has ended."""
    request_key: tuple[str, str]
    digest: bytes
    is_admitted: bool = False
    start_inputs: dict[str, value_pb2.Value] | None = None
    """The single inputs, once they are complete; the call runs when it is admitted too."""
    detach_timer: asyncio.TimerHandle | None = None
    deadline_timer: asyncio.TimerHandle | None = None
    end_s: float = 0.0
    kept_bytes: int = 0
    """Bytes of its log and its record when it ended; they only become fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCall:
    """A call that runs or is kept."""

    call: Call
    graph: graph_spec_pb2.GraphSpec
    end_unix_s: float | None
    """When its terminal event came; None before."""


class CallListener(Protocol):
    """Who keeps books on the calls of this process."""

    def accepted(self, call: Call) -> None: ...

    def ended(self, call: Call) -> None: ...


class CallTable:
    """The calls of a control-plane process. All methods on the loop's thread."""

    def __init__(
        self,
        *,
        settings: ControlSettings,
        catalog: Catalog,
        dispatcher: Dispatcher,
        store: ValueStore,
        tokens: ResumeTokens,
        tasks: BackgroundTasks,
        epoch: Callable[[], int] = lambda: 0,
        check_room: Callable[[GraphPlan, str], None] = lambda plan, tenant: None,
    ) -> None:
        """`epoch` gives the life of this process that owns new calls; `check_room` raises for graphs that it has no room
        for now, given the tenant."""
        self._check_room = check_room
        self._epoch = epoch
        self.listener: CallListener | None = None
        """Is told of every call that is accepted and of every one that ends."""
        self._settings = settings
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._store = store
        self._tokens = tokens
        self._tasks = tasks
        self.scheduler_options: Mapping[str, int] = {
            "yield_window": settings.yield_window,
            "byte_credit": settings.byte_credit,
            "store_limit_bytes": STORE_LIMIT_BYTES,
            "max_activations": MAX_ACTIVATIONS,
            "max_attempts": MAX_ATTEMPTS,
        }
        """Numbers that every scheduler is made with; with them a record can be run again."""
        self._admission = Admission(max_calls=settings.max_calls, max_calls_per_tenant=settings.max_calls_per_tenant)
        self._records: dict[str, _Record] = {}
        self._by_request: dict[tuple[str, str], _Record] = {}
        self._past_requests: OrderedDict[bytes, bytes] = OrderedDict()
        """Call identifiers (20 bytes) by request key (16 bytes), of calls whose events are no longer kept."""
        self._ended: OrderedDict[str, _Record] = OrderedDict()
        self._ended_bytes = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_draining = False

    @property
    def active_count(self) -> int:
        """Calls that have not ended."""
        return len(self._admission)

    # --- acceptance -------------------------------------------------------------------------------------------------

    def new_id(self) -> str:
        """An identifier for a call: it names the life that owns it."""
        return f"{secrets.token_hex(_ID_BYTES)}-{self._epoch():x}"

    def knows_request(self, tenant: str, request_id: str) -> bool:
        """The request id stands for a call of this process, running or past."""
        key = (tenant, request_id)
        return bool(request_id) and (key in self._by_request or _short(key) in self._past_requests)

    def knows(self, call_id: str) -> bool:
        """The call is one of this process, and is kept."""
        return call_id in self._records

    def used_replicas(self) -> Iterator[object]:
        """Replicas that calls which have not ended were given to; one may come more than once."""
        return (link for record in self._records.values() for link in record.call.used_replicas)

    def check(self, graph: str, spec: graph_service_pb2.CallSpec, *, tenant: str) -> None:
        """Raises what `accept` would raise now for a new call."""
        entry = self._catalog.get(graph)
        check_inputs(entry.plan, spec, max_payload_bytes=self._settings.max_payload_bytes)
        self._admission.check_limits(tenant)
        self._check_room(entry.plan, tenant)

    def accept(
        self, graph: str, spec: graph_service_pb2.CallSpec, *, tenant: str, call_id: str = "", fence: int = 0
    ) -> tuple[Call, bool]:
        """A new call, or the one that the request id stands for (then True). Raises typed errors without a trace.

        `fence` is that of the session's lease; roles refuse what comes under a lower one than they have seen.
        """
        self.forget_ended()
        digest = digest_of_request(graph, spec) if spec.request_id else b""
        known = self._by_request.get((tenant, spec.request_id)) if spec.request_id else None
        if known is not None:
            return _joined(known, digest), True
        past = self._past_requests.get(_short((tenant, spec.request_id))) if spec.request_id else None
        if past is not None:
            raise events_trimmed(_unpacked(past))
        if self.is_draining:
            raise draining()
        call_id = call_id or self.new_id()
        entry = self._catalog.pick(graph, spec.session or call_id)
        check_inputs(entry.plan, spec, max_payload_bytes=self._settings.max_payload_bytes)
        self._check_room(entry.plan, tenant)
        arrival = self._admission.arrive(call_id, tenant=tenant, session=spec.session, supersede=spec.supersede)
        try:
            record = self._make(call_id, tenant, spec, entry, digest, fence)
            self._log_accepted(record.call)
            assert record.inputs is not None, "a call cannot end before it has begun"
            record.inputs.start(spec)  # before others are ended for it: it may still be refused
            for superseded in reversed(arrival.superseded):  # the newest first: none of them may run in between
                self._records[superseded].call.cancel(
                    Reason.CALL_SUPERSEDED, f"Call {call_id} of the same session superseded this one."
                )
            record.is_admitted = record.is_admitted or arrival.is_admitted
        except BaseException:
            self._abandon(call_id)
            raise
        if self.listener is not None:
            self.listener.accepted(record.call)
        self._run_if_ready(record)
        return record.call, False

    def _make(
        self,
        call_id: str,
        tenant: str,
        spec: graph_service_pb2.CallSpec,
        entry: CatalogEntry,
        digest: bytes,
        fence: int,
    ) -> _Record:
        plan = entry.plan
        recorder = CallRecorder(limit_bytes=self._settings.call_record_size_bytes, began_ns=time.monotonic_ns())
        options: dict[str, Any] = {
            **self.scheduler_options,
            "count_of": recorder.counting(count_of),
            "digest_of": recorder.digesting(digest_of),
        }
        call = Call(
            call_id=call_id,
            tenant=tenant,
            spec=spec,
            plan=plan,
            scheduler=CallScheduler(plan, **options),
            recorder=recorder,
            log_limit_bytes=self._settings.event_log_size_bytes,
            sampling=sampling_from_proto(spec.sampling) if spec.HasField("sampling") else Sampling(),
            dispatcher=self._dispatcher,
            spawn=self._tasks.create_task,
            on_terminal=self._on_terminal,
            fence=fence,
        )
        inputs = InputLine(
            plan=plan,
            call_id=call_id,
            store=self._store,
            max_payload_bytes=self._settings.max_payload_bytes,
            on_started=lambda values: self._inputs_complete(call_id, values),
            deliver=lambda name, value, is_last: _deliver(call, name, value, is_last),
            has_room=lambda: call.has_input_room,
        )
        if plan.streaming_inputs:
            call.when_input_room(inputs.move)
        record = _Record(
            call=call, graph=entry.message, inputs=inputs, request_key=(tenant, spec.request_id), digest=digest
        )
        self._records[call_id] = record
        if spec.request_id:
            self._by_request[record.request_key] = record
        self._idle.clear()
        deadline_s = call.deadline_unix_s
        if deadline_s is not None:
            record.deadline_timer = asyncio.get_running_loop().call_later(
                max(0.0, deadline_s - time.time()),
                call.cancel,
                Reason.DEADLINE_EXCEEDED,
                "The call's deadline has passed.",
            )
        return record

    def _log_accepted(self, call: Call) -> None:
        expire_s = int(time.time()) + RESUME_TOKEN_TTL_S
        token = self._tokens.issue(tenant=call.tenant, call_id=call.call_id, expire_unix_s=expire_s)
        event = graph_event_pb2.GraphEvent()
        event.accepted.call_id = call.call_id
        event.accepted.resume_token = token
        event.accepted.resume_expire_time.CopyFrom(timestamp_pb2.Timestamp(seconds=expire_s))
        call.append_event(event)

    def _abandon(self, call_id: str) -> None:
        """Takes back a call whose inputs were refused half-way; its caller gets the error instead of events."""
        record = self._records.pop(call_id, None)
        if record is not None:
            self._by_request.pop(record.request_key, None)
            _cancel_timers(record)
        self._store.release_call(call_id)
        self._admit_next(self._admission.end(call_id))
        if not len(self._admission):
            self._idle.set()

    # --- running ------------------------------------------------------------------------------------------------------

    def _inputs_complete(self, call_id: str, values: dict[str, value_pb2.Value]) -> None:
        record = self._records[call_id]
        record.start_inputs = values
        self._run_if_ready(record)

    def _admit_next(self, call_id: str | None) -> None:
        record = self._records.get(call_id) if call_id is not None else None
        if record is not None:
            record.is_admitted = True
            self._run_if_ready(record)

    def _run_if_ready(self, record: _Record) -> None:
        if not record.is_admitted or record.start_inputs is None or record.call.has_ended:
            return
        values, record.start_inputs = record.start_inputs, None
        call = record.call
        call.append_event(graph_event_pb2.GraphEvent(started=graph_event_pb2.CallStarted()))
        carried = {name: CarriedValue(message=value) for name, value in values.items()}
        opened = set(call.spec.open_inputs) | (set(call.spec.inputs) & set(call.plan.streaming_inputs))
        call.forget_inputs()
        call.handle(CallAdmitted(carried, frozenset(opened)))
        if record.inputs is not None:
            record.inputs.release()

    # --- inputs of running calls --------------------------------------------------------------------------------------

    def push_input(self, call_id: str, message: graph_service_pb2.StreamInput, *, tenant: str, path: str) -> None:
        """One more value of a streaming input."""
        self._inputs_of(call_id, tenant).push(message, path)

    def add_chunk(self, call_id: str, chunk: tensor_pb2.PayloadChunk, *, tenant: str, path: str) -> None:
        """A piece of an announced payload."""
        self._inputs_of(call_id, tenant).add_chunk(chunk, path)

    def _inputs_of(self, call_id: str, tenant: str) -> InputLine:
        record = self._find(call_id, tenant)
        if not record.call.takes_input or record.inputs is None:
            raise OmniFlowError(Reason.CALL_ENDED, f"Call {call_id} has ended; it takes no more input.")
        return record.inputs

    # --- readers --------------------------------------------------------------------------------------------------------

    def attach(self, call: Call, after_sequence: int, notify: Callable[[LogReader], None]) -> LogReader:
        """A reader of a call's events; while there is one, the call is attached."""
        reader = call.read(after_sequence, notify)
        record = self._records.get(call.call_id)
        if record is not None and record.detach_timer is not None:
            record.detach_timer.cancel()
            record.detach_timer = None
        return reader

    def detach(self, call: Call, reader: LogReader) -> None:
        """The reader's stream is gone. The last one starts the grace."""
        reader.close()
        record = self._records.get(call.call_id)
        if record is None or call.has_ended or call.log.reader_count:
            return
        grace_s = self._settings.detach_grace_s
        if call.spec.HasField("detach_grace"):
            grace_s = min(MAX_DETACH_GRACE_S, call.spec.detach_grace.ToMilliseconds() / 1000)
        record.detach_timer = asyncio.get_running_loop().call_later(
            grace_s, call.cancel, Reason.CLIENT_LOST, f"No client was attached for {grace_s:g} s."
        )

    def resume(self, token: str, *, tenant: str) -> Call:
        """The call of a resume token. A call of a process that is gone answers OWNER_LOST."""
        call_id = self._tokens.check(token, tenant=tenant, now_unix_s=time.time())
        self.forget_ended()
        record = self._records.get(call_id)
        if record is None:
            raise owner_lost(call_id)
        return record.call

    def id_in_token(self, token: str, *, tenant: str) -> str:
        """The call that a resume token is for, of whichever process. Raises INVALID_RESUME_TOKEN."""
        return self._tokens.check(token, tenant=tenant, now_unix_s=time.time())

    def find(self, call_id: str, *, tenant: str) -> Call:
        """A call of the tenant. Another tenant's call is as unknown as one that never was."""
        return self._find(call_id, tenant).call

    def _find(self, call_id: str, tenant: str) -> _Record:
        self.forget_ended()
        record = self._records.get(call_id)
        if record is None or record.call.tenant != tenant:
            raise OmniFlowError(
                Reason.UNKNOWN_CALL,
                f"There is no call {call_id!r}, or its events have expired; ListCalls names those that are known.",
            )
        return record

    # --- sight ----------------------------------------------------------------------------------------------------------

    def known(self, *, tenant: str) -> dict[str, KnownCall]:
        """The calls of a tenant, by identifier."""
        self.forget_ended()
        return {call_id: _known(r) for call_id, r in self._records.items() if r.call.tenant == tenant}

    def find_known(self, call_id: str, *, tenant: str) -> KnownCall:
        """As `find`, with what the table knows of the call."""
        return _known(self._find(call_id, tenant))

    # --- ends -------------------------------------------------------------------------------------------------------------

    def cancel(self, *, call_id: str, request_id: str, tenant: str, reason: str) -> bool:
        """Ends a call for its caller. False for one that is unknown or has ended."""
        record = self._records.get(call_id) if call_id else self._by_request.get((tenant, request_id))
        if record is None or record.call.tenant != tenant:
            return False
        message = f"The caller cancelled the call: {reason}" if reason else "The caller cancelled the call."
        return record.call.cancel(Reason.CALL_CANCELLED, message)

    def _on_terminal(self, call: Call) -> None:
        record = self._records.get(call.call_id)
        if record is not None:
            _cancel_timers(record)
            call.forget_inputs()
            if record.inputs is not None:
                record.inputs.close()
                record.inputs = None
            record.end_s = time.monotonic()
            record.kept_bytes = call.log.kept_bytes + call.recorder.seal(call.scheduler.active_count)
            self._ended[call.call_id] = record
            self._ended_bytes += record.kept_bytes
            if self.listener is not None:
                self.listener.ended(call)
        self.forget_ended()
        self._admit_next(self._admission.end(call.call_id))
        if not len(self._admission):
            self._idle.set()

    def forget_ended(self) -> None:
        """Drops ended calls that are too old or too many, oldest first."""
        limit_s = time.monotonic() - self._settings.ended_call_ttl_s
        while self._ended:
            record = next(iter(self._ended.values()))
            is_over = len(self._ended) > KEPT_CALLS or self._ended_bytes > KEPT_BYTES
            if not is_over and record.end_s > limit_s:
                return
            call = record.call
            del self._ended[call.call_id]
            self._ended_bytes -= record.kept_bytes
            self._records.pop(call.call_id, None)
            if self._by_request.get(record.request_key) is record:
                del self._by_request[record.request_key]
                self._remember(record)

    def _remember(self, record: _Record) -> None:
        self._past_requests[_short(record.request_key)] = _packed(record.call.call_id)
        if len(self._past_requests) > KEPT_REQUEST_IDS:
            self._past_requests.popitem(last=False)

    async def drain(self, timeout_s: float) -> None:
        """Takes no new call, waits for those that run, then ends the rest."""
        self.is_draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            self.lose_all("The process that owned the call shut down.")

    def lose_all(self, message: str) -> None:
        """Ends every call with OWNER_LOST."""
        for record in reversed(list(self._records.values())):  # the newest first: no queued one may run in between
            record.call.cancel(Reason.OWNER_LOST, message)

    def lose_session(self, tenant: str, session: str, message: str) -> None:
        """Ends the calls of a session with OWNER_LOST."""
        for record in reversed(list(self._records.values())):
            if (record.call.tenant, record.call.session) == (tenant, session):
                record.call.cancel(Reason.OWNER_LOST, message)

    def check_integrity(self) -> None:
        """Recomputes the invariants. For tests and idle drivers."""
        self._admission.check_integrity()
        assert set(self._ended) <= set(self._records), "an ended call is not on record"
        assert self._ended_bytes == sum(r.kept_bytes for r in self._ended.values()), "kept bytes are miscounted"
        assert self.active_count == len(self._records) - len(self._ended), "calls are miscounted"


def _known(record: _Record) -> KnownCall:
    ago_s = time.monotonic() - record.end_s
    end_unix_s = time.time() - ago_s if record.call.has_ended else None
    return KnownCall(call=record.call, graph=record.graph, end_unix_s=end_unix_s)


def _short(request_key: tuple[str, str]) -> bytes:
    """A request key in 16 bytes: tens of thousands are kept."""
    return hashlib.blake2b("\0".join(request_key).encode(), digest_size=16).digest()


def _packed(call_id: str) -> bytes:
    """A call's identifier in 20 bytes."""
    drawn, _, epoch = call_id.partition("-")
    return int(epoch, 16).to_bytes(8, "big") + bytes.fromhex(drawn)


def _unpacked(packed: bytes) -> str:
    return f"{packed[8:].hex()}-{int.from_bytes(packed[:8], 'big'):x}"


def owner_lost(call_id: str) -> OmniFlowError:
    """The error of whoever asks for a call whose process is gone."""
    return OmniFlowError(
        Reason.OWNER_LOST,
        f"Call {call_id} is not known any more: its process is gone, or its events have expired.",
        metadata={"call_id": call_id},
    )


def events_trimmed(call_id: str) -> OmniFlowError:
    """The error of whoever repeats the request id of a call that has ended and was forgotten."""
    return OmniFlowError(
        Reason.EVENTS_TRIMMED,
        f"The request id belongs to call {call_id}, which has ended; its events are no longer kept.",
        metadata={"call_id": call_id},
    )


def draining() -> OmniFlowError:
    """The error of a process that shuts down."""
    return OmniFlowError(Reason.DRAINING, "This process is shutting down; try again.", retry_after_s=1.0)


def digest_of_request(graph: str, spec: graph_service_pb2.CallSpec) -> bytes:
    """What two requests with one id are told apart by."""
    return hashlib.sha256(graph.encode() + b"\0" + spec.SerializeToString(deterministic=True)).digest()


def _joined(record: _Record, digest: bytes) -> Call:
    if record.digest != digest:
        raise OmniFlowError(
            Reason.REQUEST_ID_REUSED,
            "The request id was used before with another request; make a new one.",
            violations=(Violation(field="call.request_id", description="used with another body"),),
            metadata={"call_id": record.call.call_id},
        )
    return record.call


def _deliver(call: Call, name: str, value: value_pb2.Value | None, is_last: bool) -> None:
    carried = CarriedValue(message=value) if value is not None else None
    call.handle(InputArrived(name, carried, is_last, value.ByteSize() if value is not None else 0))


def _cancel_timers(record: _Record) -> None:
    for timer in (record.detach_timer, record.deadline_timer):
        if timer is not None:
            timer.cancel()
    record.detach_timer = record.deadline_timer = None
