"""Order in trees of yields: return order of outputs, and start order of session-ordered nodes.

An activation stands below one yield of its parent. Of two yields of one activation, everything below the earlier one comes
first; a yield's own events come before what stands below it; two children of one yield have no order between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.properties.flow_evaluator import Outcome
from tests.properties.flow_values import Activation, Value, Yielded

START = -1
"""Stands for an activation's start, before its yields."""

Chain = tuple[Yielded, ...]


class OrderError(AssertionError):
    """Two events came in the wrong order; the message names them."""


def check_return_order(outcome: Outcome, output: str, emitted: Sequence[Value]) -> None:
    """The events of an ordered output, all of them or those that came before the call was cut off."""
    check_activation_order(outcome, output, emitted)
    keys = [(v.producer, v.ordinal) for v in emitted]
    _check(Chains(outcome), f"output {output}", keys)


def check_activation_order(outcome: Outcome, output: str, emitted: Sequence[Value]) -> None:
    """The events of any output: none twice, none unforeseen, those of one activation in order."""
    expected: dict[Activation, list[Value]] = {}
    for value in sorted(outcome.emissions.get(output, []), key=lambda v: v.ordinal):
        expected.setdefault(value.producer, []).append(value)
    came: dict[Activation, list[Value]] = {}
    for value in emitted:
        came.setdefault(value.producer, []).append(value)
    for activation, values in came.items():
        if values != expected.get(activation, [])[: len(values)]:
            raise OrderError(f"output {output} got {values}, should be {expected.get(activation, [])}")


def check_start_order(outcome: Outcome, node: str, started: Sequence[Activation]) -> None:
    """The starts of a session-ordered node."""
    _check(Chains(outcome), f"starts of {node}", [(activation, START) for activation in started])


class Chains:
    """From a yield up to the root, outermost first. The call's ports are one root."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._known: dict[Activation, Chain] = {}

    def __getitem__(self, key: Yielded) -> Chain:
        return (*self.above(key[0]), key)

    def above(self, activation: Activation) -> Chain:
        found = self._known.get(activation)
        if found is None:
            below = self._outcome.places[activation].below
            found = self._known[activation] = self[below] if below is not None else ()
        return found

    def is_port(self, activation: Activation) -> bool:
        return self._outcome.places[activation].kind is None


def _check(chains: Chains, what: str, keys: Sequence[Yielded]) -> None:
    _check_level(chains, what, [chains[key] for key in keys], 0)


def _check_level(chains: Chains, what: str, items: Sequence[Chain], depth: int) -> None:
    for siblings in _by_activation(chains, items, depth).values():
        last = START
        below: dict[int, list[Chain]] = {}
        for chain in siblings:
            ordinal = chain[depth][1]
            if ordinal < last:
                raise OrderError(f"{what}: something below yield {last} came before {chain[-1]} below {ordinal}")
            last = ordinal
            if len(chain) > depth + 1:
                below.setdefault(ordinal, []).append(chain)
            elif below.get(ordinal):
                raise OrderError(f"{what}: {below[ordinal][0][-1]} came before {chain[-1]}, which it follows from")
        for chains_below in below.values():
            _check_level(chains, what, chains_below, depth + 1)


def _by_activation(chains: Chains, items: Sequence[Chain], depth: int) -> Mapping[object, list[Chain]]:
    found: dict[object, list[Chain]] = {}
    for chain in items:
        activation = chain[depth][0]
        found.setdefault("call" if chains.is_port(activation) else activation, []).append(chain)
    return found
