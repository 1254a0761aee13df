"""What calls of the topologies must answer."""

from __future__ import annotations

import pytest

from omniflow.graph.v1 import graph_event_pb2 as pb
from tests.bench.control import topologies
from tests.bench.control.topologies import REPLIES, TOPOLOGIES, check_reply


def events(*more: pb.GraphEvent) -> list[pb.GraphEvent]:
    return [pb.GraphEvent(accepted=pb.CallAccepted()), pb.GraphEvent(started=pb.CallStarted()), *more]


def finished() -> pb.GraphEvent:
    return pb.GraphEvent(finished=pb.CallFinished())


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_reply_is_the_text_of_the_whole_graph(topology: str) -> None:
    check_reply(topology, events(pb.GraphEvent(value=REPLIES[topology]), finished()))


@pytest.mark.parametrize(
    "found",
    [
        events(finished()),
        events(pb.GraphEvent(value=REPLIES["fan5"])),
        events(pb.GraphEvent(value=REPLIES["diamond4"]), finished()),
        events(pb.GraphEvent(value=REPLIES["fan5"]), pb.GraphEvent(value=REPLIES["fan5"]), finished()),
        events(pb.GraphEvent(value=REPLIES["fan5"]), pb.GraphEvent(failed=pb.CallFailed())),
    ],
    ids=["no value", "no end", "another value", "a value twice", "failed"],
)
def test_reply_that_is_not_the_one_is_an_error(found: list[pb.GraphEvent]) -> None:
    with pytest.raises(RuntimeError, match="the reply is"):
        check_reply("fan5", found)


def test_roles_host_what_the_nodes_of_every_topology_name() -> None:
    hosted = {role.name: set(role.interfaces) for role in topologies.roles()}
    nodes = [node for topology in TOPOLOGIES for node in topologies.graph(topology).spec().nodes]
    assert all(node.interface in hosted[node.role] for node in nodes)
    assert len(hosted) == 5


def test_inline_graph_needs_no_role() -> None:
    spec = topologies.inline_spec("fan5")
    assert {(node.role, node.is_inline) for node in spec.nodes} == {("", True)}
    assert spec.name == topologies.graph_name("fan5", is_inline=True)
    assert spec.name != topologies.graph_name("fan5", is_inline=False)
