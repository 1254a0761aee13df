"""Our control plane with every node inline, driven in its own process: from `accept` to the terminal event in the log.

    python -m tests.bench.control.inline_program          speaks `tests.bench.peers.protocol`

The whole control plane as `compose` puts it together, its servers included, which nobody calls. The clock covers what a
caller in the same process does: the request is made and accepted, the events up to the last are read, parsed and checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import tempfile
from importlib.metadata import version
from typing import Any

import uvloop

from omniflow.graph.v1 import graph_service_pb2
from omniflow_server.compose import ControlPlane, control_plane
from omniflow_server.control.event_log import LogReader
from omniflow_server.control.settings import ControlSettings
from omniflow_server.rpc.principal import DEFAULT_TENANT
from tests.bench.control import topologies
from tests.bench.peers.protocol import main, run_calls

READ_BYTES = 1 << 20


class Inline:
    """One control plane with one graph."""

    system = f"omniflow {version('omniflow-serving')}"
    control_pid = os.getpid()

    async def prepare(self, topology: str, options: dict[str, Any]) -> None:
        self._stack = contextlib.AsyncExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        settings = ControlSettings(
            listen="127.0.0.1:0", internal_listen=f"unix:{folder}/control.sock", interfaces=("*",)
        )
        self._plane: ControlPlane = await self._stack.enter_async_context(control_plane(settings))
        await self._plane.install(self._plane.catalog.compile(topologies.inline_spec(topology)))
        self._topology = topology
        self._graph = topologies.graph_name(topology, is_inline=True)
        self._spec = topologies.call_spec()
        gc.collect()
        gc.freeze()  # as `compose.serve` does

    async def run(self, count: int, concurrency: int) -> list[float]:
        return await run_calls(self._call, count, concurrency)

    async def _call(self) -> None:
        spec = graph_service_pb2.CallSpec()
        spec.CopyFrom(self._spec)
        call, _ = self._plane.calls.accept(self._graph, spec, tenant=DEFAULT_TENANT)
        done = asyncio.get_running_loop().create_future()

        def on_event(reader: LogReader) -> None:
            if call.has_ended and not done.done():
                done.set_result(None)

        reader = self._plane.calls.attach(call, 0, on_event)
        if not call.has_ended:
            await done
        reply = graph_service_pb2.StreamCallResponse.FromString(b"".join(reader.take(READ_BYTES)))
        self._plane.calls.detach(call, reader)
        topologies.check_reply(self._topology, reply.events)

    async def stop(self) -> None:
        await self._stack.aclose()


if __name__ == "__main__":
    main(Inline, uvloop.run)
