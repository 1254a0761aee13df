"""A control plane with inline interfaces, and a client's channel to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from omniflow_server.compose import ControlPlane
from tests.server.control.planes import channel_to, plane
from tests.server.rpc.client import GraphClient
from tests.server.rpc.interfaces import INTERFACES, graphs
from tests.support.interfaces import Gate


@pytest.fixture
async def made() -> AsyncIterator[ControlPlane]:
    Gate.reset()
    async with plane(*INTERFACES, graphs=graphs()) as control:
        yield control


@pytest.fixture
async def client(made: ControlPlane) -> AsyncIterator[GraphClient]:
    async with channel_to(made.target) as channel:
        yield GraphClient(channel)
