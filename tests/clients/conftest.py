"""Fixtures: the fake server, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import omniflow
from tests.clients.fake_server import FakeServer, echo, endless


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        server.script("echo", echo)
        server.script("endless", endless)
        yield server


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[omniflow.Client]:
    async with omniflow.connect(server.target, resume_timeout_s=3) as client:
        yield client
