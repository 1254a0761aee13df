"""How pipelines end before their time: failures, cancels, lost links, drains. One stage between fakes."""

from __future__ import annotations

import asyncio

import pytest

from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_roles.harness.replica import State
from tests.roles.harness.pipeline_fakes import BIG, EXIT, TOLD, Script, fake_stage, giving_on, leaving
from tests.roles.running import eventually

CANCELLED = ErrorInfo(reason=Reason.CALL_CANCELLED, message="no")


@pytest.mark.parametrize("has_ended", [False, True])
async def test_failure_below_fails_the_activation_and_stops_all_that_it_has_started(has_ended: bool) -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **giving_on(activation_window=3))
        stage.script.give("x", *"abcd")
        if has_ended:
            stage.script.end("x")
        await stage.settle()
        stage.peers.children[0].complete()
        stage.peers.children[2].fail(TOLD)
        assert stage.error(1) == (TOLD, False)
        assert stage.peers.alive == []
        assert [bool(child.cancelled) for child in stage.peers.children] == [False, True, False, True]
        await stage.is_over()
        assert stage.script.stopped == ([] if has_ended else ["x"])
        assert len(stage.pipelines) == 0


async def test_failure_that_names_no_node_is_of_the_next_one() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", interface="test.shout", **giving_on())
        await stage.settle()
        stage.peers.children[0].fail(ErrorInfo(reason=Reason.INVALID_OUTPUT, message="bad", metadata={"output": "o"}))
        error = stage.error(1)
        assert error is not None
        assert error[0].metadata == {"node": "z", "output": "o"}


async def test_lost_replica_fails_the_activation_and_the_next_run_opens_another_link() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", interface="test.shout", **giving_on())
        await stage.settle()
        stage.peers.is_over = True
        stage.peers.children[0].lose()
        error = stage.error(1)
        assert error is not None
        assert (error[0].reason, error[0].message) == (
            Reason.REPLICA_LOST,
            "Node 'z' lost its replica next/next-0.",
        )
        assert error[0].metadata == {"node": "z", "replica": "next/next-0"}
        stage.start(2, "y", interface="test.shout", call_id="other", **giving_on())
        await stage.settle()
        assert (stage.peers.texts, stage.peers.links) == (["X", "Y"], 2)


async def test_link_that_was_idle_for_too_long_is_opened_again_in_the_same_run() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **giving_on())
        stage.script.give("x", "a")
        await stage.settle()
        stage.peers.children[0].complete()
        stage.peers.is_over = True
        stage.script.give("x", "b", "c")
        await stage.settle()
        assert (stage.peers.texts, stage.peers.links) == (["a", "b", "c"], 2)


@pytest.mark.parametrize("is_last", [False, True])
async def test_nothing_goes_on_after_what_has_failed(is_last: bool) -> None:
    async with fake_stage() as stage:
        pipeline = leaving(yield_window=1) if is_last else giving_on(activation_window=1)
        for handle in (1, 2, 3):
            stage.start(handle, f"{handle}", **pipeline)
            stage.script.give(f"{handle}", f"{handle}a", f"{handle}b")
        stage.script.end("1", "3")
        await stage.settle()
        gone = ["1a"]
        assert (stage.control.texts if is_last else stage.peers.texts) == gone
        stage.script.fail("2")
        await eventually(lambda: stage.error(2))
        error = stage.error(2)
        assert error is not None
        assert error[0].message == "it broke"
        if is_last:
            stage.control.ack(1)
        else:
            stage.peers.children[0].complete()
        await stage.settle()
        assert (stage.control.texts if is_last else stage.peers.texts) == gone
        assert [stage.end(handle) for handle in (1, 3)] == [None, None]
        assert stage.start(4, "4", **pipeline) is None  # was on its way
        late = stage.error(4)
        assert late is not None
        assert late[0].reason is Reason.CALL_CANCELLED
        for handle in (1, 3):
            stage.host.cancel(stage.executions[handle], "the run has failed")
        await stage.is_over()
        assert (len(stage.pipelines), stage.control.exits) == (0, {})
        assert stage.start(5, "5", **pipeline) is None
        assert stage.store.used_bytes == 0


async def test_failure_out_of_its_turn_stops_those_before_it_too() -> None:
    async with fake_stage() as stage:
        for handle in (1, 2):
            stage.start(handle, f"{handle}", **leaving())
        stage.script.give("1", "1a")
        await stage.settle()
        stage.script.fail("2")
        await eventually(lambda: stage.error(2))
        stage.script.give("1", "1b")
        stage.script.end("1")
        await stage.settle()
        assert stage.control.texts == ["1a"]
        assert stage.end(1) is None


async def test_inputs_that_cannot_be_read_fail_their_pipeline() -> None:
    async with fake_stage() as stage:
        command = stage.start(1, "x", **giving_on(), start_delivered_yields=[messages.ActivationYield()])
        assert command is None
        assert stage.error(1) is not None
        assert len(stage.pipelines) == 0


async def test_activation_without_a_link_to_the_control_plane_is_refused() -> None:
    async with fake_stage() as stage:
        assert stage.start(1, "x", **leaving(incarnation_id="another life")) is None
        error = stage.error(1)
        assert error is not None
        assert (error[0].reason, error[0].metadata, error[1]) == (Reason.REPLICA_LOST, {"node": "test_script"}, False)
        assert len(stage.pipelines) == 0


async def test_lost_link_to_the_control_plane_fails_what_would_leave_by_it() -> None:
    async with fake_stage() as stage:
        for handle in (1, 2):
            stage.start(handle, f"{handle}", **leaving())
        await stage.settle()
        stage.control.exits[EXIT].lose()
        for handle in (1, 2):
            error = stage.error(handle)
            assert error is not None
            assert error[0].reason is Reason.REPLICA_LOST
        await stage.is_over()
        assert stage.script.stopped == ["1", "2"] or stage.script.stopped == ["2", "1"]
        assert len(stage.pipelines) == 0
        assert stage.start(3, "3", **leaving()) is None


async def test_exit_that_was_lost_while_nothing_ran_takes_no_more_starts() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", interface="test.shout", **leaving())
        await stage.is_over()
        stage.control.exits[EXIT].lose()
        assert stage.start(2, "y", interface="test.shout", **leaving()) is None
        assert len(stage.pipelines) == 0


async def test_cancelled_exit_stops_what_would_leave_by_it() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **leaving(yield_window=1))
        stage.script.give("x", "a", "b")
        await stage.settle()
        stage.control.exits[EXIT].cancel("no")
        assert stage.error(1) == (CANCELLED, False)
        await stage.is_over()
        assert stage.script.stopped == ["x"]
        assert len(stage.pipelines) == 0


async def test_cancel_reaches_what_waits_what_runs_and_what_has_ended() -> None:
    async with fake_stage() as stage:
        stage.start(1, "ended", **giving_on(activation_window=2))
        stage.script.give("ended", *"abc")
        stage.script.end("ended")
        await stage.settle()
        stage.peers.children[0].accept()
        assert stage.is_idle
        stage.host.cancel(stage.executions[1], "no")
        assert stage.error(1) == (CANCELLED, False)
        assert [child.text for child in stage.peers.children if child.cancelled] == ["a", "b"]
        stage.host.cancel(stage.executions[1], "no")
        await stage.is_over()
        assert len(stage.results(1)) == 1


async def test_cancel_of_one_that_is_not_at_its_turn_drops_what_it_holds() -> None:
    async with fake_stage() as stage:
        for handle in (1, 2):
            stage.start(handle, f"{handle}", **giving_on(("text", "text"), ("blob", "blob")))
        stage.script.give("2", {"text": "2a", "blob": BIG})
        await stage.settle()
        assert stage.store.used_bytes == len(BIG)
        stage.host.cancel(stage.executions[2], "no")
        assert stage.store.used_bytes == 0
        stage.host.cancel(stage.executions[1], "no")
        await stage.is_over()
        assert [stage.error(handle) for handle in (1, 2)] == [(CANCELLED, False)] * 2
        assert len(stage.pipelines) == 0


async def test_cancel_before_it_has_a_place_runs_nothing() -> None:
    class One(Script):
        name = "test.one"
        max_concurrency = 1

    one = One()
    async with fake_stage(interfaces=[one]) as stage:
        for handle in (1, 2):
            stage.start(handle, f"{handle}", interface="test.one", origin_path=[handle], **giving_on())
        one.give("2", "late")
        await stage.settle()
        stage.host.cancel(stage.executions[2], "no")
        assert stage.error(2) == (CANCELLED, False)
        one.end("1")
        await stage.is_over()
        assert (stage.peers.texts, one.stopped) == ([], [])


async def test_cancel_of_the_call_stops_all_stages_that_are_here() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **giving_on())
        stage.start(2, "y", **leaving())
        stage.start(3, "z", interface="test.shout", **giving_on(), stage=2)
        await stage.settle()
        assert stage.host.cancel_call("call", "no") == 3
        assert [stage.error(handle) for handle in (1, 2, 3)] == [(CANCELLED, False)] * 3
        assert stage.peers.alive == []
        assert stage.start(4, "late", **leaving()) is None
        await stage.is_over()
        assert (len(stage.pipelines), stage.control.exits) == (0, {})


async def test_drain_waits_for_what_was_started_elsewhere() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", interface="test.shout", **giving_on())
        await stage.settle()
        stage.host.state = State.DRAINING
        waiting = asyncio.ensure_future(stage.host.wait_idle())
        await stage.settle()
        assert not waiting.done()
        stage.peers.children[0].complete(yield_count=1)
        await waiting
        assert stage.end(1) is not None


async def test_drain_that_has_waited_long_enough_stops_what_was_started_elsewhere() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", interface="test.shout", **giving_on())
        await stage.settle()
        error = ErrorInfo(reason=Reason.DRAINING, message="over")
        stage.host.stop_all(error)
        assert stage.error(1) == (error, True)
        assert stage.peers.alive == []
        await stage.is_over()
