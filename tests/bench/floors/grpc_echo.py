"""A plain grpc.aio server that echoes each message of a bidirectional stream: the floor of the hops bench.

    python -m tests.bench.floors.grpc_echo unix:/tmp/echo.sock

The messages are frames of Execute with one small text, as a hop sends and receives them.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import grpc.aio
import uvloop

from omniflow.process import die_with_parent
from omniflow.role.v1 import role_execution_service_pb2 as pb

METHOD = "/bench.Floor/Echo"


async def echo(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        await context.write(request)


async def serve(target: str) -> None:
    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(
        echo, pb.ExecuteResponse.FromString, pb.ExecuteResponse.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Floor", {"Echo": handler}),))
    server.add_insecure_port(target)
    await server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    die_with_parent()
    uvloop.run(serve(sys.argv[1]))
