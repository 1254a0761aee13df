"""The store in memory and the real one decide alike: the same random steps, on the same clock, have the same answers."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from omniflow_core.errors import OmniFlowError
from omniflow_server.data.metadata.memory import MemoryStore
from omniflow_server.data.metadata.port import GraphRow, MetadataStore, Tick
from tests.server.data.metadata.contract import REPLICA_TTL_S, ValkeyWorld, owner, renewal, replica

pytestmark = pytest.mark.integration

STEPS = 200
KEEP_S = 3600.0
"""Longer than all steps take by the clock: in a real store sessions and requests run out in real time."""
METHODS = {
    "open_owner": 1,
    "close_owner": 0.2,
    "tick": 8,
    "register_replica": 3,
    "remove_replica": 2,
    "drain_replica": 2,
    "claim_sessions": 5,
    "release_sessions": 1,
    "claim_requests": 3,
    "release_requests": 1,
    "put_graph": 2,
}
"""With how often they are taken."""

Step = tuple[str, tuple[Any, ...], dict[str, Any]]


class Steps:
    """Draws steps. Names are few, so that lives meet."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.epochs = [1]
        self.known: dict[int, dict[MetadataStore, Tick]] = {}
        """By epoch, the last tick of each store: incarnations of stores differ."""

    def pause_s(self) -> float:
        return self._draw.choice([0.0, 0.0, 0.0, 0.001, 0.3, 0.7, 1.001, 1.5])

    def next(self) -> Step:
        (name,) = self._draw.choices(list(METHODS), list(METHODS.values()))
        if len(self.epochs) == 1:
            name = "open_owner"
        arguments, options = getattr(self, f"_{name}")()
        epoch = () if name == "open_owner" else (self._draw.choice(self.epochs[-3:]),)
        return name, (*epoch, *arguments), options

    def _some(self, *values: Any) -> list[Any]:
        return self._draw.choices(values, k=self._draw.randrange(3))

    def _replica(self) -> Any:
        draw = self._draw.choice
        changes = {"lease_id": draw("lm"), "state": draw([1, 2, 3]), "drain_grace_s": draw([None, None, 1.5])}
        return replica(draw("01"), incarnation=draw("ijk"), **changes)

    def _open_owner(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (owner(self._draw.choice("ab"), self._draw.choice("123")),), {"ttl_s": 1.5}

    def _close_owner(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {}

    def _tick(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        rows = [self._replica() for _ in range(self._draw.randrange(3))]
        renewals = [renewal(row, state=row.state, load=self._draw.choice([b"", b"x"])) for row in rows]
        options = {"is_draining": self._draw.random() < 0.2, "ttl_s": 1.5, "replica_ttl_s": REPLICA_TTL_S}
        return (), {"renewals": renewals, **options}

    def _register_replica(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self._replica(),), {"ttl_s": REPLICA_TTL_S}

    def _remove_replica(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        row = self._replica()
        return (row.lease_id, row.name), {}

    def _drain_replica(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        row = self._replica()
        return (row.name,), {"grace_s": 2.0, "state": row.state}

    def _claim_sessions(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self._some(("t", "x"), ("t", "y")),), {"keep_s": KEEP_S}

    def _release_sessions(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self._some(("t", "x"), ("t", "y")),), {}

    def _claim_requests(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self._some(("t", "x", "c", b""), ("t", "x", "c d", b" e"), ("t", "y", "c", b"f")),), {"keep_s": KEEP_S}

    def _release_requests(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self._some(("t", "x", "c"), ("t", "x", "c d"), ("t", "y", "c")),), {}

    def _put_graph(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        row = GraphRow(
            name=self._draw.choice("gh"), version=self._draw.randrange(1, 5), payload=self._draw.choice([b"", b"x"])
        )
        return (row,), {}


async def taken(store: MetadataStore, steps: Steps, step: Step) -> Any:
    """The answer to a step, without what stores draw by themselves."""
    name, arguments, options = step
    if name == "tick":
        known = steps.known.get(arguments[0], {}).get(store)
        options = options | {
            "replica_revision": known.replica_revision if known else 0,
            "store_incarnation": known.store_incarnation if known else "",
        }
    try:
        answer = await getattr(store, name)(*arguments, **options)
    except OmniFlowError as error:
        return error.info
    if isinstance(answer, Tick):
        steps.known.setdefault(arguments[0], {})[store] = answer
        return dataclasses.replace(answer, store_incarnation="")
    return answer


@pytest.mark.parametrize("seed", range(12))
async def test_stores_answer_alike(valkey: ValkeyWorld, seed: int) -> None:
    memory, steps = MemoryStore(valkey.clock), Steps(seed)
    for _ in range(STEPS):
        valkey.clock.advance(steps.pause_s())
        step = steps.next()
        expected = await taken(memory, steps, step)
        assert await taken(valkey.store, steps, step) == expected, step
        if step[0] == "open_owner":
            steps.epochs.append(expected)
    assert await valkey.store.graphs() == await memory.graphs()
