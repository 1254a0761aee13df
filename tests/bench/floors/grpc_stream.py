"""A plain grpc.aio server that streams token events, one in a message: the floor of the events bench.

    python -m tests.bench.floors.grpc_stream 127.0.0.1:7701

It does nothing but what a server stream of these messages cannot do without.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import grpc.aio
import uvloop

from omniflow.graph.v1 import graph_service_pb2
from omniflow.process import die_with_parent

METHOD = "/bench.Floor/Stream"


async def stream(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """The request is the number of events in digits."""
    response = graph_service_pb2.StreamCallResponse()
    event = response.events.add(node="burst", field="tokens", origin_path=[0])
    tokens = event.value.tokens
    tokens.text = "xxxx"
    tokens.ids.append(0)
    for index in range(int(request)):
        event.sequence = index + 1
        event.origin_path[0] = index
        tokens.ids[0] = index
        await context.write(response)


async def serve(target: str) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "bench.Floor",
                {
                    "Stream": grpc.unary_stream_rpc_method_handler(
                        stream, None, graph_service_pb2.StreamCallResponse.SerializeToString
                    )
                },
            ),
        )
    )
    server.add_insecure_port(target)
    await server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    die_with_parent()
    uvloop.run(serve(sys.argv[1]))
