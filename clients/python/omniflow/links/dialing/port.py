"""What a link asks of a transport to its replica."""

from __future__ import annotations

from typing import Protocol

from omniflow.links.port import LinkSide


class Transport(Protocol):
    """One way to a replica. It is used once."""

    @property
    def name(self) -> str:
        """For the logs."""

    async def carry(self, side: LinkSide) -> None:
        """Connects and carries messages until an end is said on both sides, or the connection is gone; cancelling it
        breaks the connection. Raises OSError or OmniFlowError with the cause, ConnectionRefusedError or
        FileNotFoundError when nobody listens, and what `side.received` raises."""

    def wake(self) -> None:
        """The side has something to send."""
