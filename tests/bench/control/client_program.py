"""A client of our control plane: calls over one long-lived ConverseCall stream of the generated stub.

    python -m tests.bench.control.client_program          speaks `tests.bench.peers.protocol`

Options: `target`, where the control plane listens; `control_pid`, its process; `is_inline`, whether the graph is the one
whose nodes run there.
"""

from __future__ import annotations

import asyncio
import itertools
from importlib.metadata import version
from typing import Any

import grpc.aio
import uvloop

from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2, graph_service_pb2_grpc
from tests.bench.control import topologies
from tests.bench.peers.protocol import main, run_calls

_ENDS = ("finished", "failed")
_Events = list[graph_event_pb2.GraphEvent]


class Client:
    """One conversation."""

    system = f"omniflow {version('omniflow-serving')}"
    control_pid = 0

    async def prepare(self, topology: str, options: dict[str, Any]) -> None:
        self.control_pid = options["control_pid"]
        self._topology = topology
        self._graph = topologies.graph_name(topology, is_inline=options["is_inline"])
        self._spec = topologies.call_spec()
        self._channel = grpc.aio.insecure_channel(options["target"])
        self._stream: Any = graph_service_pb2_grpc.GraphServiceStub(self._channel).ConverseCall()
        self._keys = map(str, itertools.count(1))
        self._events: dict[str, _Events] = {}
        self._ended: dict[str, asyncio.Future[None]] = {}
        self._queued = graph_service_pb2.ConverseCallRequest()
        self._is_writing = False
        self._reading = asyncio.create_task(self._read())

    async def run(self, count: int, concurrency: int) -> list[float]:
        return await run_calls(self._call, count, concurrency)

    async def _call(self) -> None:
        key = next(self._keys)
        message = self._queued.messages.add(call_key=key)
        message.start.graph = self._graph
        message.start.call.CopyFrom(self._spec)
        events = self._events[key] = []
        ended = self._ended[key] = asyncio.get_running_loop().create_future()
        await self._write()
        await ended
        topologies.check_reply(self._topology, events)

    async def _write(self) -> None:
        """Writes what is queued; gRPC takes one message at a time, and what queues up meanwhile travels as one."""
        if self._is_writing:
            return
        self._is_writing = True
        while self._queued.messages:
            request, self._queued = self._queued, graph_service_pb2.ConverseCallRequest()
            await self._stream.write(request)
        self._is_writing = False

    async def _read(self) -> None:
        while response := await self._stream.read():
            for event in response.events:
                self._events[event.call_key].append(event)
                if event.WhichOneof("event") in _ENDS:
                    del self._events[event.call_key]
                    self._ended.pop(event.call_key).set_result(None)

    async def stop(self) -> None:
        self._stream.cancel()
        await asyncio.wait([self._reading])
        await self._channel.close()


if __name__ == "__main__":
    main(Client, uvloop.run)
