"""Bugs planted in the core, each found by the comparison that the fuzzer makes, and within few graphs.

The core's own integrity checks are off here, and what it raises itself does not count: the comparison has to find them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from omniflow_core.control.buckets import Bucket
from omniflow_core.control.gates import ExecutionGate
from omniflow_core.control.joins import PrefixJoins
from omniflow_core.control.leases import LeaseTable
from omniflow_core.control.ordering import OrderNode, OrderTree
from omniflow_core.control.scheduler import CallScheduler
from tests.properties.flow_case import Difference, Mix, run_case

MOST_CASES = 60
"""Graphs until a planted bug must have been found; `test_flow_properties` finds no difference in as many."""


def drop_leases(patch: pytest.MonkeyPatch) -> None:
    """Every third activation or reservation is not tracked, so buckets close early."""
    acquire = LeaseTable.acquire

    def forgetful(self: LeaseTable, root: int, holder: int) -> None:
        if holder % 3:
            acquire(self, root, holder)

    patch.setattr(LeaseTable, "acquire", forgetful)


def ignore_predecessors(patch: pytest.MonkeyPatch) -> None:
    """Contributions stay in order of arrival."""
    patch.setattr(Bucket, "_rank", lambda self, item: item[0])


def reuse_buckets(patch: pytest.MonkeyPatch) -> None:
    """A yield of an anchor whose previous yield's bucket is still open gets that one."""
    open_bucket = PrefixJoins.open

    def reusing(self: PrefixJoins, *arguments: object) -> tuple[Mapping[int, int], Sequence[int]]:
        scopes, opened = open_bucket(self, *arguments)  # type: ignore[arg-type]
        known = self._work.buckets.values()
        first = {join: min(b.bucket_id for b in known if b.join.index == join) for join in scopes}
        return first, opened

    patch.setattr(PrefixJoins, "open", reusing)


def ignore_earlier_siblings(patch: pytest.MonkeyPatch) -> None:
    """Events of ordered outputs are released as they come."""
    patch.setattr(OrderTree, "is_next", lambda self, node, ordinal: True)


def start_out_of_turn(patch: pytest.MonkeyPatch) -> None:
    """Starts at a gate do not wait for earlier siblings, though still for each other."""

    def release(self: OrderTree, node: OrderNode, start: object, out: list[object]) -> None:
        out.append(start)

    patch.setattr(OrderTree, "hold_start", release)


def open_gates(patch: pytest.MonkeyPatch) -> None:
    """Activations of a session-ordered node run side by side."""
    patch.setattr(ExecutionGate, "enter", lambda self, start: start)


def find(seeds: range) -> Difference | None:
    """The first difference of some cases that is no crash of the core."""
    mix = Mix()
    for seed in seeds:
        try:
            run_case(seed, mix, turns=4)
        except Difference as difference:
            if not difference.is_crash:
                return difference
    return None


BUGS = [drop_leases, ignore_predecessors, reuse_buckets, ignore_earlier_siblings, start_out_of_turn, open_gates]


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_comparison_finds(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallScheduler, "check_integrity", lambda self: None)
    plant(monkeypatch)
    assert find(range(MOST_CASES)) is not None
