"""One stage of a pipeline between fakes: order, windows, how it ends well."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest
from google.protobuf import timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from omniflow.graph.v1 import graph_event_pb2
from omniflow.interface import Context, Inputs, Outputs
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.errors import Reason
from omniflow_roles.harness.pipeline import StageSink
from omniflow_roles.harness.pipeline_exit import PipelineExit
from omniflow_roles.harness.replica import State
from tests.roles.harness.pipeline_fakes import BIG, EXIT, FakeStage, Shout, fake_stage, giving_on, leaving, numbered
from tests.roles.running import eventually


@pytest.mark.parametrize("is_last", [False, True])
async def test_only_the_first_of_the_line_gives_on_until_it_has_given_all(is_last: bool) -> None:
    async with fake_stage() as stage:
        for number in range(3):
            stage.start(number + 1, f"{number}", origin_path=[number], **(leaving() if is_last else giving_on()))

        def gone() -> list[str]:
            return stage.control.texts if is_last else stage.peers.texts

        stage.script.give("2", "2a", "2b")
        stage.script.end("2")
        stage.script.give("1", "1a")
        stage.script.give("0", "0a")
        await stage.settle()
        assert gone() == ["0a"]
        stage.script.give("0", "0b")
        stage.script.end("0")
        await stage.settle()
        assert gone() == ["0a", "0b", "1a"]
        stage.script.give("1", "1b")
        await stage.settle()
        assert gone() == ["0a", "0b", "1a", "1b"]
        stage.script.end("1")
        await stage.settle()
        assert gone() == ["0a", "0b", "1a", "1b", "2a", "2b"]


async def test_answers_wait_for_those_before_them() -> None:
    async with fake_stage() as stage:
        stage.start(1, "slow", origin_path=[0], **leaving())
        for number in range(1, 4):
            stage.start(number + 1, "abc"[number - 1], interface="test.shout", origin_path=[number], **leaving())
        await stage.settle()
        assert stage.control.left == []
        assert [stage.end(handle) for handle in (2, 3, 4)] == [None] * 3
        stage.script.give("slow", "first")
        stage.script.end("slow")
        await stage.is_over()
        assert stage.control.left == [
            (0, (0, 0), "first"),
            (1, (1, 0), "A"),
            (2, (2, 0), "B"),
            (3, (3, 0), "C"),
        ]
        assert [stage.end(handle).yield_count for handle in (1, 2, 3, 4)] == [1] * 4  # type: ignore[union-attr]


async def test_activation_without_yields_completes_before_its_turn() -> None:
    async with fake_stage() as stage:
        stage.start(1, "slow", **leaving())
        stage.start(2, "silent", **leaving())
        stage.start(3, "x", interface="test.shout", **leaving())
        stage.script.end("silent")
        await stage.settle()
        assert stage.end(2) == messages.ActivationCompleted(finish_reason=graph_event_pb2.FINISH_REASON_STOP)
        stage.script.end("slow")
        await stage.is_over()
        assert stage.control.texts == ["X"]


@given(
    orders=st.lists(st.tuples(st.sampled_from(["start", "give", "skip", "end", "take", "settle"]), st.integers(0, 5))),
    window=st.integers(1, 4),
    room=st.integers(1, 4),
    is_last=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_everything_goes_on_in_the_order_of_starts(
    orders: list[tuple[str, int]], window: int, room: int, is_last: bool
) -> None:
    """Whatever order activations yield, end, and are taken in: nothing is lost, doubled or out of its place."""

    async def play() -> None:
        async with fake_stage() as stage:
            pipeline = leaving(yield_window=room) if is_last else giving_on(activation_window=room)
            game = Game(stage, {**pipeline, "start_yield_window": window}, is_last=is_last)
            for order, number in orders:
                await game.play(order, number)
            for number in range(6):
                await game.play("end", number)
            await game.finish()

    asyncio.run(play())


class Game:
    """Plays one order after another, and knows what must have gone on in the end."""

    def __init__(self, stage: FakeStage, pipeline: dict[str, Any], *, is_last: bool) -> None:
        self.stage = stage
        self.pipeline = pipeline
        self.is_last = is_last
        self.expected: dict[int, list[str]] = {}
        """What each activation was told to give."""
        self.ended: set[int] = set()

    @property
    def gone(self) -> list[str]:
        return self.stage.control.texts if self.is_last else self.stage.peers.texts

    async def play(self, order: str, number: int) -> None:
        if order == "settle":
            await self.stage.settle()
        elif order == "take":
            self.take_in()
        elif order == "start":
            if number not in self.expected:
                self.expected[number] = []
                self.stage.start(number + 1, f"{number}", origin_path=[number], **self.pipeline)
        elif number in self.expected and number not in self.ended:
            self.tell(order, number)

    def tell(self, order: str, number: int) -> None:
        """One of those that run is told what to do next."""
        if order == "end":
            self.ended.add(number)
            self.stage.script.end(f"{number}")
        elif order == "skip":
            self.stage.script.give(f"{number}", {})
        else:
            text = f"{number}.{len(self.expected[number])}"
            self.expected[number].append(text)
            self.stage.script.give(f"{number}", text)

    def take_in(self) -> None:
        """Whoever is next has all that has gone on."""
        if not self.is_last:
            for child in [child for child in self.stage.peers.children if child.text in self.stage.peers.alive]:
                child.complete(yield_count=1)
        elif self.expected:
            self.stage.control.ack(len(self.gone))

    async def finish(self) -> None:
        """All that was given goes on, and every activation has counted what it gave."""
        wanted = [text for texts in self.expected.values() for text in texts]
        async with asyncio.timeout(10):
            while self.gone != wanted or not self.stage.is_idle:
                assert self.gone == wanted[: len(self.gone)]
                self.take_in()
                await self.stage.settle()
            self.take_in()
            await self.stage.host.wait_idle()
        ends = {number: self.stage.end(number + 1) for number in self.expected}
        assert {number: end and end.yield_count for number, end in ends.items()} == {
            number: len(texts) for number, texts in self.expected.items()
        }
        assert len(self.stage.pipelines) == (1 if self.is_last and self.expected else 0)


async def test_yield_is_delivered_when_the_activation_that_it_started_is_taken_in() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **giving_on(), start_yield_window=2)
        stage.script.give("x", *"abcdef")
        await stage.settle()
        assert stage.peers.texts == ["a", "b"]
        stage.peers.children[1].accept()  # the one before it is not
        await stage.settle()
        assert stage.peers.texts == ["a", "b"]
        stage.peers.children[0].complete()  # which says that it was taken in
        await stage.settle()
        assert stage.peers.texts == ["a", "b", "c", "d"]
        stage.peers.children[1].accept()
        stage.peers.children[2].accept()
        stage.peers.children[2].accept()
        await stage.settle()
        assert stage.peers.texts == ["a", "b", "c", "d", "e"]


async def test_bytes_that_are_not_delivered_hold_the_activation_back() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **giving_on(("text", "text"), ("blob", "blob")), start_byte_credit=len(BIG))
        stage.script.give("x", *numbered(3))
        for number in range(3):
            await stage.settle()
            assert stage.peers.texts == ["0", "1", "2"][: number + 1]
            stage.peers.children[number].accept()


async def test_no_more_activations_than_the_next_stage_has_granted() -> None:
    async with fake_stage() as stage:
        for handle in (1, 2):
            stage.start(handle, f"{handle}", origin_path=[handle], **giving_on(activation_window=2))
            stage.script.give(f"{handle}", f"{handle}a", f"{handle}b", f"{handle}c")
            stage.script.end(f"{handle}")
        order = ["1a", "1b", "1c", "2a", "2b", "2c"]
        for number in range(6):
            await stage.settle()
            assert stage.peers.texts == order[: number + 2]
            stage.peers.children[number].accept()
            await stage.settle()
            assert stage.peers.texts == order[: number + 2]
            stage.peers.children[number].complete()
        await stage.is_over()


async def test_yields_wait_while_the_exit_is_full_and_leave_when_it_is_acknowledged() -> None:
    async with fake_stage() as stage:
        for handle in (1, 2):
            stage.start(handle, f"{handle}", origin_path=[handle], **leaving(yield_window=2), start_yield_window=2)
        stage.script.give("1", *"abcdef")
        stage.script.end("1")
        stage.script.give("2", "g")
        stage.script.end("2")
        await stage.settle()
        assert stage.control.texts == ["a", "b"]
        assert stage.script.given["1"] == 4  # two in the exit's window, two in its own
        stage.control.ack(1)
        await stage.settle()
        assert stage.control.texts == ["a", "b", "c"]
        stage.control.ack(1)
        stage.control.ack(0)
        await stage.settle()
        assert stage.control.texts == ["a", "b", "c"]
        stage.control.ack(3)
        await stage.settle()
        assert stage.control.texts == ["a", "b", "c", "d", "e"]
        assert stage.end(1) is None
        stage.control.ack(5)
        await stage.is_over()
        assert stage.control.texts == [*"abcdefg"]
        assert [stage.end(handle).yield_count for handle in (1, 2)] == [6, 1]  # type: ignore[union-attr]


async def test_bytes_that_are_not_acknowledged_close_the_exit() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **leaving(fields=["text", "blob"]), start_byte_credit=2 * len(BIG))
        stage.script.give("x", *numbered(5))
        await stage.settle()
        assert stage.control.texts == ["0", "1"]
        stage.control.ack(1)
        await stage.settle()
        assert stage.control.texts == ["0", "1", "2"]


async def test_small_window_of_an_activation_does_not_wait_for_a_large_one_of_the_exit() -> None:
    """The control plane acknowledges at half of the exit's window, which the activation's alone never fills."""
    async with fake_stage() as stage:
        stage.start(1, "x", **leaving(yield_window=64), start_yield_window=2)
        stage.script.give("x", *"abcdefgh")
        await stage.settle()
        assert stage.control.texts == [*"abcdefgh"]


async def test_acknowledgement_by_who_has_started_it_delivers_nothing() -> None:
    async with fake_stage() as stage:
        execution = stage.start(1, "x", **giving_on(), start_yield_window=1)
        assert execution is not None
        stage.script.give("x", *"ab")
        await stage.settle()
        execution.acknowledge(0, 2)
        await stage.settle()
        assert stage.peers.texts == ["a"]


async def test_activation_completes_when_all_below_it_has_and_counts_it_all() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **giving_on())
        stage.script.give("x", "a", "b")
        await stage.settle()
        length, tools = graph_event_pb2.FINISH_REASON_LENGTH, graph_event_pb2.FINISH_REASON_TOOL_CALLS
        usage = graph_event_pb2.Usage(input_tokens=1, cached_input_tokens=10, output_tokens=100)
        stage.peers.children[1].complete(yield_count=3, started_activations=4, usage=usage, finish_reason=tools)
        stage.script.end("x")
        await stage.settle()
        assert stage.end(1) is None
        assert not stage.host.load().running
        stage.peers.children[0].complete(yield_count=5, usage=usage, finish_reason=length)
        assert stage.end(1) == messages.ActivationCompleted(
            yield_count=8,
            started_activations=6,
            usage=graph_event_pb2.Usage(input_tokens=2, cached_input_tokens=20, output_tokens=202),
            finish_reason=tools,
        )
        await stage.is_over()
        assert len(stage.pipelines) == 0


async def test_activation_of_the_last_stage_completes_with_its_last_yield() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **leaving())
        stage.script.give("x", "a", {}, "b")
        stage.script.end("x")
        await stage.is_over()
        end = stage.end(1)
        assert end == messages.ActivationCompleted(
            yield_count=2,
            usage=graph_event_pb2.Usage(output_tokens=3),
            finish_reason=graph_event_pb2.FINISH_REASON_STOP,
        )
        assert stage.control.texts == ["a", "b"]
        stage.control.ack(2)  # late
        stage.control.ack(99)


class Working(Shout):
    """Says how far it is."""

    name = "test.working"

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        context.progress(1, 2, "half")
        return await super().run(inputs, context)


async def test_progress_is_told_to_who_has_started_it() -> None:
    async with fake_stage(interfaces=[Working()]) as stage:
        stage.start(1, "x", interface="test.working", **leaving())
        await stage.is_over()
        _accepted, progress, completed = stage.results(1)
        assert (progress.progress.completed, progress.progress.message) == (1, "half")
        assert completed.completed.yield_count == 1


async def test_exit_goes_on_counting_when_no_activation_was_under_way_in_between() -> None:
    async with fake_stage() as stage:
        for handle in (1, 2):
            stage.start(handle, "x", interface="test.shout", origin_path=[handle], **leaving())
            await stage.is_over()
        assert stage.control.left == [(0, (1, 0), "X"), (1, (2, 0), "X")]


async def test_exit_is_forgotten_when_the_control_plane_cancels_it() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", interface="test.shout", **leaving())
        await stage.is_over()
        assert len(stage.pipelines) == 1
        stage.control.exits[EXIT].cancel("over")
        assert (len(stage.pipelines), stage.control.exits) == (0, {})
        stage.executions.clear()
        gc.collect()
        assert not any(isinstance(kept, PipelineExit) for kept in gc.get_objects())


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_exit_is_forgotten_with_its_call(is_cancelled: bool) -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", interface="test.shout", **leaving())
        await stage.is_over()
        if is_cancelled:
            stage.host.cancel_call("call", "no")
        else:
            stage.host.end_call("call")
        assert (len(stage.pipelines), stage.control.exits) == (0, {})


async def test_activations_of_the_first_stage_alone_count_against_the_limit() -> None:
    async with fake_stage(max_activations=1) as stage:
        for handle in range(1, 4):
            assert stage.start(handle, "x", **leaving())
        assert stage.start(4, "y", call_id="other", **giving_on())
        assert stage.start(5, "y", call_id="third", **giving_on()) is None
        error = stage.error(5)
        assert error is not None
        assert error[0].reason is Reason.TOO_MANY_CALLS
        assert stage.start(6, "x", **leaving())


async def test_draining_replica_takes_in_what_was_granted_before() -> None:
    async with fake_stage() as stage:
        stage.host.state = State.DRAINING
        assert stage.start(1, "x", **leaving())
        assert stage.start(2, "y", call_id="other", **giving_on()) is None
        error = stage.error(2)
        assert error is not None
        assert error[0].reason is Reason.DRAINING


async def test_place_of_the_first_activation_is_taken_until_all_below_it_has_ended() -> None:
    async with fake_stage(max_activations=1) as stage:
        stage.start(1, "x", interface="test.shout", **giving_on())
        await stage.settle()
        assert stage.is_idle
        assert stage.start(2, "y", call_id="other", **giving_on()) is None
        stage.peers.children[0].complete()
        assert stage.start(3, "y", call_id="other", **giving_on()) is not None


async def test_deadline_ends_the_first_activation_and_what_it_has_started() -> None:
    async with fake_stage() as stage:
        past = timestamp_pb2.Timestamp(seconds=1)
        stage.start(1, "x", **giving_on(), start_deadline=past)
        await eventually(lambda: stage.error(1))
        error = stage.error(1)
        assert error is not None
        assert error[0].reason is Reason.DEADLINE_EXCEEDED
        stage.start(2, "y", call_id="other", **leaving(), start_deadline=past)  # whose first activation ends it
        await stage.settle()
        assert stage.error(2) is None


@pytest.mark.parametrize("is_last", [False, True])
async def test_nothing_is_kept_of_yields_that_have_gone(is_last: bool) -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **(leaving() if is_last else giving_on()))
        gone = 0

        async def pass_on(count: int) -> None:
            nonlocal gone
            for _ in range(count):
                stage.script.give("x", "a", {})
                await stage.settle()
                gone += 1
                if is_last:
                    stage.control.ack(gone)
                    stage.control.forget()
                else:
                    stage.peers.children.pop().complete(yield_count=1)

        tracemalloc.start()
        try:
            await pass_on(100)
            before_bytes = kept_bytes()
            await pass_on(300)
            assert kept_bytes() - before_bytes < 300 * 16
        finally:
            tracemalloc.stop()


async def test_nothing_is_kept_of_activations_that_have_overtaken_the_first() -> None:
    async with fake_stage() as stage:
        stage.start(1, "slow", **leaving())
        for handle in range(2, 52):
            stage.start(handle, "silent", **leaving())
            stage.script.end("silent")
            await stage.settle()
            assert stage.end(handle) is not None
        stage.executions.clear()
        gc.collect()
        assert sum(isinstance(kept, StageSink) for kept in gc.get_objects()) == 1


def kept_bytes() -> int:
    """What code of the harness has allocated and still has."""
    gc.collect()
    filters = (tracemalloc.Filter(True, "*/omniflow_roles/harness/*"), tracemalloc.Filter(True, "*/control/windows.py"))
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(filters).traces)
