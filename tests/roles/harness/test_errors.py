"""Statuses of errors in servicers."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from omniflow.codec.error import error_from_rpc
from omniflow.internal_rpc import internal_channel
from omniflow.large_values import ValueServicer
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.rpc_errors import ErrorAnswering
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.harness.server import RoleExecutionServicer
from omniflow_roles.noop import Echo
from tests.roles.running import driving


async def typed(request: Any, context: Any) -> bytes:
    raise OmniFlowError(Reason.UNKNOWN_RESOURCE, "no such thing", metadata={"id": "7"})


async def unexpected(request: Any, context: Any) -> bytes:
    raise RuntimeError("a secret")


async def generator(request: Any, context: Any) -> AsyncIterator[bytes]:
    yield b"one"
    raise RuntimeError("a secret")


async def aborting(request: Any, context: Any) -> bytes:
    await context.abort(grpc.StatusCode.ABORTED, "own words")
    raise AssertionError


async def call_unary(channel: Any) -> None:
    await channel.unary_unary("/test.Test/Unexpected")(b"")


async def call_generator(channel: Any) -> None:
    async for _ in channel.unary_stream("/test.Test/Generator")(b""):
        pass


def blocking(request: Any, context: Any) -> bytes:
    return b""


@contextlib.asynccontextmanager
async def channel_to_handlers(folder: Path) -> AsyncIterator[Any]:
    server = grpc.aio.server()
    unary = grpc.unary_unary_rpc_method_handler
    handlers: dict[str, Any] = {
        "Typed": unary(typed),
        "Unexpected": unary(unexpected),
        "Generator": grpc.unary_stream_rpc_method_handler(generator),
        "Aborting": unary(aborting),
        "Blocking": unary(blocking),
    }
    ErrorAnswering(server).add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", handlers),))
    server.add_insecure_port(f"unix:{folder}/s.sock")
    await server.start()
    try:
        async with internal_channel(f"unix:{folder}/s.sock") as channel:
            yield channel
    finally:
        await server.stop(0)


async def test_typed_error_reaches_the_caller_as_it_is(tmp_path: Path) -> None:
    async with channel_to_handlers(tmp_path) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/test.Test/Typed")(b"")
    error = error_from_rpc(caught.value)
    assert (error.reason, error.message, error.info.metadata) == (Reason.UNKNOWN_RESOURCE, "no such thing", {"id": "7"})
    assert error.is_stated


@pytest.mark.parametrize("call", [call_unary, call_generator])
async def test_unexpected_error_is_internal_without_its_text(
    tmp_path: Path, call: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with channel_to_handlers(tmp_path) as channel:
        with caplog.at_level(logging.ERROR), pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel)
    error = error_from_rpc(caught.value)
    assert error.reason is Reason.INTERNAL
    assert "secret" not in f"{caught.value!r}"
    assert "secret" in caplog.text


async def test_abort_of_a_servicer_passes(tmp_path: Path) -> None:
    async with channel_to_handlers(tmp_path) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/test.Test/Aborting")(b"")
    assert caught.value.details() == "own words"


async def test_servicer_method_that_would_block_the_loop_is_refused(tmp_path: Path) -> None:
    async with channel_to_handlers(tmp_path) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary("/test.Test/Blocking")(b"")


def test_every_servicer_method_is_asynchronous() -> None:
    methods = [
        ValueServicer.FetchValue,
        ValueServicer.ReleaseValues,
        RoleExecutionServicer.execute,
        RoleExecutionServicer.cancel_activations,
        RoleExecutionServicer.release_call,
        RoleExecutionServicer.describe_role,
    ]
    for method in methods:
        assert inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method), method


async def test_missing_field_of_a_request_is_named(tmp_path: Path) -> None:
    async with driving(tmp_path, Echo()) as (_, driver):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await driver.stub.CancelActivations(messages.CancelActivationsRequest())
    assert error_from_rpc(caught.value).violations[0].field == "call_id"
