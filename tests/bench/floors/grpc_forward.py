"""A plain grpc.aio server that hands each message of a bidirectional stream to one echo after another, and then back.

    python -m tests.bench.floors.grpc_forward unix:/tmp/forward.sock unix:/tmp/echo0.sock unix:/tmp/echo1.sock ...

It is what a chain of hops over grpc.aio costs when nothing is decided, looked at or kept: bytes in, bytes out.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio
import uvloop

from omniflow.process import die_with_parent
from tests.bench.floors import grpc_echo

METHOD = "/bench.Floor/Forward"


async def serve(target: str, echoes: Sequence[str]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        streams: list[Any] = []
        for echo in echoes:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(echo))
            streams.append(channel.stream_stream(grpc_echo.METHOD)())

        async def forward(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            while (message := await context.read()) is not grpc.aio.EOF:
                for stream in streams:
                    await stream.write(message)
                    message = await stream.read()
                await context.write(message)

        server = grpc.aio.server()
        handler: Any = grpc.stream_stream_rpc_method_handler(forward)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Floor", {"Forward": handler}),))
        server.add_insecure_port(target)
        await server.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    die_with_parent()
    uvloop.run(serve(sys.argv[1], sys.argv[2:]))
