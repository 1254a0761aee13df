"""Which transports to a replica are tried, and in which order: the lanes that it offers and this process takes, then gRPC.

A lane's path may exist on another host too, or have been taken over by another process: the hello tells, and the next is
tried.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from omniflow.links.dialing.grpc_stream import GrpcStream
from omniflow.links.dialing.port import Transport
from omniflow.links.dialing.unix_lane import UnixLane
from omniflow.links.port import LaneKind
from omniflow.role.v1 import replica_pb2

log = logging.getLogger(__name__)


def transports_to(replica: replica_pb2.Replica, lanes: Sequence[LaneKind]) -> list[Transport]:
    """New transports, the one to try first at the front."""
    offers = {offer.kind: offer.address for offer in replica.lanes}
    found = [_lane(kind, offers[kind.value]) for kind in lanes if kind.value in offers]
    return [*(lane for lane in found if lane is not None), GrpcStream(replica.endpoint)]


def _lane(kind: LaneKind, address: str) -> Transport | None:
    if kind is LaneKind.UNIX_FRAMES:
        return UnixLane(address)
    try:
        from omniflow.links.dialing.zmq_lane import ZmqLane  # pyzmq is optional
    except ImportError:
        log.warning("the lane %s cannot be used: pyzmq is not installed", kind.value)
        return None
    return ZmqLane(address)
