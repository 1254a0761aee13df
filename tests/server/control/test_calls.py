"""The table of calls: request ids, sessions, clients that come and go, limits, and what is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from google.protobuf import duration_pb2, timestamp_pb2

from omniflow.graph.v1 import graph_service_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control import calls as calls_module
from tests.roles.running import eventually
from tests.server.control.table import Table, call_table, kinds
from tests.server.control.test_inputs import chunked, piece

SESSION = "sessions/s"


@pytest.fixture
async def table() -> AsyncIterator[Table]:
    async with call_table() as made:
        yield made


def refusal(table: Table, **fields: object) -> OmniFlowError:
    with pytest.raises(OmniFlowError) as caught:
        table.accept(**fields)  # type: ignore[arg-type]
    table.calls.check_integrity()
    return caught.value


# --- request ids -------------------------------------------------------------------------------------------------------


async def test_request_id_with_the_same_body_joins_the_call(table: Table) -> None:
    call, is_replayed = table.accept_or_join(request_id="r")
    assert not is_replayed
    assert table.accept_or_join(request_id="r") == (call, True)
    table.finish(call)
    assert table.accept_or_join(request_id="r") == (call, True), "ended calls are joined too"
    assert table.calls.active_count == 0


@pytest.mark.parametrize(
    "other", [{"inputs": {"x": "other"}}, {"call_key": "k"}, {"session": SESSION}, {"graph": "graphs/second"}]
)
async def test_request_id_with_another_body_is_refused(other: dict[str, object]) -> None:
    from tests.server.control.table import chain

    async with call_table(chain("second")) as table:
        call = table.accept(request_id="r")
        error = refusal(table, request_id="r", **other)
        assert error.reason is Reason.REQUEST_ID_REUSED
        assert error.violations[0].field == "call.request_id"
        assert error.info.metadata == {"call_id": call.call_id}


async def test_empty_request_id_never_joins(table: Table) -> None:
    assert table.accept() is not table.accept()


async def test_request_ids_of_two_tenants_are_apart(table: Table) -> None:
    first = table.accept(request_id="r", tenant="a")
    second = table.accept(request_id="r", tenant="b", inputs={"x": "other"})
    assert first is not second


async def test_refused_call_leaves_no_trace(table: Table) -> None:
    """Its request id is free, its tenant's count unchanged, its announced bytes given back."""
    two = {"upload": chunked(10, 1), "x": "x"}
    error = refusal(table, request_id="r", inputs={**two, "s": "x", "nope": "x"})
    assert error.reason is Reason.UNKNOWN_FIELD
    async with call_table(spool_bytes=5) as small:
        error = refusal(small, request_id="r", inputs=two)
        assert error.reason is Reason.BUFFER_FULL
        assert small.store.used_bytes == 0
        assert small.calls.active_count == 0
        _, is_replayed = small.accept_or_join(request_id="r", inputs={"x": "x"})
        assert not is_replayed


async def test_call_refused_half_way_supersedes_nobody() -> None:
    async with call_table(spool_bytes=5) as table:
        running = table.accept(session=SESSION)
        error = refusal(table, session=SESSION, supersede=True, inputs={"upload": chunked(10)})
        assert error.reason is Reason.BUFFER_FULL
        assert not running.has_ended


# --- sessions ----------------------------------------------------------------------------------------------------------


async def test_session_runs_its_calls_first_in_first_out(table: Table) -> None:
    first, second, third = (table.accept(session=SESSION) for _ in range(3))
    other = table.accept(session=SESSION, tenant="other")
    assert [table.activations(c) for c in (first, second, third, other)] == [[(1, "a")], [], [], [(1, "a")]]
    assert second.state == graph_service_pb2.CALL_STATE_QUEUED
    assert kinds(table.read(second)) == ["accepted"]
    table.finish(first)
    assert kinds(table.read(second)) == ["accepted", "started"]
    assert table.activations(third) == []
    second.cancel(Reason.CALL_CANCELLED, "stop")
    assert table.activations(third) == [(1, "a")], "the next runs after the terminal event, whatever still winds down"


async def test_supersede_ends_earlier_calls_before_it_runs(table: Table) -> None:
    first, second = table.accept(session=SESSION), table.accept(session=SESSION)
    third = table.accept(session=SESSION, supersede=True)
    for call in (first, second):
        assert call.error is not None
        assert call.error.reason is Reason.CALL_SUPERSEDED
    assert table.activations(second) == [], "a queued call must not run on its way out"
    assert table.activations(third) == [(1, "a")]
    assert kinds(table.read(third)) == ["accepted", "started"]


async def test_supersede_waits_for_its_own_upload(table: Table) -> None:
    first = table.accept(session=SESSION)
    second = table.accept(session=SESSION, supersede=True, inputs={"upload": chunked(2)})
    assert first.has_ended
    assert table.activations(second) == []
    table.calls.add_chunk(second.call_id, piece(0, b"ab", last=True), tenant="t", path="chunk")
    assert table.activations(second) == [(1, "b")]


async def test_cancel_in_queue_starts_nothing(table: Table) -> None:
    first, second, third = (table.accept(session=SESSION) for _ in range(3))
    assert table.calls.cancel(call_id=second.call_id, request_id="", tenant="t", reason="")
    assert kinds(table.read(second)) == ["accepted", "failed"]
    assert second.call_id in table.dispatcher.released
    table.finish(first)
    assert table.activations(second) == []
    assert table.activations(third) == [(1, "a")]


# --- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["max_calls", "max_calls_per_tenant"])
async def test_limit_refuses_with_a_retry_hint_and_frees_when_a_call_ends(limit: str) -> None:
    async with call_table(**{limit: 2}) as table:
        first = table.accept()
        table.accept(session=SESSION)
        error = refusal(table)
        assert (error.reason, error.info.retry_after_s) == (Reason.TOO_MANY_CALLS, 1.0)
        assert error.violations[0].field == limit
        table.finish(first)
        table.accept()


async def test_tenants_do_not_take_each_others_places() -> None:
    async with call_table(max_calls_per_tenant=1) as table:
        table.accept(tenant="a")
        assert refusal(table, tenant="a").reason is Reason.TOO_MANY_CALLS
        table.accept(tenant="b")


# --- tenants -----------------------------------------------------------------------------------------------------------


async def test_call_of_another_tenant_is_as_unknown_as_one_that_never_was(table: Table) -> None:
    call = table.accept(request_id="r", open_inputs="s")
    token = table.read(call)[0].accepted.resume_token
    messages = []
    for call_id in (call.call_id, "nobody"):
        with pytest.raises(OmniFlowError) as caught:
            table.calls.find(call_id, tenant="other")
        assert caught.value.reason is Reason.UNKNOWN_CALL
        messages.append(caught.value.message.replace(call_id, "ID"))
    assert messages[0] == messages[1]
    with pytest.raises(OmniFlowError, match="There is no call"):
        table.calls.push_input(call.call_id, graph_service_pb2.StreamInput(), tenant="other", path="")
    with pytest.raises(OmniFlowError, match="There is no call"):
        table.calls.add_chunk(call.call_id, piece(0, b""), tenant="other", path="")
    with pytest.raises(OmniFlowError) as caught:
        table.calls.resume(token, tenant="other")
    assert caught.value.reason is Reason.INVALID_RESUME_TOKEN
    for ids in ({"call_id": call.call_id, "request_id": ""}, {"call_id": "", "request_id": "r"}):
        assert not table.calls.cancel(**ids, tenant="other", reason="")
    assert not call.has_ended


# --- cancel ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["call_id", "request_id"])
async def test_cancel_is_idempotent(table: Table, by: str) -> None:
    call = table.accept(request_id="r")
    ids = {"call_id": call.call_id, "request_id": ""} if by == "call_id" else {"call_id": "", "request_id": "r"}
    assert table.calls.cancel(**ids, tenant="t", reason="enough")
    assert call.error is not None
    assert (call.error.reason, call.error.message) == (Reason.CALL_CANCELLED, "The caller cancelled the call: enough")
    assert call.state == graph_service_pb2.CALL_STATE_CANCELLING
    assert not table.calls.cancel(**ids, tenant="t", reason="again")
    assert not table.calls.cancel(call_id="nobody", request_id="", tenant="t", reason="")
    table.stops(call, 1)
    assert call.state == graph_service_pb2.CALL_STATE_FAILED
    finished = table.accept()
    table.finish(finished)
    assert not table.calls.cancel(call_id=finished.call_id, request_id="", tenant="t", reason="")
    assert finished.state == graph_service_pb2.CALL_STATE_FINISHED


async def test_deadline_ends_the_call(table: Table) -> None:
    passed = timestamp_pb2.Timestamp(seconds=1)
    call = table.accept(deadline=passed)
    await eventually(lambda: call.has_ended)
    assert call.error is not None
    assert call.error.reason is Reason.DEADLINE_EXCEEDED
    far = table.accept(deadline=timestamp_pb2.Timestamp(seconds=253_402_300_799))
    table.finish(far)


# --- clients that come and go ------------------------------------------------------------------------------------------


async def test_lost_client_detaches_then_cancels(table: Table) -> None:
    call = table.accept(detach_grace=duration_pb2.Duration(nanos=20_000_000))
    reader = table.attach(call)
    table.calls.detach(call, reader)
    assert not call.has_ended, "it runs on for the grace"
    await eventually(lambda: call.has_ended)
    assert call.error is not None
    assert (call.error.reason, call.error.message) == (Reason.CLIENT_LOST, "No client was attached for 0.02 s.")


async def test_resume_within_the_grace_goes_on(table: Table) -> None:
    call = table.accept(detach_grace=duration_pb2.Duration(nanos=20_000_000))
    token = table.read(call)[0].accepted.resume_token
    table.calls.detach(call, table.attach(call))
    reader = table.attach(table.calls.resume(token, tenant="t"), 1)
    assert table.calls._records[call.call_id].detach_timer is None
    table.calls.detach(call, reader)
    await eventually(lambda: call.has_ended)


async def test_call_stays_attached_while_one_of_its_clients_is_left(table: Table) -> None:
    call = table.accept(detach_grace=duration_pb2.Duration())
    first, second = table.attach(call), table.attach(call)
    table.calls.detach(call, first)
    assert table.calls._records[call.call_id].detach_timer is None
    table.calls.detach(call, second)
    await eventually(lambda: call.has_ended)


async def test_detach_grace_of_the_settings_holds_without_one_of_the_call() -> None:
    async with call_table(detach_grace_s=0.01) as table:
        call = table.accept()
        table.calls.detach(call, table.attach(call))
        await eventually(lambda: call.has_ended)
        assert call.error is not None
        assert call.error.message == "No client was attached for 0.01 s."


async def test_ended_call_is_not_cancelled_by_a_client_that_leaves(table: Table) -> None:
    call = table.accept(detach_grace=duration_pb2.Duration())
    reader = table.attach(call)
    table.finish(call)
    table.calls.detach(call, reader)
    assert table.calls._records[call.call_id].detach_timer is None
    assert call.error is None


async def test_resume_of_a_call_that_is_gone_says_so(table: Table) -> None:
    token = table.tokens.issue(tenant="t", call_id="gone", expire_unix_s=int(time.time()) + 60)
    with pytest.raises(OmniFlowError) as caught:
        table.calls.resume(token, tenant="t")
    assert caught.value.reason is Reason.OWNER_LOST
    assert caught.value.info.metadata == {"call_id": "gone"}


# --- inputs of running calls -------------------------------------------------------------------------------------------


async def test_pushed_inputs_reach_the_call_in_order(table: Table) -> None:
    call = table.accept(open_inputs="s", inputs={"s": "one"})
    for text in ("two", "three"):
        push(table, call.call_id, text)
    push(table, call.call_id, None, is_last=True)
    given = [command.fields["x"][0].native for _, command in table.dispatcher.started]  # type: ignore[attr-defined]
    assert given == ["one", "two", "three"]
    table.finish(call)
    assert call.state == graph_service_pb2.CALL_STATE_FINISHED


def push(table: Table, call_id: str, text: str | None, *, is_last: bool = False) -> None:
    message = graph_service_pb2.StreamInput(field="s", is_last=is_last)
    if text is not None:
        message.value.text = text
    table.calls.push_input(call_id, message, tenant="t", path="input")


@pytest.mark.parametrize("how", ["finished", "cancelled", "read slowly"])
async def test_input_for_a_call_that_has_ended_is_refused(how: str) -> None:
    async with call_table(event_log_size_bytes=1_000) as table:
        call = table.accept(open_inputs="s", inputs={"x": "x"})
        push(table, call.call_id, None, is_last=True)
        if how == "cancelled":
            call.cancel(Reason.CALL_CANCELLED, "stop")
        elif how == "read slowly":
            table.yields(call, 1, b=bytes(1_000_000))
            table.finishes(call, 1, 1)
            await asyncio.sleep(0)
            assert not call.has_ended
        else:
            table.finish(call)
        with pytest.raises(OmniFlowError) as caught:
            push(table, call.call_id, "late")
        assert caught.value.reason is Reason.CALL_ENDED
        with pytest.raises(OmniFlowError) as caught:
            table.calls.add_chunk(call.call_id, piece(0, b"x"), tenant="t", path="chunk")
        assert caught.value.reason is Reason.CALL_ENDED


async def test_cancelled_upload_gives_its_bytes_back(table: Table) -> None:
    call = table.accept(inputs={"upload": chunked(1_000)})
    table.calls.add_chunk(call.call_id, piece(0, b"x" * 10), tenant="t", path="chunk")
    call.cancel(Reason.CALL_CANCELLED, "stop")
    assert table.calls._records[call.call_id].inputs is None


# --- what is kept ------------------------------------------------------------------------------------------------------


async def test_ended_calls_are_forgotten_after_their_time() -> None:
    async with call_table(ended_call_ttl_s=0.02) as table:
        call = table.accept(request_id="r")
        table.finish(call)
        assert table.calls.find(call.call_id, tenant="t") is call

        def is_forgotten() -> bool:
            try:
                table.calls.find(call.call_id, tenant="t")
            except OmniFlowError as error:
                return error.reason is Reason.UNKNOWN_CALL
            return False

        await eventually(is_forgotten)
        assert table.calls._records == {}
        assert table.calls._by_request == {}
        with pytest.raises(OmniFlowError) as caught:
            table.accept_or_join(request_id="r")
        assert caught.value.reason is Reason.EVENTS_TRIMMED, "a repeat must not run the call again"
        assert caught.value.info.metadata == {"call_id": call.call_id}


async def test_ended_calls_are_bounded_in_number(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "KEPT_CALLS", 3)
    calls = [table.accept(request_id=f"r{i}") for i in range(5)]
    for call in calls:
        table.finish(call)
        table.calls.check_integrity()
    assert list(table.calls._records) == [call.call_id for call in calls[2:]]
    assert len(table.calls._by_request) == 3


async def test_ended_calls_are_bounded_in_bytes(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when logs shrink after their call has ended, because a reader lets them be trimmed."""
    monkeypatch.setattr(calls_module, "KEPT_BYTES", 250_000)
    for _ in range(20):
        call = table.accept()
        table.yields(call, 1, b=bytes(100_000))
        table.finishes(call, 1, 1)
        table.read(call)
        table.calls.check_integrity()
    assert len(table.calls._records) == 2
    sizes = [r.call.log.kept_bytes + r.call.recorder.size_bytes for r in table.calls._records.values()]
    assert table.calls._ended_bytes == sum(sizes)


async def test_records_of_ended_calls_stay_within_what_was_counted(table: Table) -> None:
    """What was running when the call ended still ends, and is recorded; yields that come late are not without bound."""
    call = table.accept()
    for ordinal in range(5):
        table.yields(call, 1, ordinal, y="y")
    call.cancel(Reason.CALL_CANCELLED, "stop")
    counted = table.calls._ended_bytes - call.log.kept_bytes
    for ordinal in range(5, 500):
        table.yields(call, 1, ordinal, y="y")
    for activation_id, _ in table.activations(call):
        table.stops(call, activation_id)
    assert table.dispatcher.released == [call.call_id]
    assert call.recorder.size_bytes <= counted
    table.calls.check_integrity()


async def test_known_calls_are_those_of_the_tenant_with_their_graphs(table: Table) -> None:
    running, ended = table.accept(), table.accept()
    table.accept(tenant="other")
    table.finish(ended)
    known = table.calls.known(tenant="t")
    assert set(known) == {running.call_id, ended.call_id}
    assert known[running.call_id].end_unix_s is None
    assert known[ended.call_id].end_unix_s == pytest.approx(time.time(), abs=60)
    assert {entry.graph.name for entry in known.values()} == {"graphs/chain"}
    assert table.calls.find_known(running.call_id, tenant="t").call is running


async def test_kept_bytes_do_not_drift_when_logs_are_trimmed_after_the_end() -> None:
    async with call_table(event_log_size_bytes=1_000, ended_call_ttl_s=0.0) as table:
        for _ in range(5):
            call = table.accept()
            table.yields(call, 1, b=bytes(5_000))
            table.finishes(call, 1, 1)
            table.read(call)
        table.calls.forget_ended()
        assert table.calls._ended_bytes == 0


# --- drain -------------------------------------------------------------------------------------------------------------


async def test_drain_takes_no_new_call_and_waits_for_those_that_run(table: Table) -> None:
    call = table.accept(request_id="r")
    draining = asyncio.ensure_future(table.calls.drain(60))
    await asyncio.sleep(0)
    error = refusal(table)
    assert (error.reason, error.info.retry_after_s) == (Reason.DRAINING, 1.0)
    assert table.accept_or_join(request_id="r") == (call, True), "a call that runs here can still be joined"
    assert not draining.done()
    table.finish(call)
    await draining
    assert call.error is None


async def test_drain_ends_what_takes_too_long(table: Table) -> None:
    running, queued = table.accept(session=SESSION), table.accept(session=SESSION)
    await table.calls.drain(0.01)
    for call in (running, queued):
        assert call.error is not None
        assert call.error.reason is Reason.OWNER_LOST
    assert table.activations(queued) == [], "nothing starts on the way out"
    assert table.calls.active_count == 0


async def test_drain_without_calls_is_done_at_once(table: Table) -> None:
    await table.calls.drain(60)
