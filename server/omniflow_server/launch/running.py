"""A supervisor for the time of a block of code."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from omniflow_server.launch.supervisor import Supervisor


@contextlib.asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[None]:
    """Enters when everything is ready, and stops in order at the end. Raises OmniFlowError when it cannot get ready."""
    run = asyncio.ensure_future(supervisor.run())
    ready = asyncio.ensure_future(supervisor.wait_ready())
    try:
        await asyncio.wait((run, ready), return_when=asyncio.FIRST_COMPLETED)
        if not run.done():
            yield
    finally:
        ready.cancel()
        supervisor.stop()
        await run
