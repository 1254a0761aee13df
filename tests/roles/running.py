"""A role server in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from omniflow.interface import Interface
from omniflow.links.port import LaneKind
from omniflow_roles.harness.role_server import RoleServer
from omniflow_roles.harness.settings import RoleSettings
from tests.roles import driver as driving_module
from tests.roles.driver import Driver, dial


@contextlib.asynccontextmanager
async def running(
    folder: Path, *interfaces: Interface, wait_ready: bool = True, **settings: Any
) -> AsyncIterator[RoleServer]:
    """Serves the interfaces on a socket in the folder, and drains at the end if the test has not."""
    options: dict[str, Any] = {
        "role": "test",
        "replica_id": "test-0",
        "listen": f"unix:{folder}/role.sock",
        "drain_grace_s": 0.0,
        "drain_notice_s": 0.05,
    }
    if driving_module.transport != "grpc":
        options["lanes"] = (LaneKind(driving_module.transport),)
    async with RoleServer(RoleSettings(**(options | settings)), interfaces) as server, asyncio.TaskGroup() as tasks:
        tasks.create_task(server.run())
        if wait_ready:
            async with asyncio.timeout(10):
                await server.wait_ready()
        try:
            yield server
        finally:
            server.drain()


@contextlib.asynccontextmanager
async def driving(
    folder: Path, *interfaces: Interface, acks: bool = True, **settings: Any
) -> AsyncIterator[tuple[RoleServer, Driver]]:
    """The same with a stream to it."""
    async with (
        running(folder, *interfaces, **settings) as server,
        dial(server.identity.endpoint, server.identity.incarnation_id, acks=acks) as driver,
    ):
        yield server, driver


async def eventually(condition: Callable[[], object], *, timeout_s: float = 10.0) -> None:
    """Waits for a condition that somebody else makes true."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)
