"""A link's session as one of its transports sees it: first the hellos, then what the session has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from omniflow.links.outbox import Outbox
from omniflow.links.port import END
from omniflow.role.v1 import role_execution_service_pb2 as pb


class Session(Protocol):
    """What a side needs of its session."""

    @property
    def outbox(self) -> Outbox: ...
    def hello(self) -> bytes: ...
    def opened(self, answer: pb.ExecuteResponse) -> None: ...
    def received(self, message: bytes) -> None: ...


class SessionSide:
    """Implements `LinkSide`. `answered` is done when the replica has answered the hello."""

    def __init__(self, session: Session, wake: Callable[[], None]) -> None:
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_over = False
        """The replica has ended the link, or has broken its rules: there is nothing to resume."""
        self._session = session
        self._outbox = session.outbox
        self._wake = wake
        self._hello: bytes | None = session.hello()
        self._is_open = False
        self._is_closed = False

    @property
    def is_finished(self) -> bool:
        return self.is_over or self._is_closed or self._outbox.is_finished

    def take(self) -> bytes | None:
        if not self._is_open:
            hello, self._hello = self._hello, None
            return hello
        try:
            return self._outbox.take()
        except Exception:
            self.is_over = True
            raise

    def received(self, message: bytes) -> None:
        if message == END:
            self.is_over = True
            return
        try:
            if self._is_open:
                self._session.received(message)
                return
            self._session.opened(pb.ExecuteResponse.FromString(message))
        except Exception:
            self.is_over = True
            raise
        self._is_open = True
        self.answered.set_result(None)
        self._outbox.attach(self._wake)

    def peer_left(self) -> None:
        self.is_over = True

    def closed(self) -> None:
        self._is_closed = True
