"""Who comes first: whom a running sequence gives way to, who is admitted next, who has had more than others.

Running sequences keep their pages by priority, then arrival. Waiting ones are admitted by priority, to which waiting
adds; within it the share that was served least comes first, then arrival.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace

from omniflow_roles.engines.scheduling.sequences import LiveSequence


def _arrival(sequence: LiveSequence) -> int:
    return sequence.arrival


def _rank(sequence: LiveSequence) -> tuple[int, int]:
    return sequence.rank


class RunningOrder:
    """Running sequences, the one that keeps its pages longest first."""

    def __init__(self) -> None:
        self._sequences: list[LiveSequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[LiveSequence]:
        return iter(self._sequences)

    def __getitem__(self, place: int) -> LiveSequence:
        return self._sequences[place]

    def add(self, sequence: LiveSequence) -> None:
        insort(self._sequences, sequence, key=_rank)

    def remove(self, sequence: LiveSequence) -> None:
        place = bisect_left(self._sequences, sequence.rank, key=_rank)
        assert self._sequences[place] is sequence, "a sequence that does not run was taken from those that do"
        del self._sequences[place]

    def pop_lowest(self) -> LiveSequence:
        return self._sequences.pop()

    def check_integrity(self) -> None:
        ranks = [sequence.rank for sequence in self._sequences]
        assert ranks == sorted(set(ranks)), "running sequences are out of order"


class FairShare:
    """Tokens computed for each share, from when it last had nothing to do.

    A share that comes (again) starts level with the least served one: having been away earns no right to hold up the
    others, the lift of the virtual token counter (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024).
    Shares with nothing to do are forgotten, so there are never more counts than sequences.
    """

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._sequences: dict[str, int] = {}

    def enter(self, share: str) -> None:
        """The share has one more sequence."""
        if share not in self._sequences:
            self._served[share] = min(self._served.values(), default=0)
            self._sequences[share] = 0
        self._sequences[share] += 1

    def leave(self, share: str) -> None:
        """The share has one sequence less."""
        self._sequences[share] -= 1
        if not self._sequences[share]:
            del self._sequences[share], self._served[share]

    def charge(self, share: str, tokens: int) -> None:
        self._served[share] += tokens

    def served(self, share: str) -> int:
        return self._served[share]

    def check_integrity(self, shares: Iterable[str]) -> None:
        """`shares`: that of each sequence there is."""
        counts: dict[str, int] = {}
        for share in shares:
            counts[share] = counts.get(share, 0) + 1
        assert counts == self._sequences, "sequences of a share are miscounted"
        assert counts.keys() == self._served.keys(), "a share that is gone was kept"


class AdmissionOrder:
    """Ranks waiting sequences. Each `aging_steps` waited count as much as one of priority."""

    def __init__(self, shares: FairShare, *, aging_steps: int) -> None:
        self._shares = shares
        self._aging_steps = aging_steps

    def pick(self, waiting: Iterable[LiveSequence], now: int) -> Iterator[LiveSequence]:
        """The next in turn, again and again, by what shares have been served when asked. `now`: the last step's number."""
        queues: dict[tuple[int, str], list[LiveSequence]] = {}
        for sequence in waiting:
            priority = sequence.spec.priority + sequence.waited_steps(now) // self._aging_steps
            queues.setdefault((priority, sequence.spec.share), []).append(sequence)
        heads = []
        for (priority, share), queue in queues.items():
            queue.sort(key=_arrival, reverse=True)
            heads.append((-priority, self._shares.served(share), queue[-1].arrival, share, queue))
        heapify(heads)
        while heads:
            rank, served, arrival, share, queue = heads[0]
            if served != self._shares.served(share):  # it has been served since it was put here
                heapreplace(heads, (rank, self._shares.served(share), arrival, share, queue))
                continue
            yield queue.pop()
            if queue:
                heapreplace(heads, (rank, self._shares.served(share), queue[-1].arrival, share, queue))
            else:
                heappop(heads)

    def is_aged(self, sequence: LiveSequence, now: int) -> bool:
        """It has waited long enough to hold up those behind it."""
        return sequence.waited_steps(now) >= self._aging_steps
