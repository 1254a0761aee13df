"""Errors on their way out: one place that turns an OmniFlowError into a status, and hides everything else."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
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


class ErrorAnswering:
    """The part of a server that services are added to: typed errors of their methods keep their details, others become
    INTERNAL without their text.

    Methods are wrapped once, when they are added. An interceptor would do it for every RPC, and before each of them.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """As of the server."""
        self._server.add_generic_rpc_handlers([_AnsweringHandler(handler) for handler in handlers])

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """As of the server, for generated code."""
        wrapped = {name: _answering(handler, f"/{service}/{name}") for name, handler in handlers.items()}
        self._server.add_registered_method_handlers(service, wrapped)


class _AnsweringHandler(grpc.GenericRpcHandler):
    def __init__(self, inner: grpc.GenericRpcHandler) -> None:
        self._inner = inner
        self._wrapped: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = str(details.method)
        wrapped = self._wrapped.get(method)
        if wrapped is None:
            handler: Any = self._inner.service(details)
            if handler is None:
                return None  # grpc answers UNIMPLEMENTED
            wrapped = self._wrapped[method] = _answering(handler, method)
        return wrapped


def _answering(handler: Any, method: str) -> grpc.RpcMethodHandler[Any, Any]:
    if handler.response_streaming:
        return _make_handler(handler, _wrap_stream(handler.stream_stream or handler.unary_stream, method))
    return _make_handler(handler, _wrap_single(handler.stream_unary or handler.unary_unary, method))


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
    is_coroutine = inspect.iscoroutinefunction(behaviour)

    async def run(request: Any, context: ServicerContext) -> Any:
        try:
            if not is_coroutine:
                raise TypeError("neither a coroutine nor an async generator: it would block the whole server")
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
