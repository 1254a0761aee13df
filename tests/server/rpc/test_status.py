"""Errors on their way out: typed ones whole, others without a word of theirs, none of them a hang."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from omniflow.codec.error import error_from_rpc
from omniflow.graph.v1 import graph_service_pb2
from omniflow.health_service import HealthServicer
from omniflow.large_values import ValueServicer
from omniflow.role.v1 import role_registry_service_pb2, value_service_pb2
from omniflow.rpc_errors import ErrorAnswering
from omniflow.workflow.v1 import workflow_service_pb2
from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_core.graph.findings import Finding, InvalidGraphError
from omniflow_server.rpc.graph_service import GraphServicer
from omniflow_server.rpc.role_registry_service import RoleRegistryServicer
from omniflow_server.rpc.workflow_service import WorkflowServicer
from tests.server.rpc.client import faults_of

Behaviour = Callable[[Any, Any], Any]
FORMS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream", "writing_stream")


@contextlib.asynccontextmanager
async def serving(raise_it: Callable[[], Any]) -> AsyncIterator[grpc.aio.Channel]:
    """A server whose methods, one of each form, do what `raise_it` does."""

    async def single(request: Any, context: Any) -> bytes:
        await act(raise_it)
        return b""

    async def stream(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await act(raise_it)

    async def writing(request: Any, context: Any) -> None:
        await context.write(b"first")
        await act(raise_it)

    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "unary_unary": grpc.unary_unary_rpc_method_handler(single),
        "unary_stream": grpc.unary_stream_rpc_method_handler(stream),
        "stream_unary": grpc.stream_unary_rpc_method_handler(single),
        "stream_stream": grpc.stream_stream_rpc_method_handler(stream),
        "writing_stream": grpc.unary_stream_rpc_method_handler(writing),
    }
    server = grpc.aio.server()
    ErrorAnswering(server).add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)


async def act(raise_it: Callable[[], Any]) -> None:
    result = raise_it()
    if inspect.isawaitable(result):
        await result


async def failure(channel: grpc.aio.Channel, form: str) -> grpc.aio.AioRpcError:
    """How the method of this form fails."""
    path, any_channel = f"/test/{form}", cast("Any", channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if form == "unary_unary":
            await any_channel.unary_unary(path)(b"x", timeout=10)
        elif form == "stream_unary":
            await any_channel.stream_unary(path)(iter([b"x"]), timeout=10)
        elif form == "stream_stream":
            [_ async for _ in any_channel.stream_stream(path)(iter([b"x"]), timeout=10)]
        else:
            [_ async for _ in any_channel.unary_stream(path)(b"x", timeout=10)]
    return caught.value


def raising(error: BaseException) -> Callable[[], Any]:
    def raise_it() -> None:
        raise error

    return raise_it


@pytest.mark.parametrize("form", FORMS)
async def test_typed_error_reaches_the_client_whole(form: str) -> None:
    error = OmniFlowError(
        Reason.TOO_MANY_CALLS,
        "later",
        violations=(Violation(field="max_calls", description="the limit is 1"),),
        metadata={"a": "b"},
        retry_after_s=1.5,
    )
    async with serving(raising(error)) as channel:
        caught = await failure(channel, form)
    assert caught.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error_from_rpc(caught).info == error.info
    assert error_from_rpc(caught).is_stated


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "error", [RuntimeError("secret"), KeyError("secret"), ExceptionGroup("secret", [ValueError("secret")])]
)
async def test_text_of_an_exception_never_reaches_the_client(
    form: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(raising(error)) as channel:
        caught = await failure(channel, form)
    assert caught.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in f"{caught.details()}{caught.trailing_metadata()}{caught.debug_error_string()}"
    assert error_from_rpc(caught).reason is Reason.INTERNAL
    assert "secret" in caplog.text, "the log has it"


@pytest.mark.parametrize("form", FORMS)
async def test_cancelled_error_of_the_handler_itself_is_answered(form: str) -> None:
    """It must not leave the client hanging."""
    async with serving(raising(asyncio.CancelledError("secret"))) as channel:
        caught = await failure(channel, form)
    assert caught.code() is grpc.StatusCode.CANCELLED
    assert error_from_rpc(caught).reason is Reason.CALL_CANCELLED
    assert "secret" not in str(caught.details())


@pytest.mark.parametrize("form", ["unary_unary", "unary_stream", "writing_stream"])
async def test_client_that_leaves_is_no_error(form: str, caplog: pytest.LogCaptureFixture) -> None:
    began, left = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            left.set()

    async with serving(wait) as channel:
        method: Any = channel.unary_unary if form == "unary_unary" else channel.unary_stream
        call = method(f"/test/{form}")(b"x")
        reading = asyncio.ensure_future(call.read() if form != "unary_unary" else call.wait_for_connection())
        await began.wait()
        call.cancel()
        await left.wait()
        await asyncio.wait((reading,))
    assert faults_of(caplog) == []


@pytest.mark.parametrize("form", FORMS)
async def test_error_larger_than_trailers_may_be_keeps_its_reason(form: str) -> None:
    """What is too long is cut: HTTP/2 peers drop header lists beyond some KiB, and the error with them."""
    findings = tuple(
        Finding(reason="UNKNOWN_FIELD", field=f"edges[{i}]", message="€" * 100, fix="x" * 100) for i in range(1_000)
    )
    names = "\n".join(f"name-{i}-€" for i in range(5_000))
    for error in (
        InvalidGraphError("graphs/x", findings),
        OmniFlowError(Reason.MISSING_INPUT, names, violations=[Violation(field=names, description="x")]),
        OmniFlowError(Reason.MISSING_INPUT, "short", metadata={"missing": names}),
    ):
        async with serving(raising(error)) as channel:
            caught = await failure(channel, form)
        seen = error_from_rpc(caught)
        assert (seen.reason, seen.is_stated) == (error.reason, True)
        assert caught.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert seen.message[:5] == error.message[:5]


async def test_unknown_method_is_unimplemented() -> None:
    async with serving(raising(RuntimeError())) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await cast("Any", channel).unary_unary("/test/nope")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


SERVICES = (
    (GraphServicer, graph_service_pb2, "GraphService"),
    (WorkflowServicer, workflow_service_pb2, "WorkflowService"),
    (RoleRegistryServicer, role_registry_service_pb2, "RoleRegistryService"),
    (ValueServicer, value_service_pb2, "ValueService"),
    (HealthServicer, health_pb2, "Health"),
)


@pytest.mark.parametrize(("servicer", "module", "service"), SERVICES, ids=[name for *_, name in SERVICES])
def test_every_method_of_a_service_is_asynchronous(servicer: type, module: Any, service: str) -> None:
    """A plain function on an asyncio server would run in a thread, and hang on stop and abort."""
    methods = module.DESCRIPTOR.services_by_name[service].methods_by_name
    assert methods
    for name in methods:
        method = vars(servicer)[name]
        assert inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method), name
