"""Connections to the other control planes of the cluster."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import grpc.aio

from omniflow.internal_rpc import internal_channel
from omniflow_server.control.membership import Membership
from omniflow_server.data.metadata.port import Owner


class Peers:
    """Channels to the other control planes, one for each life; those of lives that have ended are closed."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()

    def channel(self, owner: Owner) -> grpc.aio.Channel:
        """The channel to a life. A control plane that starts again listens at the same place, and is another life."""
        key = f"{owner.epoch}@{owner.endpoint}"
        found = self._channels.get(key)
        if found is None:
            self._close_ended()
            found = self._channels[key] = internal_channel(owner.endpoint)
        return found

    def _close_ended(self) -> None:
        living = {f"{owner.epoch}@{owner.endpoint}" for owner in self._membership.owners.values()}
        for key in [key for key in self._channels if key not in living]:
            task = asyncio.ensure_future(self._channels.pop(key).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
