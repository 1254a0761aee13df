"""Rows of graphs: compare and set by version."""

from __future__ import annotations

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.port import GraphRow
from tests.server.data.metadata.contract import World, opened, ticked


def row(name: str = "g", version: int = 1, payload: bytes = b"\x00\n1 {}") -> GraphRow:
    return GraphRow(name=name, version=version, payload=payload)


async def test_put_graph_is_read_by_name(world: World) -> None:
    epoch = await opened(world.store, "a")
    assert await world.store.graphs() == (0, ())
    await world.store.put_graph(epoch, row("b"))
    await world.store.put_graph(epoch, row("a", payload=b""))
    revision, found = await world.store.graphs()
    assert found == (row("a", payload=b""), row("b"))
    assert (await ticked(world.store, epoch)).graph_revision == revision > 0


async def test_put_graph_of_the_next_version_replaces_and_makes_a_revision(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    await world.store.put_graph(a, row())
    before, _ = await world.store.graphs()
    await world.store.put_graph(b, row(version=2, payload=b"two"))
    after, found = await world.store.graphs()
    assert found == (row(version=2, payload=b"two"),)
    assert after > before


@pytest.mark.parametrize(("version", "payload"), [(2, b"other"), (1, b"\x00\n1 {}"), (4, b"x"), (0, b"x")])
async def test_put_graph_over_another_version_is_a_conflict(world: World, version: int, payload: bytes) -> None:
    epoch = await opened(world.store, "a")
    await world.store.put_graph(epoch, row())
    await world.store.put_graph(epoch, row(version=2, payload=b"two"))
    before = await world.store.graphs()
    with pytest.raises(OmniFlowError, match="read it again") as caught:
        await world.store.put_graph(epoch, row(version=version, payload=payload))
    assert caught.value.reason is Reason.CONFLICT
    assert caught.value.info.metadata == {"version": "2"}
    assert await world.store.graphs() == before


async def test_put_graph_of_an_unknown_one_starts_at_version_1(world: World) -> None:
    epoch = await opened(world.store, "a")
    with pytest.raises(OmniFlowError) as caught:
        await world.store.put_graph(epoch, row(version=2))
    assert caught.value.info.metadata == {"version": "0"}
    assert await world.store.graphs() == (0, ())


async def test_put_graph_again_answers_as_the_first_time(world: World) -> None:
    epoch = await opened(world.store, "a")
    await world.store.put_graph(epoch, row())
    before = await world.store.graphs()
    await world.store.put_graph(epoch, row())
    assert await world.store.graphs() == before


async def test_graph_revision_differs_after_a_wipe(world: World) -> None:
    await world.store.put_graph(await opened(world.store, "a"), row())
    before, _ = await world.store.graphs()
    await world.wipe()
    assert await world.store.graphs() == (0, ())
    await world.store.put_graph(await opened(world.store, "a"), row())
    after, _ = await world.store.graphs()
    assert after > before


async def test_graphs_of_many_are_all_there(world: World) -> None:
    epoch = await opened(world.store, "a")
    rows = [row(f"g{index:03}") for index in range(300)]
    for each in rows:
        await world.store.put_graph(epoch, each)
    _, found = await world.store.graphs()
    assert found == tuple(rows)
