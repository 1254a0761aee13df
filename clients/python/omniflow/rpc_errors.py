"""Errors on their way out: one place that turns an OmniFlowError into a status, and hides everything else."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc
import grpc.aio

from omniflow.codec.error import status_to_trailers
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason

log = logging.getLogger(__name__)

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}

ServicerContext = grpc.aio.ServicerContext[Any, Any]


LONGEST_MESSAGE_BYTES = 600
LONGEST_METADATA_BYTES = 200
"""Texts of a status stand in HTTP/2 trailers, the message twice and percent-encoded. Peers drop trailers over 8 KiB, and
with them the whole error."""


async def abort(context: ServicerContext, error: ErrorInfo) -> NoReturn:
    """Ends the RPC with the error and its details; texts that are too long for trailers are cut."""
    fitted = dataclasses.replace(
        error,
        message=_cut(error.message, LONGEST_MESSAGE_BYTES),
        metadata={key: _cut(value, LONGEST_METADATA_BYTES) for key, value in error.metadata.items()},
    )
    await context.abort(_STATUS_CODES[error.code], fitted.message, status_to_trailers(fitted))
    raise AssertionError("abort raises")


def _cut(text: str, limit_bytes: int) -> str:
    data = text.encode()
    return text if len(data) <= limit_bytes else data[: limit_bytes - 3].decode(errors="ignore") + "…"


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler: typed errors keep their details, others become INTERNAL without their text."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = await continuation(details)
        if handler is None:
            return None  # grpc answers UNIMPLEMENTED
        method = str(details.method)
        wrap = _wrap_stream if handler.response_streaming else _wrap_single
        behaviour = (
            (handler.stream_stream or handler.unary_stream)
            if handler.response_streaming
            else (handler.stream_unary or handler.unary_unary)
        )
        return _make_handler(handler, wrap(behaviour, method))


def _make_handler(handler: Any, behaviour: Callable[..., Any]) -> grpc.RpcMethodHandler[Any, Any]:
    makers = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    make = makers[handler.request_streaming, handler.response_streaming]
    return make(behaviour, handler.request_deserializer, handler.response_serializer)


def _wrap_single(behaviour: Callable[..., Any], method: str) -> Callable[..., Awaitable[Any]]:
    if not inspect.iscoroutinefunction(behaviour):
        raise TypeError(f"{method} is neither a coroutine nor an async generator: it would block the whole server")

    async def run(request: Any, context: ServicerContext) -> Any:
        try:
            return await behaviour(request, context)
        except (Exception, asyncio.CancelledError) as error:
            await _answer(error, context, method)

    return run


def _wrap_stream(behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
    if not inspect.isasyncgenfunction(behaviour):
        return _wrap_single(behaviour, method)  # it writes to the context itself

    async def stream(request: Any, context: ServicerContext) -> AsyncIterator[Any]:
        try:
            async for response in behaviour(request, context):
                yield response
        except (Exception, asyncio.CancelledError) as error:
            await _answer(error, context, method)

    return stream


async def _answer(error: BaseException, context: ServicerContext, method: str) -> NoReturn:
    if isinstance(error, OmniFlowError):
        await abort(context, error.info)
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, grpc.aio.InternalError):
        raise asyncio.CancelledError from error  # the peer has gone while it was written to; grpc would log it as a fault
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if context.done() or (task is not None and task.cancelling()):
            raise error  # the peer or the server ended the RPC
        log.error("%s raised CancelledError by itself", method)
        await abort(context, ErrorInfo(reason=Reason.CALL_CANCELLED, message="The request was cancelled here."))
    log.error("%s failed", method, exc_info=error)
    await abort(
        context, ErrorInfo(reason=Reason.INTERNAL, message="The request failed here; the server's log has the details.")
    )
