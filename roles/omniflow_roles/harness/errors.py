"""Errors of servicers as statuses: an OmniFlowError as it is, anything else as INTERNAL without its text."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc
import grpc.aio

from omniflow.codec.error import status_to_trailers
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason

logger = logging.getLogger(__name__)

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


async def abort(context: grpc.aio.ServicerContext[Any, Any], info: ErrorInfo) -> NoReturn:
    """Ends the RPC with the error's status and details."""
    await context.abort(_STATUS_CODES[int(info.code)], info.message, status_to_trailers(info))
    raise AssertionError("abort raises")


async def _abort_for(context: grpc.aio.ServicerContext[Any, Any], error: Exception, method: str) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, OmniFlowError):
        await abort(context, error.info)
    logger.error("%s failed", method, exc_info=error)
    await abort(context, ErrorInfo(reason=Reason.INTERNAL, message="the replica failed; its log has the details"))


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every method of the server. A method that is not asynchronous is refused: it would block the whole server."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
            behavior = getattr(handler, kind)
            if behavior is not None:
                make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
                guarded: grpc.RpcMethodHandler[Any, Any] = make(
                    _guarded(behavior, method), handler.request_deserializer, handler.response_serializer
                )
                return guarded
        raise AssertionError(f"{method} has no behavior")


def _guarded(behavior: Callable[..., Any], method: str) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(behavior):
        return _guarded_generator(behavior, method)
    if not inspect.iscoroutinefunction(behavior):
        raise TypeError(f"{method} is neither a coroutine nor an async generator")

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await behavior(request, context)
        except Exception as error:
            await _abort_for(context, error, method)

    return call


def _guarded_generator(behavior: Callable[..., AsyncIterator[Any]], method: str) -> Callable[..., Any]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            async for response in behavior(request, context):
                yield response
        except Exception as error:
            await _abort_for(context, error, method)

    return call
