"""What a role server asks of a lane."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from omniflow.links.port import LaneKind, NewSide


class Lane(Protocol):
    """A socket of its own beside the gRPC endpoint, with mode 0600. Made bound, so that its offer can be relied on."""

    @property
    def kind(self) -> LaneKind: ...
    @property
    def path(self) -> Path: ...
    def serving(self, new_side: NewSide) -> AbstractAsyncContextManager[None]:
        """Inside, control planes may dial; leaving it breaks their connections."""

    def close(self) -> None:
        """Removes the socket."""
