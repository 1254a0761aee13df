"""Options of a node: words of the DSL to the message, and what can be checked of them at the line that sets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from omniflow.graph_errors import GraphError, nearest
from omniflow.interface import Interface
from omniflow.values import ValueType
from omniflow.workflow.v1 import graph_spec_pb2 as pb

Balance = Literal[
    "least_loaded",
    "round_robin",
    "random",
    "power_of_two",
    "consistent_hash",
    "session_affinity",
    "cost_aware",
    "kv_aware",
]
OnImpossible = Literal["fail", "skip"]
OnFailure = Literal["fail_call", "skip"]
Replay = Literal["none", "restart", "continue"]

# Defaults stay unset in the message: a graph keeps its revision when an option is added to the contract.
_BALANCE: dict[Balance, pb.BalancePolicy] = {
    "least_loaded": pb.BALANCE_POLICY_UNSPECIFIED,
    "round_robin": pb.BALANCE_POLICY_ROUND_ROBIN,
    "random": pb.BALANCE_POLICY_RANDOM,
    "power_of_two": pb.BALANCE_POLICY_POWER_OF_TWO,
    "consistent_hash": pb.BALANCE_POLICY_CONSISTENT_HASH,
    "session_affinity": pb.BALANCE_POLICY_SESSION_AFFINITY,
    "cost_aware": pb.BALANCE_POLICY_COST_AWARE,
    "kv_aware": pb.BALANCE_POLICY_KV_AWARE,
}
_ON_IMPOSSIBLE: dict[OnImpossible, pb.OnImpossible] = {
    "fail": pb.ON_IMPOSSIBLE_UNSPECIFIED,
    "skip": pb.ON_IMPOSSIBLE_SKIP,
}
_ON_FAILURE: dict[OnFailure, pb.OnFailure] = {"fail_call": pb.ON_FAILURE_UNSPECIFIED, "skip": pb.ON_FAILURE_SKIP}
_REPLAY: dict[Replay, pb.ReplayMode] = {
    "none": pb.REPLAY_MODE_UNSPECIFIED,
    "restart": pb.REPLAY_MODE_RESTART,
    "continue": pb.REPLAY_MODE_CONTINUE,
}

_MAX_YIELD_WINDOW = 65_536
_UINT32_MAX = 2**32 - 1
"""Limits of proto/omniflow/workflow/v1/graph_spec.proto."""

_Word = TypeVar("_Word", bound=str)
_Number = TypeVar("_Number", bound=int)


def set_words(
    message: pb.Node, *, balance: Balance, on_impossible: OnImpossible, on_failure: OnFailure, replay: Replay
) -> None:
    """Sets the options that are one of a few words. Raises GraphError that names the words."""
    message.balance = _meaning(message.name, "balance", balance, _BALANCE)
    message.on_impossible = _meaning(message.name, "on_impossible", on_impossible, _ON_IMPOSSIBLE)
    message.on_failure = _meaning(message.name, "on_failure", on_failure, _ON_FAILURE)
    message.replay = _meaning(message.name, "replay", replay, _REPLAY)


def set_cost(message: pb.Node, interface: type[Interface], field: str) -> None:
    """Sets the field that tells the cost of an activation. Raises GraphError for none, or for a policy without costs."""
    if not field:
        return
    fields = {name for group in interface.inputs.values() for name in group}
    if field not in fields:
        raise GraphError(
            f"node {message.name!r}: cost names the field {field!r}, which is no input{nearest(field, fields)}"
        )
    if message.balance != pb.BALANCE_POLICY_COST_AWARE:
        raise GraphError(
            f"node {message.name!r}: cost={field!r} needs balance='cost_aware'; no other policy looks at it"
        )
    message.cost_field = field


def set_limits(message: pb.Node, *, yield_window: int, loop_bound: int, timeout_s: float | None) -> None:
    """Sets the options that are numbers. Raises GraphError for those out of range."""
    message.yield_window = _whole(message.name, "yield_window", yield_window, _MAX_YIELD_WINDOW)
    message.loop_bound = _whole(message.name, "loop_bound", loop_bound, _UINT32_MAX)
    if timeout_s is not None:
        if not isinstance(timeout_s, int | float) or not timeout_s >= 0.001:
            raise GraphError(f"node {message.name!r}: timeout_s is {timeout_s!r}; write 0.001 seconds or more")
        message.timeout.FromMicroseconds(round(timeout_s * 1e6))


def set_global_parameters(message: pb.Node, names: Sequence[str], known: Sequence[str]) -> None:
    """Sets the global parameters that the node reads or writes. Raises GraphError for undeclared ones."""
    if isinstance(names, str):
        raise GraphError(f"node {message.name!r}: write global_parameters=[{names!r}], a list, for one name")
    for name in names:
        if name not in known:
            raise GraphError(f"node {message.name!r}: the graph has no global parameter {name!r}{nearest(name, known)}")
        message.global_parameters.append(name)


def set_count_join(message: pb.Node, interface: type[Interface], triggers: Mapping[str, str | int]) -> None:
    """Makes the node a count join: each trigger field with the field that gives its count, or with a number.

    Raises GraphError for fields that the interface does not have and for counts that cannot be.
    """
    fields = {name: field for group in interface.inputs.values() for name, field in group.items()}
    where = f"node {message.name!r}: activate_by_count"
    for trigger, count in triggers.items():
        if trigger not in fields:
            raise GraphError(f"{where} names the field {trigger!r}, which is no input{nearest(trigger, fields)}")
        if isinstance(count, str):
            if count not in fields:
                raise GraphError(f"{where} counts {trigger!r} by {count!r}, which is no input{nearest(count, fields)}")
            if count in triggers:
                raise GraphError(f"{where} counts {trigger!r} by {count!r}, which is counted itself")
            if fields[count].type is not ValueType.JSON:
                raise GraphError(
                    f"{where} counts {trigger!r} by {count!r}, which is {fields[count].type.name}; "
                    "a count is an integer of a JSON field"
                )
            message.activate_by_count.add(field=trigger, count_field=count)
        elif isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _UINT32_MAX:
            raise GraphError(f"{where} counts {trigger!r} by {count!r}; write the name of a JSON field, or a number")
        else:
            message.activate_by_count.add(field=trigger, constant=count)


def _meaning(node: str, option: str, word: _Word, meanings: Mapping[_Word, _Number]) -> _Number:
    if word not in meanings:
        raise GraphError(f"node {node!r}: {option} cannot be {word!r}{nearest(word, meanings)}")
    return meanings[word]


def _whole(node: str, option: str, number: int, most: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
        raise GraphError(f"node {node!r}: {option} is {number!r}; write a whole number from 0 to {most}")
    return number
