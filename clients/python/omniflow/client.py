"""The client: `async with omniflow.connect("127.0.0.1:7700") as client:`.

    async for event in client.stream("assistant", text="hi"):
        if isinstance(event, Output) and event.field == "text":
            print(event.value, end="")
    result = await client.run("assistant", text="hi", sampling=Sampling(temperature=0))
    print(result.text("text"))

Every method raises OmniFlowError: `error.reason` says why, and `error.is_stated` whether the server said so or the
client inferred it from a broken connection.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from omniflow.calls import Checkpoint, EventStream, resume_call, start_call
from omniflow.codec.error import error_from_rpc
from omniflow.codec.graph import call_status_from_proto
from omniflow.conversation import WINDOW_BYTES, Conversation
from omniflow.dsl import Graph
from omniflow.events import CallStatus
from omniflow.graph.v1 import graph_service_pb2
from omniflow.requests import PreparedCall, graph_name, prepare_call, session_name, takes_call
from omniflow.results import CallResult, collect
from omniflow.transport import Backoff, ClientOptions, Connection
from omniflow.workflow.v1 import graph_spec_pb2, workflow_service_pb2
from omniflow_core.errors import OmniFlowError, Reason

DEFAULT_TARGET = "127.0.0.1:7700"
UNARY_TIMEOUT_S = 30.0
"""Deadline of methods that answer at once."""


class Health(enum.Enum):
    """What a server says of itself or of one of its services."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """A finding of the planner: what is wrong in a graph, where, and what would fix it."""

    reason: str
    field: str
    message: str
    fix: str
    node: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRevision:
    """A kept revision of a graph."""

    revision: str
    create_unix_s: float
    """When it was installed, in seconds since 1970."""
    percent: int
    """Share of new calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRevisions:
    """The kept revisions of a graph, the newest first. `etag` changes with every change of the graph."""

    revisions: tuple[GraphRevision, ...]
    etag: str


def connect(
    target: str = DEFAULT_TARGET,
    *,
    tenant: str = "default",
    credentials: grpc.ChannelCredentials | None = None,
    metadata: Sequence[tuple[str, str]] = (),
    resume_timeout_s: float = 30.0,
    channel_options: Mapping[str, int | str] | None = None,
) -> Client:
    """A client of a gRPC target ("host:port", "dns:///name:port", "unix:/path"); connects in its `async with`.

    credentials: of the channel; without them nothing is encrypted.
    metadata: sent with every RPC, such as an authorization.
    resume_timeout_s: how long a lost connection is retried since its last sign of life, before a call fails.
    channel_options: gRPC channel arguments on top of ours.
    """
    return Client(
        ClientOptions(
            target=target,
            tenant=tenant,
            credentials=credentials,
            metadata=tuple(metadata),
            resume_timeout_s=resume_timeout_s,
            channel_options=channel_options or {},
        )
    )


class Client:
    """Calls graphs and manages them. Made by `connect`, used in `async with`; one event loop, any number of tasks."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._opened: Connection | None = None

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise RuntimeError("this client was opened before; make another one with connect()")
        self._opened = await Connection(self._options).__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.__aexit__(kind, error, trace)

    @property
    def _connection(self) -> Connection:
        if self._opened is None:
            raise RuntimeError("use the client inside `async with`")
        return self._opened

    # Calls.

    @takes_call(prepare_call)
    def stream(self, prepared: PreparedCall) -> EventStream:
        """Runs a graph and gives its events: `async for event in client.stream("assistant", text="hi")`.

        The arguments are those of `omniflow.requests.prepare_call`: the graph's inputs as keyword arguments or in
        `inputs=`, and options. Ends with `Finished` or raises OmniFlowError; leaving early cancels the call.
        """
        return start_call(self._connection, prepared)

    @takes_call(prepare_call)
    async def run(self, prepared: PreparedCall) -> CallResult:
        """Runs a graph and waits for its end; the arguments are those of `stream`."""
        if prepared.is_chunked:
            raise ValueError("chunks=True gives pieces as they come: use stream()")
        return await collect(start_call(self._connection, prepared))

    def converse(self, *, session: str | None = None, window_bytes: int = WINDOW_BYTES) -> Conversation:
        """Several calls over one stream: `async with client.converse() as conversation`.

        session: lets a proxy route the stream to the session's place; calls still name theirs.
        window_bytes: events of one call that may wait for their reader.
        """
        return Conversation(
            self._connection, session=session_name(session) if session else "", window_bytes=window_bytes
        )

    def resume(
        self, resume_token: str | Checkpoint, after_sequence: int = 0, *, call_id: str = "", chunks: bool = False
    ) -> EventStream:
        """Goes on with a call after the last sequence that was handled, or after a `Checkpoint`.

        Raises EVENTS_TRIMMED when that is no longer kept, UNKNOWN_CALL when the call is forgotten. Without a `call_id`
        leaving early only detaches: the call runs on for its grace.
        """
        if isinstance(resume_token, Checkpoint):
            return resume_call(self._connection, resume_token, chunks=chunks)
        checkpoint = Checkpoint(resume_token=resume_token, after_sequence=after_sequence, call_id=call_id)
        return resume_call(self._connection, checkpoint, chunks=chunks)

    async def cancel(self, call_id: str = "", *, request_id: str = "", reason: str = "") -> bool:
        """Cancels a call by its or by the client's identifier. True when this ended it."""
        request = graph_service_pb2.CancelCallRequest(call_id=call_id, request_id=request_id, reason=reason)
        response = await self._unary(self._connection.graphs.CancelCall, request)
        return cast("bool", response.is_cancelled)

    async def get_call(self, call_id: str) -> CallStatus:
        """State of a call, also for a while after its end. Raises UNKNOWN_CALL."""
        request = graph_service_pb2.GetCallRequest(call_id=call_id)
        return call_status_from_proto(await self._unary(self._connection.graphs.GetCall, request))

    # Graphs.

    async def graphs(self) -> list[graph_spec_pb2.GraphSpec]:
        """Every installed graph, by name."""
        found: list[graph_spec_pb2.GraphSpec] = []
        token = ""
        while True:
            request = workflow_service_pb2.ListGraphsRequest(page_size=1000, page_token=token)
            page = await self._unary(self._connection.workflows.ListGraphs, request)
            found.extend(page.graphs)
            token = page.next_page_token
            if not token:
                return found

    async def get_graph(self, name: str, revision: str = "") -> graph_spec_pb2.GraphSpec:
        """An installed graph: a kept revision, or the one with the largest share. Raises UNKNOWN_GRAPH, UNKNOWN_RESOURCE."""
        request = workflow_service_pb2.GetGraphRequest(name=graph_name(name), revision=revision)
        response = await self._unary(self._connection.workflows.GetGraph, request)
        return cast("graph_spec_pb2.GraphSpec", response.graph)

    async def apply(
        self, graph: Graph | graph_spec_pb2.GraphSpec, *, canary_percent: int | None = None
    ) -> graph_spec_pb2.GraphSpec:
        """Installs a graph; returns it with its revision. Raises INVALID_GRAPH with one violation per finding.

        canary_percent: share of new calls that the revision gets; None: all of them.
        """
        request = workflow_service_pb2.ApplyGraphRequest(graph=_spec(graph), canary_percent=canary_percent)
        response = await self._unary(self._connection.workflows.ApplyGraph, request)
        return cast("graph_spec_pb2.GraphSpec", response.graph)

    async def graph_revisions(self, name: str) -> GraphRevisions:
        """The kept revisions of a graph and their shares of new calls. Raises UNKNOWN_GRAPH."""
        request = workflow_service_pb2.ListGraphRevisionsRequest(name=graph_name(name))
        return _revisions(await self._unary(self._connection.workflows.ListGraphRevisions, request))

    async def set_traffic(self, name: str, shares: Mapping[str, int], *, etag: str = "") -> GraphRevisions:
        """Shares new calls among kept revisions, in percent; those that are not named get none. Raises INVALID_FIELD.

        etag: of `graph_revisions`; raises CONFLICT when the graph has changed since.
        """
        request = workflow_service_pb2.SetGraphTrafficRequest(name=graph_name(name), etag=etag)
        for revision, percent in shares.items():
            request.shares.add(revision=revision, percent=percent)
        return _revisions(await self._unary(self._connection.workflows.SetGraphTraffic, request))

    async def validate(self, graph: Graph | graph_spec_pb2.GraphSpec) -> tuple[Diagnostic, ...]:
        """The planner's findings without installing the graph; empty when it is valid."""
        request = workflow_service_pb2.ValidateGraphRequest(graph=_spec(graph))
        response = await self._unary(self._connection.workflows.ValidateGraph, request)
        return tuple(
            Diagnostic(
                reason=found.reason,
                field=found.field,
                message=found.message,
                fix=found.fix,
                node=found.node,
                group=found.group,
            )
            for found in response.diagnostics
        )

    async def explain(self, graph: str | Graph | graph_spec_pb2.GraphSpec) -> workflow_service_pb2.ExplainGraphResponse:
        """The compiled plan of an installed graph, by name, or of a definition; `text` and `svg` are for people."""
        request = (
            workflow_service_pb2.ExplainGraphRequest(name=graph_name(graph))
            if isinstance(graph, str)
            else workflow_service_pb2.ExplainGraphRequest(graph=_spec(graph))
        )
        return cast(
            "workflow_service_pb2.ExplainGraphResponse",
            await self._unary(self._connection.workflows.ExplainGraph, request),
        )

    # Health.

    async def health(self, service: str = "", *, timeout_s: float = UNARY_TIMEOUT_S) -> Health:
        """Health of the server, or of one service or graph of it."""
        check = health_pb2_grpc.HealthStub(self._connection.channel).Check
        try:
            response = await self._unary(check, health_pb2.HealthCheckRequest(service=service), timeout_s=timeout_s)
        except OmniFlowError as error:
            if error.info.metadata.get("grpc_code") == "NOT_FOUND":
                return Health.SERVICE_UNKNOWN
            raise
        return Health(response.status)

    async def wait_ready(self, timeout_s: float = 30.0, *, service: str = "") -> None:
        """Returns when the server is healthy. Raises DEADLINE_EXCEEDED saying what was seen last."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        backoff = Backoff(now_s=loop.time(), timeout_s=timeout_s)
        while True:
            seen = await self._look(service, max(deadline_s - loop.time(), 0.001))
            if seen == Health.SERVING.name:
                return
            delay_s = backoff.next_delay_s(loop.time())
            if delay_s is None:
                raise OmniFlowError(
                    Reason.DEADLINE_EXCEEDED,
                    f"{self._options.target} was not ready within {timeout_s:g} s; last seen: {seen}",
                    is_stated=False,
                )
            await asyncio.sleep(delay_s)

    async def _look(self, service: str, timeout_s: float) -> str:
        try:
            return (await self.health(service, timeout_s=timeout_s)).name
        except OmniFlowError as error:
            if error.is_stated or error.reason in (Reason.CONNECTION_LOST, Reason.DEADLINE_EXCEEDED):
                return str(error)
            raise

    async def _unary(self, method: Any, request: Any, *, timeout_s: float = UNARY_TIMEOUT_S) -> Any:
        """One request, one response; the stubs have no types."""
        connection = self._connection
        connection.check_open()
        try:
            return await method(request, metadata=connection.metadata(), timeout=timeout_s)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None


def _revisions(
    response: workflow_service_pb2.ListGraphRevisionsResponse | workflow_service_pb2.SetGraphTrafficResponse,
) -> GraphRevisions:
    found = (
        GraphRevision(
            revision=each.revision, create_unix_s=each.create_time.ToMilliseconds() / 1e3, percent=each.percent
        )
        for each in response.revisions
    )
    return GraphRevisions(revisions=tuple(found), etag=response.etag)


def _spec(graph: Graph | graph_spec_pb2.GraphSpec) -> graph_spec_pb2.GraphSpec:
    return graph.spec() if isinstance(graph, Graph) else graph
