"""WorkflowService over a real socket."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import grpc
import grpc.aio
import pytest

from omniflow.codec.error import error_from_rpc
from omniflow.dsl import Graph
from omniflow.interface import Interface
from omniflow.values import ValueType
from omniflow.workflow.v1 import graph_spec_pb2, workflow_service_pb2_grpc
from omniflow.workflow.v1 import workflow_service_pb2 as pb
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.compose import ControlPlane
from tests.roles.running import eventually
from tests.server.cli.recorded import Pair, Step, diamond
from tests.server.control.planes import channel_to, plane
from tests.server.rpc.client import GraphClient, texts
from tests.server.rpc.interfaces import INTERFACES
from tests.support.interfaces import Gate, Words


def spec(name: str, interface: type[Interface] = Words) -> graph_spec_pb2.GraphSpec:
    graph = Graph(name)
    node = graph.node("node", interface, inline=True)
    graph.input("text", ValueType.TEXT) >> node.inputs.field("text")
    node.output("text") >> graph.output("text", ValueType.TEXT)
    return graph.spec()


@pytest.fixture
def stub(client: GraphClient) -> Any:
    return workflow_service_pb2_grpc.WorkflowServiceStub(client.channel)


async def refusal(awaitable: Any) -> OmniFlowError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return error_from_rpc(caught.value)


async def test_applied_graph_can_be_called(stub: Any, client: GraphClient) -> None:
    applied = (await stub.ApplyGraph(pb.ApplyGraphRequest(graph=spec("new")))).graph
    assert len(applied.revision) == 16
    assert (await stub.GetGraph(pb.GetGraphRequest(name="graphs/new"))).graph == applied
    events, _ = await client.stream("new", inputs={"text": "a b"}).rest()
    assert texts(events) == ["A", "B"]


async def test_running_calls_keep_the_revision_that_they_started_with(stub: Any, client: GraphClient) -> None:
    await stub.ApplyGraph(pb.ApplyGraphRequest(graph=spec("new", Gate)))
    reader = client.stream("new", inputs={"text": "g"})
    await reader.expect("accepted")
    await stub.ApplyGraph(pb.ApplyGraphRequest(graph=spec("new", Words)))
    Gate.gates["g"].set()
    assert texts((await reader.rest())[0]) == ["began", "g"]
    assert texts((await client.stream("new", inputs={"text": "g"}).rest())[0]) == ["G"]


async def test_validate_only_installs_nothing(stub: Any) -> None:
    await stub.ApplyGraph(pb.ApplyGraphRequest(graph=spec("new"), validate_only=True))
    error = await refusal(stub.GetGraph(pb.GetGraphRequest(name="graphs/new")))
    assert (error.reason, error.code.name) == (Reason.UNKNOWN_GRAPH, "NOT_FOUND")


async def test_graph_with_findings_is_refused_and_validated_as_data(stub: Any) -> None:
    bad = spec("bad")
    bad.edges[0].source_field = "txet"
    bad.nodes[0].interface = "test.wordss"
    diagnostics = (await stub.ValidateGraph(pb.ValidateGraphRequest(graph=bad))).diagnostics
    assert [(d.reason, d.field) for d in diagnostics] == [
        ("UNKNOWN_FIELD", "edges[0].source_field"),
        ("UNKNOWN_INTERFACE", "graph.nodes[0].interface"),
    ]
    assert diagnostics[0].fix == "Did you mean 'text'?"
    assert diagnostics[1].node == "node"
    error = await refusal(stub.ApplyGraph(pb.ApplyGraphRequest(graph=bad)))
    assert (error.reason, error.code.name) == (Reason.INVALID_GRAPH, "INVALID_ARGUMENT")
    assert [v.field for v in error.violations] == [d.field for d in diagnostics]
    assert (await stub.ValidateGraph(pb.ValidateGraphRequest(graph=spec("good")))).diagnostics == []


async def test_graphs_are_listed_in_pages(stub: Any) -> None:
    whole = (await stub.ListGraphs(pb.ListGraphsRequest())).graphs
    names = [graph.name for graph in whole]
    assert names == sorted(names)
    paged: list[str] = []
    token = ""
    for _ in range(len(names)):
        response = await stub.ListGraphs(pb.ListGraphsRequest(page_size=4, page_token=token))
        paged += [graph.name for graph in response.graphs]
        token = response.next_page_token
        if not token:
            break
    assert paged == names


async def test_explain_tells_routes(stub: Any) -> None:
    named = await stub.ExplainGraph(pb.ExplainGraphRequest(name="graphs/shout"))
    assert [(g.node, g.group, g.kind, g.anchor_node) for g in named.groups] == [
        ("words", "main", pb.JOIN_KIND_SINGLE, ""),
        ("exclaim", "main", pb.JOIN_KIND_SINGLE, "words"),
    ]
    assert [list(r.nodes) for g in named.groups for r in g.routes] == [[""], ["words"]]
    assert named.edge_count == 4
    assert "words" in named.text
    given = await stub.ExplainGraph(pb.ExplainGraphRequest(graph=spec("fresh")))
    assert [g.node for g in given.groups] == ["node"]
    assert (await refusal(stub.ExplainGraph(pb.ExplainGraphRequest()))).violations[0].field == "name"
    assert (await refusal(stub.ExplainGraph(pb.ExplainGraphRequest(name="graphs/x")))).reason is Reason.UNKNOWN_GRAPH


async def test_explain_tells_joins_and_draws_them() -> None:
    async with plane(Step, Pair, graphs=[diamond()]) as made, channel_to(made.target) as channel:
        stub = workflow_service_pb2_grpc.WorkflowServiceStub(channel)
        response = await stub.ExplainGraph(pb.ExplainGraphRequest(name="graphs/diamond"))
    groups = {group.node: group for group in response.groups}
    assert (groups["j"].kind, groups["j"].anchor_node) == (pb.JOIN_KIND_PREFIX, "a")
    assert [(list(r.nodes), list(r.fields)) for r in groups["j"].routes] == [(["a", "b"], ["p"]), (["a", "c"], ["q"])]
    assert 'data-node="j"' in response.svg


class Slow(Words):
    """Takes its time to set up."""

    name = "test.slow"
    made: ClassVar[list[object]] = []
    gate: ClassVar[asyncio.Event]

    async def setup(self) -> None:
        type(self).made.append(self)
        await self.gate.wait()


async def test_interface_is_set_up_once_however_many_graphs_name_it() -> None:
    Slow.made, Slow.gate = [], asyncio.Event()
    async with plane(*INTERFACES, Slow) as made, channel_to(made.target) as channel:
        stub = workflow_service_pb2_grpc.WorkflowServiceStub(channel)
        applying = [asyncio.ensure_future(stub.ApplyGraph(pb.ApplyGraphRequest(graph=spec(n, Slow)))) for n in "ab"]
        await eventually(lambda: Slow.made)
        assert made.catalog.names() == [], "a graph is callable when its interfaces are ready"
        Slow.gate.set()
        await asyncio.gather(*applying)
        assert len(Slow.made) == 1
        assert made.catalog.names() == ["graphs/a", "graphs/b"]


async def test_graph_whose_interface_cannot_be_set_up_is_not_installed(
    made: ControlPlane, stub: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Interface) -> None:
        raise RuntimeError("secret")

    made.inline._interfaces.pop(Words.name)
    monkeypatch.setattr(Words, "setup", fail, raising=False)
    error = await refusal(stub.ApplyGraph(pb.ApplyGraphRequest(graph=spec("new"))))
    assert error.reason is Reason.INTERNAL
    assert "secret" not in str(error)
    assert "graphs/new" not in made.catalog.names()
    monkeypatch.undo()
    await stub.ApplyGraph(pb.ApplyGraphRequest(graph=spec("new")))
