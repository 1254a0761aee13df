"""What an event stream puts into one message."""

from __future__ import annotations

from tests.server.control.table import kinds
from tests.server.rpc.client import GraphClient


async def test_short_call_is_one_message(client: GraphClient) -> None:
    """Its acceptance has waited for company: the nodes run in a turn or two of the loop."""
    async with client.converse() as stream:
        await stream.start("k", "count", inputs={"text": "1"})
        found = (await stream.by_key("k"))["k"]
        assert kinds(found) == ["accepted", "started", "value", "finished"]
        assert stream.message_count == 1
