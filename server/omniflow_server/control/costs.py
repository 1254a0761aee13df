"""What activations cost, and how fast replicas work that off: the figures of cost-aware balancing.

    cost of a start      number of Node.cost_field          cost_of
    seconds it took      mean of seconds per unit of cost   Costs.observe
    next choice          Candidate.seconds_per_cost         Costs.expected

Costs of one node compare with each other and with no other node's: one counts tokens, another bytes. Who chooses, and which
activations are measured, is the dispatcher's.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from google.protobuf import struct_pb2

from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow_core.errors import OmniFlowError
from omniflow_server.control.carried import CarriedValue

DEFAULT_COST = 1.0
"""Of an activation that says nothing about it."""
ALPHA = 0.2
"""Weight of the newest activation: half of the mean is of the last three, so that a change is seen and an outlier passes."""
MAX_NODES = 4096
"""Nodes that are measured; the one that has not run for longest goes. Applied graphs would otherwise pile up."""


def cost_of(value: object) -> float:
    """What a field's value says of the cost: a JSON number as it is, tokens and text by length, payloads by bytes.

    1 for what says nothing: a field that is not there, an empty one, a number that is no cost. Also for a value that cannot
    be sent: it fails its activation when it is sent, not while a replica is chosen.
    """
    if not isinstance(value, CarriedValue):
        return DEFAULT_COST
    try:
        size = _payload_bytes(value)
        number = float(size) if size is not None else _number_of(value.message)
    except (OmniFlowError, TypeError, ValueError):
        return DEFAULT_COST
    return number if math.isfinite(number) and number > 0 else DEFAULT_COST


def _payload_bytes(value: CarriedValue) -> int | None:
    """Bytes of the payload wherever they are kept; None for kinds without one."""
    if not value.is_larger_than(-1):
        return None
    place = value.split()[1]
    return place.size_bytes if isinstance(place, tensor_pb2.RemoteRef) else place.nbytes


def _number_of(message: value_pb2.Value) -> float:
    kind = message.WhichOneof("kind")
    if kind == "json":
        return _json_number(message.json)
    if kind == "tokens":
        return float(len(message.tokens.ids) or len(message.tokens.text))
    return float(len(message.text))


def _json_number(message: struct_pb2.Value) -> float:
    return message.number_value if message.WhichOneof("kind") == "number_value" else DEFAULT_COST


class Costs:
    """Measured seconds per unit of cost, by node and replica; exponentially weighted means."""

    def __init__(self) -> None:
        self._seconds: OrderedDict[str, dict[str, float]] = OrderedDict()

    def observe(self, node: str, replica: str, cost: float, seconds: float) -> None:
        """An activation of the node has taken so long on the replica."""
        if not (cost > 0 and seconds >= 0 and math.isfinite(seconds / cost)):
            return
        replicas = self._seconds.setdefault(node, {})
        self._seconds.move_to_end(node)
        known = replicas.get(replica)
        latest = seconds / cost
        replicas[replica] = latest if known is None else known + ALPHA * (latest - known)
        if len(self._seconds) > MAX_NODES:
            self._seconds.popitem(last=False)

    def expected(self, node: str, replica: str = "") -> float:
        """Seconds for one unit of cost on the replica, or, without one, on those that were measured; 0: unknown."""
        replicas = self._seconds.get(node)
        if not replicas:
            return 0.0
        return replicas.get(replica, 0.0) if replica else sum(replicas.values()) / len(replicas)

    def forget(self, replica: str) -> None:
        """The replica is gone, or begins a new life."""
        for node in [node for node, replicas in self._seconds.items() if replicas.pop(replica, None) is not None]:
            if not self._seconds[node]:
                del self._seconds[node]
