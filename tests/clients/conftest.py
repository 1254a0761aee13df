"""Fixtures: the fake server, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import omniflow
from omniflow import transport
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


@pytest.fixture
def brief_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose server does not come back has little patience with the cancels that it owes."""
    monkeypatch.setattr(transport, "CANCEL_TIMEOUT_S", 0.1)
