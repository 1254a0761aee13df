"""Revisions of graphs over a real socket: two control planes with one metadata store, and the Python client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc.aio
import pytest

import omniflow
from omniflow.rpc_errors import ErrorAnswering
from omniflow.workflow.v1 import workflow_service_pb2 as pb
from omniflow.workflow.v1 import workflow_service_pb2_grpc
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.memory import MemoryStore
from omniflow_server.rpc.workflow_service import WorkflowServicer
from tests.server.control.cluster import NAME, Process, process, spec


@contextlib.asynccontextmanager
async def served(made: Process) -> AsyncIterator[omniflow.Client]:
    """A client of a server that has the workflow service alone."""
    server = grpc.aio.server()
    workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server(
        WorkflowServicer(made.catalog, made.directory), ErrorAnswering(server)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with omniflow.connect(f"127.0.0.1:{port}") as client:
            yield client
    finally:
        await server.stop(None)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 1_000.0)


@pytest.fixture
async def made(store: MemoryStore) -> Process:
    return await process(store, "a")


@pytest.fixture
async def client(made: Process) -> AsyncIterator[omniflow.Client]:
    async with served(made) as opened:
        yield opened


async def refusal(awaitable: Awaitable[Any]) -> OmniFlowError:
    with pytest.raises(OmniFlowError) as caught:
        await awaitable
    assert caught.value.is_stated
    return caught.value


def shares(found: omniflow.GraphRevisions) -> dict[str, int]:
    """Percents by revision, as they are listed."""
    return {each.revision: each.percent for each in found.revisions}


async def test_revisions_are_listed_newest_first_with_shares_times_and_an_etag(
    client: omniflow.Client, made: Process
) -> None:
    made.clock_ms.append(1_700_000_000_123)
    one = await client.apply(spec("one"), canary_percent=5)
    made.clock_ms.append(1_700_000_099_007)
    two = await client.apply(spec("two"), canary_percent=10)
    found = await client.graph_revisions("demo")
    assert found == omniflow.GraphRevisions(
        revisions=(
            omniflow.GraphRevision(revision=two.revision, create_unix_s=1_700_000_099.007, percent=10),
            omniflow.GraphRevision(revision=one.revision, create_unix_s=1_700_000_000.123, percent=90),
        ),
        etag="2",
    )


async def test_canary_of_nothing_is_kept_without_calls(client: omniflow.Client) -> None:
    one = await client.apply(spec("one"))
    two = await client.apply(spec("two"), canary_percent=0)
    assert shares(await client.graph_revisions("demo")) == {two.revision: 0, one.revision: 100}
    await client.apply(spec("two"))
    assert shares(await client.graph_revisions("demo")) == {two.revision: 100, one.revision: 0}


async def test_canary_beyond_the_whole_is_refused(client: omniflow.Client) -> None:
    error = await refusal(client.apply(spec("one"), canary_percent=101))
    assert error.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in error.violations] == ["canary_percent"]


async def test_graph_is_read_by_revision(client: omniflow.Client) -> None:
    one, two = [await client.apply(spec(description)) for description in ("one", "two")]
    assert await client.get_graph("demo") == two
    assert await client.get_graph("demo", one.revision) == one
    error = await refusal(client.get_graph("demo", "f00"))
    assert error.reason is Reason.UNKNOWN_RESOURCE
    assert error.message == (f"{NAME} has no revision 'f00'; kept, the newest first: {two.revision}, {one.revision}.")
    assert (await refusal(client.get_graph("other", one.revision))).reason is Reason.UNKNOWN_GRAPH


async def test_traffic_of_one_control_plane_is_that_of_the_other(
    client: omniflow.Client, made: Process, store: MemoryStore
) -> None:
    one, two = [(await client.apply(spec(description))).revision for description in ("one", "two")]
    other = await process(store, "b")
    async with served(other) as there:
        seen = await there.graph_revisions("demo")
        changed = await there.set_traffic("demo", {one: 75, two: 25}, etag=seen.etag)
        assert shares(changed) == {two: 25, one: 75}
        assert await client.graph_revisions("demo") == changed, "what is listed is what the cluster has"
        error = await refusal(client.set_traffic("demo", {one: 100}, etag=seen.etag))
        assert error.reason is Reason.CONFLICT
        assert error.code is omniflow.Code.ABORTED
    await made.directory.refresh()
    assert made.shares() == {"one": 75, "two": 25}
    assert await client.get_graph("demo") == (await client.get_graph("demo", one))


async def test_traffic_that_cannot_be_names_each_share(client: omniflow.Client) -> None:
    one = (await client.apply(spec("one"))).revision
    request = pb.SetGraphTrafficRequest(name=NAME)
    for revision, percent in ((one, 60), ("f00", 60), (one, 1)):
        request.shares.add(revision=revision, percent=percent)
    error = await refusal(client._unary(client._connection.workflows.SetGraphTraffic, request))
    assert error.reason is Reason.INVALID_FIELD
    assert {violation.field: violation.description for violation in error.violations} == {
        "shares[1].revision": f"{NAME} has no revision 'f00'; kept, the newest first: {one}",
        "shares[2].revision": f"{one!r} is named twice",
        "shares": "they add up to 121, they must to 100",
    }
    assert (await client.graph_revisions("demo")).etag == "1"


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.SetGraphTrafficRequest(shares=[pb.TrafficShare(revision="a", percent=100)]), "name"),
        (pb.SetGraphTrafficRequest(name=NAME, shares=[pb.TrafficShare(percent=100)]), "shares[0].revision"),
        (
            pb.SetGraphTrafficRequest(name=NAME, shares=[pb.TrafficShare(revision="a", percent=101)]),
            "shares[0].percent",
        ),
    ],
)
async def test_request_that_breaks_a_rule_is_refused(
    request_: pb.SetGraphTrafficRequest, field: str, client: omniflow.Client
) -> None:
    error = await refusal(client._unary(client._connection.workflows.SetGraphTraffic, request_))
    assert (error.reason, error.violations[0].field) == (Reason.INVALID_FIELD, field)


async def test_unknown_graph_has_neither_revisions_nor_traffic(client: omniflow.Client) -> None:
    for method in (client.graph_revisions("none"), client.set_traffic("none", {"a": 100})):
        error = await refusal(method)
        assert (error.reason, error.code) == (Reason.UNKNOWN_GRAPH, omniflow.Code.NOT_FOUND)
    error = await refusal(
        client._unary(client._connection.workflows.ListGraphRevisions, pb.ListGraphRevisionsRequest())
    )
    assert error.violations[0].field == "name"


async def test_validate_only_leaves_revisions_as_they_are(client: omniflow.Client) -> None:
    await client.apply(spec("one"))
    request = pb.ApplyGraphRequest(graph=spec("two"), validate_only=True, canary_percent=10)
    response = await client._unary(client._connection.workflows.ApplyGraph, request)
    assert len(response.graph.revision) == 16
    assert len((await client.graph_revisions("demo")).revisions) == 1
