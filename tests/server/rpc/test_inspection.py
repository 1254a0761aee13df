"""InspectCall and ListCalls over a real socket."""

from __future__ import annotations

import asyncio

import pytest

from omniflow.codec.error import status_from_proto
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.graph.v1 import inspection_pb2
from omniflow.workflow.v1.workflow_service_pb2 import JOIN_KIND_PREFIX
from omniflow_core.control.inspection import BucketView, CallInspection
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.plan import GraphPlan
from omniflow_server.cli import call_source
from omniflow_server.cli.call_history import CallHistory
from omniflow_server.cli.call_source import CallSource
from omniflow_server.compose import ControlPlane
from omniflow_server.control.recording import ENTRY_BYTES
from omniflow_server.rpc import inspection
from omniflow_server.rpc.inspection import record_from_proto
from tests.server.control.planes import channel_to, plane
from tests.server.rpc.client import GraphClient
from tests.server.rpc.interfaces import INTERFACES, graphs
from tests.support.interfaces import Gate


def source(made: ControlPlane, tenant: str = "default") -> CallSource:
    return CallSource(target=made.target, tenant=tenant)


def history_of(call: inspection_pb2.CallInspection) -> CallHistory:
    """What the record tells, replayed; it must agree."""
    plan: GraphPlan = call_source.plan_of(call)
    run = call_source.replay_of(call, plan)
    history = CallHistory(plan=plan)
    for recorded in record_from_proto(call.record):
        history.add(run.step(recorded))
    assert history.first_difference is None
    return history


async def test_running_call_is_seen_from_the_inside(made: ControlPlane, client: GraphClient) -> None:
    reader = client.stream("gate", inputs={"text": "g"}, session="sessions/s")
    call_id = (await reader.expect("accepted")).accepted.call_id
    await reader.expect("started")
    await reader.expect("value")
    response = await source(made).inspect(call_id)
    call = response.call
    assert response.state == pb.CALL_STATE_RUNNING
    assert (call.call_id, call.session) == (call_id, "sessions/s")
    assert call.graph == made.catalog.get("graphs/gate").message
    assert call.snapshot.phase == "running"
    (activation,) = call.snapshot.activations
    assert (activation.activation_id, activation.node, activation.yields) == (1, "node", 1)
    assert activation.phase == inspection_pb2.ACTIVATION_PHASE_RUNNING
    (life,) = history_of(call).lives.values()
    assert (life.node, life.state, life.yields) == ("node", "running", 1)
    Gate.gates["g"].set()
    await reader.rest()


async def test_ended_call_is_kept_with_its_record(made: ControlPlane, client: GraphClient) -> None:
    call_id = (await client.run("shout", inputs={"text": "a b"})).call_id
    response = await source(made).inspect(call_id)
    assert response.state == pb.CALL_STATE_FINISHED
    assert not response.call.snapshot.activations
    assert not response.call.HasField("status")
    history = history_of(response.call)
    assert {life.state for life in history.lives.values()} == {"finished"}
    assert [(life.node, life.parent) for life in history.lives.values()] == [
        ("words", 0),
        ("exclaim", 1),
        ("exclaim", 1),
    ]
    assert history.outputs == {"raw": 2, "text": 2}


async def test_failed_call_says_why(made: ControlPlane, client: GraphClient) -> None:
    _, error = await client.stream("fail", inputs={"text": "secret"}).rest()
    assert error is not None
    response = await source(made).inspect("")
    assert response.state == pb.CALL_STATE_FAILED
    assert status_from_proto(response.call.status).reason is error.reason
    history = history_of(response.call)
    assert [life.state for life in history.lives.values()] == ["failed"]
    assert b"secret" not in response.SerializeToString()


async def test_call_that_streams_in_and_is_cancelled_runs_again(made: ControlPlane, client: GraphClient) -> None:
    async with client.converse() as conversation:
        await conversation.start("k", "listen", open_inputs="text")
        call_id = (await conversation.expect("accepted")).accepted.call_id
        await conversation.expect("started")
        await client.push(call_id, 1, input={"field": "text", "value": {"text": "hello"}})
        await conversation.expect("value")
        assert await client.cancel(call_id)
        await conversation.expect("failed")
    history = history_of((await source(made).inspect(call_id)).call)
    assert [life.state for life in history.lives.values()] == ["finished"]


async def test_calls_are_listed_by_tenant(made: ControlPlane, client: GraphClient) -> None:
    reader = client.stream("gate", inputs={"text": "g"}, session="sessions/s")
    running = (await reader.expect("accepted")).accepted.call_id
    ended = (await client.run("count", inputs={"text": "1"})).call_id
    await client.of("other").run("count", inputs={"text": "1"})
    listed = {call.call_id: call for call in await source(made).list_calls()}
    assert list(listed) == [running, ended]
    assert (listed[running].state, listed[running].graph) == (pb.CALL_STATE_RUNNING, "graphs/gate")
    assert (listed[running].session, listed[running].active_activations) == ("sessions/s", 1)
    assert not listed[running].HasField("end_time")
    assert listed[ended].state == pb.CALL_STATE_FINISHED
    assert listed[ended].create_time.ToNanoseconds() <= listed[ended].end_time.ToNanoseconds() + 1_000_000
    assert len(await source(made, "other").list_calls()) == 1
    Gate.gates["g"].set()
    await reader.rest()


async def test_list_is_paged(client: GraphClient) -> None:
    made = {(await client.run("count", inputs={"text": "1"})).call_id for _ in range(5)}
    found: list[str] = []
    token = ""
    for expected in (2, 2, 1):
        page = await client.stub.ListCalls(pb.ListCallsRequest(page_size=2, page_token=token))
        assert len(page.calls) == expected
        found += [call.call_id for call in page.calls]
        token = page.next_page_token
    assert token == ""
    assert set(found) == made


async def test_unknown_call_is_a_typed_error_that_says_what_to_do(made: ControlPlane, client: GraphClient) -> None:
    call_id = (await client.run("count", inputs={"text": "1"})).call_id
    for asked, tenant in (("nope", "default"), (call_id, "other")):
        with pytest.raises(OmniFlowError) as caught:
            await client.of(tenant).inspect(asked)
        assert caught.value.reason is Reason.UNKNOWN_CALL
        assert "ListCalls" in caught.value.message
        with pytest.raises(OmniFlowError) as caught:
            await source(made, tenant).inspect(asked)
        assert caught.value.reason is Reason.UNKNOWN_CALL
        assert "omniflow call list" in caught.value.message
    with pytest.raises(OmniFlowError) as caught:
        await client.inspect("")
    assert caught.value.violations[0].field == "call_id"


async def test_beginning_of_an_identifier_is_enough_when_it_is_the_only_one(
    made: ControlPlane, client: GraphClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifiers = iter(["ab12", "ab34", "ab"])
    monkeypatch.setattr(made.calls, "new_id", lambda: next(identifiers))
    for _ in range(2):
        await client.run("count", inputs={"text": "1"})
    assert (await source(made).inspect("ab1")).call.call_id == "ab12"
    with pytest.raises(OmniFlowError, match="2 calls begin with 'ab', such as ab12 and ab34") as caught:
        await source(made).inspect("ab")
    assert caught.value.reason is Reason.UNKNOWN_CALL
    await client.run("count", inputs={"text": "1"})
    assert (await source(made).inspect("ab")).call.call_id == "ab"


async def test_newest_call_is_meant_when_none_is_named(made: ControlPlane, client: GraphClient) -> None:
    with pytest.raises(OmniFlowError, match="there is no call"):
        await source(made).inspect("")
    for graph in ("count", "shout"):
        await client.run(graph, inputs={"text": "1"})
    assert (await source(made).inspect("")).call.graph.name == "graphs/shout"


async def test_full_record_says_how_much_is_left_out() -> None:
    async with (
        plane(*INTERFACES, graphs=graphs(), call_record_size_bytes=2048) as made,
        channel_to(made.target) as channel,
    ):
        client = GraphClient(channel)
        await client.run("count", inputs={"text": "300"})
        record = (await source(made).inspect("")).call.record
    kept = len(record.entries) // ENTRY_BYTES
    assert 0 < kept < 100
    assert record.events_left_out > 200


async def test_record_that_does_not_fit_a_message_is_cut(
    made: ControlPlane, client: GraphClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.run("count", inputs={"text": "100"})
    whole = history_of((await source(made).inspect("")).call)
    monkeypatch.setattr(inspection, "RECORD_BYTES", 20 * ENTRY_BYTES + 5)
    response = await source(made).inspect("")
    assert len(response.call.record.entries) == 20 * ENTRY_BYTES
    history = history_of(response.call)
    assert history.events + response.call.record.events_left_out == whole.events


async def test_snapshot_of_very_many_activations_lists_the_first(
    made: ControlPlane, client: GraphClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "LISTED", 0)
    reader = client.stream("gate", inputs={"text": "g"})
    await reader.expect("accepted")
    await reader.expect("started")
    await reader.expect("value")
    snapshot = (await source(made).inspect("")).call.snapshot
    assert (len(snapshot.activations), snapshot.activations_left_out) == (0, 1)
    Gate.gates["g"].set()
    await reader.rest()


async def test_record_of_another_format_is_refused() -> None:
    with pytest.raises(OmniFlowError, match="the record has format 9, and this version reads 1"):
        list(record_from_proto(inspection_pb2.ControlRecord(format=9)))
    with pytest.raises(OmniFlowError, match="damaged"):
        list(record_from_proto(inspection_pb2.ControlRecord(format=1, entries=b"x")))


async def test_calls_side_by_side_have_records_of_their_own(made: ControlPlane, client: GraphClient) -> None:
    responses = await asyncio.gather(*(client.run("count", inputs={"text": str(n)}) for n in range(1, 6)))
    for number, response in enumerate(responses, start=1):
        history = history_of((await source(made).inspect(response.call_id)).call)
        assert history.outputs == {"tokens": number}


def test_bucket_that_very_many_may_contribute_to_lists_some_of_them() -> None:
    bucket = BucketView(
        bucket_id=1,
        node="j",
        group="main",
        kind="prefix",
        anchor_path=(0, 0),
        fields={"p": 2},
        wanted={},
        size_bytes=10,
        holders=tuple(f"activation {number}" for number in range(100)),
        missing=("q",),
    )
    held = CallInspection(
        phase="running", activations=(), buckets=(bucket,), gates=(), stored_bytes=10, started=100, finished=0
    )
    (shown,) = inspection.snapshot_to_proto(held).buckets
    assert list(shown.holders) == [*(f"activation {number}" for number in range(64)), "36 more"]
    assert (shown.kind, dict(shown.contributions), list(shown.missing)) == (JOIN_KIND_PREFIX, {"p": 2}, ["q"])
