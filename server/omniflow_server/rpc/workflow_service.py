"""WorkflowService: translates between its messages and the catalog."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from omniflow.rpc_errors import ServicerContext
from omniflow.workflow.v1 import workflow_service_pb2 as pb
from omniflow.workflow.v1 import workflow_service_pb2_grpc as pb_grpc
from omniflow_core.errors import invalid_field
from omniflow_core.graph.drawing import draw
from omniflow_core.graph.explain import explain
from omniflow_core.graph.findings import Finding
from omniflow_core.graph.plan import GraphPlan, JoinKind
from omniflow_server.control.catalog import Catalog, CatalogEntry
from omniflow_server.rpc.paging import how_many_fit, page
from omniflow_server.rpc.validate import validate


class WorkflowServicer(pb_grpc.WorkflowServiceServicer):
    """The methods. `install` makes a compiled graph callable: its inline interfaces are set up first."""

    def __init__(self, catalog: Catalog, install: Callable[[CatalogEntry], Awaitable[None]]) -> None:
        self._catalog = catalog
        self._install = install

    async def ValidateGraph(
        self, request: pb.ValidateGraphRequest, context: ServicerContext
    ) -> pb.ValidateGraphResponse:
        validate(request)
        return pb.ValidateGraphResponse(diagnostics=map(_diagnostic, self._catalog.check(request.graph)))

    async def ApplyGraph(self, request: pb.ApplyGraphRequest, context: ServicerContext) -> pb.ApplyGraphResponse:
        validate(request)
        entry = self._catalog.compile(request.graph)
        if not request.validate_only:
            await self._install(entry)
        return pb.ApplyGraphResponse(graph=entry.message)

    async def GetGraph(self, request: pb.GetGraphRequest, context: ServicerContext) -> pb.GetGraphResponse:
        validate(request)
        return pb.GetGraphResponse(graph=self._catalog.get(request.name).message)

    async def ListGraphs(self, request: pb.ListGraphsRequest, context: ServicerContext) -> pb.ListGraphsResponse:
        validate(request)
        names, next_token = page(self._catalog.names(), request.page_size, request.page_token)
        graphs = [self._catalog.get(name).message for name in names]
        fitting = how_many_fit([graph.ByteSize() for graph in graphs])
        if fitting < len(graphs):
            next_token = names[fitting - 1]
        return pb.ListGraphsResponse(graphs=graphs[:fitting], next_page_token=next_token)

    async def ExplainGraph(self, request: pb.ExplainGraphRequest, context: ServicerContext) -> pb.ExplainGraphResponse:
        validate(request)
        if request.HasField("graph"):
            plan = self._catalog.compile(request.graph).plan
        elif request.name:
            plan = self._catalog.get(request.name).plan
        else:
            raise invalid_field("name", "give name or graph")
        return explanation(plan)


def explanation(plan: GraphPlan) -> pb.ExplainGraphResponse:
    """The plan as a message."""
    response = pb.ExplainGraphResponse(edge_count=len(plan.spec.edges), text=explain(plan), svg=draw(plan))
    for planned in plan.groups:
        group = response.groups.add(
            node=planned.node, group=planned.group, kind=JOIN_KINDS[planned.kind], anchor_node=planned.anchor
        )
        for route in planned.routes:
            group.routes.add(nodes=route.nodes, fields=route.fields)
    return response


JOIN_KINDS = {
    JoinKind.SINGLE: pb.JOIN_KIND_SINGLE,
    JoinKind.PREFIX: pb.JOIN_KIND_PREFIX,
    JoinKind.COUNT: pb.JOIN_KIND_COUNT,
}


def _diagnostic(finding: Finding) -> pb.Diagnostic:
    return pb.Diagnostic(
        reason=finding.reason,
        field=finding.field,
        message=finding.message,
        fix=finding.fix,
        node=finding.node,
        group=finding.group,
    )
