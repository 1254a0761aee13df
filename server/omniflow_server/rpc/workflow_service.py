"""WorkflowService: translates between its messages, the catalog and the directory of the cluster's graphs."""

from __future__ import annotations

from omniflow.rpc_errors import ServicerContext
from omniflow.workflow.v1 import workflow_service_pb2 as pb
from omniflow.workflow.v1 import workflow_service_pb2_grpc as pb_grpc
from omniflow_core.errors import invalid_field
from omniflow_core.graph.drawing import draw
from omniflow_core.graph.explain import explain
from omniflow_core.graph.findings import Finding
from omniflow_core.graph.plan import GraphPlan, JoinKind
from omniflow_server.control.catalog import Catalog
from omniflow_server.control.graph_directory import GraphDirectory, GraphState
from omniflow_server.control.graph_versions import Revision
from omniflow_server.rpc.paging import how_many_fit, page
from omniflow_server.rpc.validate import validate


class WorkflowServicer(pb_grpc.WorkflowServiceServicer):
    """The methods. Changes and revisions are the cluster's; everything else is answered from what this process has."""

    def __init__(self, catalog: Catalog, directory: GraphDirectory) -> None:
        self._catalog = catalog
        self._directory = directory

    async def ValidateGraph(
        self, request: pb.ValidateGraphRequest, context: ServicerContext
    ) -> pb.ValidateGraphResponse:
        validate(request)
        return pb.ValidateGraphResponse(diagnostics=map(_diagnostic, self._catalog.check(request.graph)))

    async def ApplyGraph(self, request: pb.ApplyGraphRequest, context: ServicerContext) -> pb.ApplyGraphResponse:
        validate(request)
        if request.validate_only:
            return pb.ApplyGraphResponse(graph=self._catalog.compile(request.graph).message)
        canary_percent = request.canary_percent if request.HasField("canary_percent") else None
        entry = await self._directory.apply(request.graph, canary_percent)
        return pb.ApplyGraphResponse(graph=entry.message)

    async def ListGraphRevisions(
        self, request: pb.ListGraphRevisionsRequest, context: ServicerContext
    ) -> pb.ListGraphRevisionsResponse:
        validate(request)
        state = await self._directory.revisions(request.name)
        return pb.ListGraphRevisionsResponse(revisions=_revisions(state), etag=state.etag)

    async def SetGraphTraffic(
        self, request: pb.SetGraphTrafficRequest, context: ServicerContext
    ) -> pb.SetGraphTrafficResponse:
        validate(request)
        shares = [(share.revision, share.percent) for share in request.shares]
        state = await self._directory.set_traffic(request.name, shares, request.etag)
        return pb.SetGraphTrafficResponse(revisions=_revisions(state), etag=state.etag)

    async def GetGraph(self, request: pb.GetGraphRequest, context: ServicerContext) -> pb.GetGraphResponse:
        validate(request)
        if not request.revision:
            return pb.GetGraphResponse(graph=self._catalog.get(request.name).message)
        state = await self._directory.revisions(request.name)
        return pb.GetGraphResponse(graph=state.versions.find(request.revision).message)

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


def _revisions(state: GraphState) -> list[pb.GraphRevision]:
    """The newest first."""
    shares = state.versions.shares
    return [_revision(revision, shares[revision.name]) for revision in reversed(state.versions.revisions)]


def _revision(revision: Revision, percent: int) -> pb.GraphRevision:
    message = pb.GraphRevision(revision=revision.name, percent=percent)
    message.create_time.FromMilliseconds(revision.create_time_ms)
    return message


def _diagnostic(finding: Finding) -> pb.Diagnostic:
    return pb.Diagnostic(
        reason=finding.reason,
        field=finding.field,
        message=finding.message,
        fix=finding.fix,
        node=finding.node,
        group=finding.group,
    )
