"""Activations over a real Execute stream."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest

from omniflow.codec.common import value_to_proto
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2, sampling_pb2
from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.large_values import ValueFetcher, ValueStore, decode
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import ElementType, Json, Tensor, Value, ValueType
from omniflow_core.errors import Reason
from omniflow_roles.noop import (
    Burst,
    Cancel,
    Count,
    CountBlocking,
    Echo,
    Fail,
    Join,
    Large,
    Mirror,
    Progress,
    Sleep,
    Swallow,
    Undeclared,
)
from omniflow_roles.noop.large import pattern
from tests.roles.driver import kinds, start_command, values
from tests.roles.running import driving, eventually

pytestmark = pytest.mark.usefixtures("transport")


async def test_echo_yields_once_and_completes(tmp_path: Path) -> None:
    async with driving(tmp_path, Echo()) as (_, driver):
        await driver.start(1, "noop.echo", {"text": "hi"})
        results = await driver.finish(1)
        assert kinds(results) == ["accepted", "yield", "completed"]
        assert values(results, "text") == ["hi"]
        assert results[-1].completed.yield_count == 1


async def test_quick_activation_answers_in_one_message(tmp_path: Path) -> None:
    async with driving(tmp_path, Echo()) as (_, driver):
        before = driver.message_count
        await driver.start(1, "noop.echo", {"text": "hi"})
        await driver.finish(1)
        assert driver.message_count == before + 1


@pytest.mark.parametrize("name", ["noop.count", "noop.count_blocking"])
async def test_generator_streams_in_order(tmp_path: Path, name: str) -> None:
    async with driving(tmp_path, Count(), CountBlocking()) as (_, driver):
        await driver.parameters(1, name, {"count": 1000}, yield_window=16)
        results = await driver.finish(1)
        assert values(results, "text") == [str(index) for index in range(1000)]
        assert results[-1].completed.yield_count == 1000


async def test_many_activations_share_a_stream(tmp_path: Path) -> None:
    async with driving(tmp_path, Count(), CountBlocking()) as (_, driver):
        await driver.send(
            *(
                start_command(handle, name, {"parameters": Json({"count": 50})}, yield_window=8)
                for handle in range(1, 33)
                for name in (["noop.count", "noop.count_blocking"][handle % 2],)
            )
        )
        for handle in range(1, 33):
            assert values(await driver.finish(handle), "text") == [str(index) for index in range(50)]


async def test_results_queue_into_few_messages(tmp_path: Path) -> None:
    async with driving(tmp_path, Burst()) as (_, driver):
        before = driver.message_count
        await driver.parameters(1, "noop.burst", {"count": 2000}, yield_window=5000, byte_credit=1 << 30)
        results = await driver.finish(1)
        assert len(results) == 2002
        assert driver.message_count - before < 500


async def test_usage_and_finish_reason_are_reported(tmp_path: Path) -> None:
    async with driving(tmp_path, Burst()) as (_, driver):
        await driver.parameters(1, "noop.burst", {"count": 3})
        completed = (await driver.finish(1))[-1].completed
        assert completed.usage == graph_event_pb2.Usage(output_tokens=3)
        assert completed.finish_reason == graph_event_pb2.FINISH_REASON_STOP


async def test_progress_comes_before_the_result(tmp_path: Path) -> None:
    async with driving(tmp_path, Progress()) as (_, driver):
        await driver.parameters(1, "noop.progress", {"steps": 3, "delay_s": 0.001})
        results = await driver.finish(1)
        assert kinds(results) == ["accepted", "progress", "progress", "progress", "yield", "completed"]
        assert results[3].progress == graph_event_pb2.Progress(completed=3, total=3, message="pretending")


async def test_yields_stop_at_the_window_of_the_start(tmp_path: Path) -> None:
    async with driving(tmp_path, Count(), acks=False) as (_, driver):
        await driver.parameters(1, "noop.count", {"count": 10}, yield_window=4)
        await eventually(lambda: driver.pending(1) == 5)
        await driver.ack(1, 2)
        await eventually(lambda: driver.pending(1) == 7)
        await driver.ack(1, 6)
        assert (await driver.finish(1))[-1].completed.yield_count == 10


async def test_slow_reader_of_one_activation_does_not_stop_another(tmp_path: Path) -> None:
    async with driving(tmp_path, Count(), Echo(), acks=False) as (_, driver):
        await driver.parameters(1, "noop.count", {"count": 10}, yield_window=1)
        await driver.start(2, "noop.echo", {"text": "hi"})
        assert values(await driver.finish(2), "text") == ["hi"]


async def test_context_tells_the_interface_of_its_call(tmp_path: Path) -> None:
    seen: list[Context] = []

    class Looks(Interface):
        name = "test.looks"
        inputs = groups(text=Field(ValueType.TEXT))
        outputs = {"text": Field(ValueType.TEXT)}

        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            seen.append(context)
            return {"text": inputs.group}

    async with driving(tmp_path, Looks()) as (_, driver):
        await driver.start(
            5,
            "test.looks",
            {"text": "hi"},
            tenant="acme",
            session="s",
            priority=3,
            traceparent="00-1-2-01",
            sampling=sampling_pb2.SamplingParameters(temperature=0, max_tokens=7, stop=["end"]),
        )
        assert values(await driver.finish(5), "text") == ["main"]
    (context,) = seen
    assert (context.call_id, context.activation_id, context.node, context.attempt) == ("call-5", 5, "test_looks", 1)
    assert (context.tenant, context.session, context.priority, context.traceparent) == ("acme", "s", 3, "00-1-2-01")
    assert (context.sampling.temperature, context.sampling.max_tokens, context.sampling.stop) == (0.0, 7, ("end",))
    assert context.sampling.top_p is None


async def test_absent_optional_field_is_not_in_the_inputs(tmp_path: Path) -> None:
    async with driving(tmp_path, Join()) as (_, driver):
        await driver.start(1, "noop.join", {"a": "x", "b": "y"})
        assert values(await driver.finish(1), "text") == ["x y"]


async def test_contributions_of_a_field_keep_their_order(tmp_path: Path) -> None:
    class All(Interface):
        name = "test.all"
        inputs = groups(text=Field(ValueType.TEXT))
        outputs = {"text": Field(ValueType.TEXT)}

        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            return {"text": ",".join(map(str, inputs.all("text")))}

    async with driving(tmp_path, All()) as (_, driver):
        command = start_command(1, "test.all", {"text": "a"})
        for text in "bc":
            command.start.facets[0].fields["text"].values.add(value=value_to_proto(text))
        await driver.send(command)
        assert values(await driver.finish(1), "text") == ["a,b,c"]


async def test_failure_of_an_interface_says_nothing_of_its_text(tmp_path: Path) -> None:
    async with driving(tmp_path, Fail()) as (_, driver):
        await driver.parameters(1, "noop.fail", {"after": 2, "message": "the secret prompt"})
        results = await driver.finish(1)
        assert kinds(results) == ["accepted", "yield", "yield", "failed"]
        assert b"secret" not in results[-1].SerializeToString()
        assert b"INTERFACE_FAILED" in results[-1].SerializeToString()


async def test_cancelled_error_of_an_interface_fails_the_activation(tmp_path: Path) -> None:
    async with driving(tmp_path, Cancel()) as (_, driver):
        await driver.start(1, "noop.cancel", {"text": "hi"})
        error, _retryable = await driver.error(1)
        assert error.reason is Reason.CALL_CANCELLED


async def test_undeclared_output_is_named(tmp_path: Path) -> None:
    async with driving(tmp_path, Undeclared()) as (_, driver):
        await driver.start(1, "noop.undeclared", {"text": "hi"})
        error, _retryable = await driver.error(1)
        assert error.reason is Reason.INVALID_OUTPUT
        assert "'texts'" in error.message


async def test_more_activations_than_the_replica_takes_are_retryable(tmp_path: Path) -> None:
    async with driving(tmp_path, Sleep(), max_activations=2) as (_, driver):
        for handle in (1, 2, 3):
            await driver.parameters(handle, "noop.sleep", {"seconds": 60})
        error, is_retryable = await driver.error(3)
        assert error.reason is Reason.TOO_MANY_CALLS
        assert error.retry_after_s
        assert is_retryable
        await driver.cancel(1)
        await driver.finish(1)
        await driver.parameters(4, "noop.sleep", {"seconds": 0})
        assert kinds(await driver.finish(4)) == ["accepted", "yield", "completed"]


async def test_interface_runs_at_most_its_concurrency_and_the_rest_waits(tmp_path: Path) -> None:
    class Narrow(Sleep):
        name = "test.narrow"
        max_concurrency = 2

    async with driving(tmp_path, Narrow()) as (server, driver):
        for handle in (1, 2, 3):
            await driver.parameters(handle, "test.narrow", {"seconds": 60})
            assert (await driver.next(handle)).WhichOneof("result") == "accepted"
        load = server.host.load()
        assert (load.running, load.waiting) == (2, 1)
        await driver.cancel(2)
        await eventually(lambda: server.host.load().waiting == 0)
        assert server.host.load().running == 2


class Wordy(Interface):
    """`count` JSON values and a text of `size` characters."""

    name = "test.wordy"
    inputs = groups(parameters=Field(ValueType.JSON))
    outputs: ClassVar = {"text": Field(ValueType.TEXT), "json": Field(ValueType.JSON)}
    max_concurrency = 8

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        asked = inputs["parameters"]
        assert isinstance(asked, Json)
        assert isinstance(asked.value, dict)
        given: dict[str, Value] = {}
        if "text" in asked.value:
            given["text"] = "\u00e9" * asked.value["text"]
        if "json" in asked.value:
            given["json"] = Json("x" * asked.value["json"])
        return given


@pytest.mark.parametrize(
    ("asked", "output"),
    [
        ({"text": 20_000_000}, "text"),
        ({"text": 524_289}, "text"),
        ({"json": 20_000_000}, "json"),
        ({"json": 9_000_000, "text": 1}, "json"),
    ],
)
async def test_yield_that_fits_no_message_fails_its_activation_alone(
    tmp_path: Path, asked: dict[str, int], output: str
) -> None:
    async with driving(tmp_path, Wordy(), Sleep()) as (_, driver):
        await driver.parameters(1, "noop.sleep", {"seconds": 0.5})
        await driver.parameters(2, "test.wordy", asked)
        error, is_retryable = await driver.error(2)
        assert (error.reason, is_retryable) == (Reason.INVALID_OUTPUT, False)
        assert error.metadata == {"node": "test_wordy", "output": output}
        assert f"output {output!r}" in error.message
        assert str(asked[output] * (2 if output == "text" else 1))[:3] in error.message
        assert kinds(await driver.finish(1))[-1] == "completed"


async def test_yield_at_the_limits_is_sent(tmp_path: Path) -> None:
    async with driving(tmp_path, Wordy()) as (_, driver):
        await driver.parameters(1, "test.wordy", {"text": 524_288, "json": 7_000_000})
        assert kinds(await driver.finish(1)) == ["accepted", "yield", "completed"]


async def test_unknown_interface_is_refused(tmp_path: Path) -> None:
    async with driving(tmp_path, Echo()) as (_, driver):
        await driver.start(1, "noop.ecko", {"text": "hi"})
        error, is_retryable = await driver.error(1)
        assert error.reason is Reason.UNKNOWN_INTERFACE
        assert "noop.echo" in error.message
        assert not is_retryable


async def test_input_that_cannot_be_decoded_is_refused_and_named(tmp_path: Path) -> None:
    bad = value_pb2.Value(tensor=tensor_pb2.Tensor(spec=tensor_pb2.TensorSpec(element_type=99)))  # type: ignore[arg-type]
    async with driving(tmp_path, Mirror(), Echo()) as (_, driver):
        await driver.start(1, "noop.mirror", {"tensor": bad})
        error, _retryable = await driver.error(1)
        assert error.reason is Reason.INVALID_FIELD
        assert "start.facets[0].fields[tensor].values[0]" in error.message
        await driver.start(2, "noop.echo", {"text": "still serving"})
        assert kinds(await driver.finish(2)) == ["accepted", "yield", "completed"]


async def test_deadline_ends_what_runs_and_what_waits(tmp_path: Path) -> None:
    class One(Sleep):
        name = "test.one"
        max_concurrency = 1

    async with driving(tmp_path, One()) as (_, driver):
        for handle in (1, 2):
            command = start_command(handle, "test.one", {"parameters": Json({"seconds": 60})})
            command.start.deadline.FromNanoseconds(int((time.time() + 0.05) * 1e9))
            await driver.send(command)
        for handle in (1, 2):
            error, _retryable = await driver.error(handle)
            assert error.reason is Reason.DEADLINE_EXCEEDED


async def test_deadline_that_is_far_away_changes_nothing(tmp_path: Path) -> None:
    async with driving(tmp_path, Echo()) as (_, driver):
        command = start_command(1, "noop.echo", {"text": "hi"})
        command.start.deadline.FromSeconds(int(time.time() + 3600))
        await driver.send(command)
        assert kinds(await driver.finish(1)) == ["accepted", "yield", "completed"]


async def test_older_owner_of_a_session_is_refused(tmp_path: Path) -> None:
    async with driving(tmp_path, Echo()) as (_, driver):
        await driver.start(1, "noop.echo", {"text": "hi"}, session="s", session_fence=5)
        assert kinds(await driver.finish(1))[-1] == "completed"
        for handle, fence in ((2, 4), (3, 6)):
            await driver.start(handle, "noop.echo", {"text": "hi"}, session="s", session_fence=fence)
        error, _retryable = await driver.error(2)
        assert error.reason is Reason.STALE_OWNER
        assert kinds(await driver.finish(3))[-1] == "completed"


async def test_newer_owner_of_a_session_ends_what_the_older_one_has_started(tmp_path: Path) -> None:
    async with driving(tmp_path, Sleep(), Echo()) as (_, driver):
        for handle, session in ((1, "s"), (2, "other")):
            await driver.parameters(handle, "noop.sleep", {"seconds": 60}, session=session, session_fence=5)
        await driver.start(3, "noop.echo", {"text": "hi"}, session="s", session_fence=6)
        error, is_retryable = await driver.error(1)
        assert (error.reason, is_retryable) == (Reason.STALE_OWNER, False)
        assert kinds(await driver.finish(3))[-1] == "completed"
        await driver.start(4, "noop.echo", {"text": "hi"}, session="other", session_fence=5)
        assert kinds(await driver.finish(4))[-1] == "completed"
        assert driver.pending(2) <= 1, "only its acceptance"


async def test_work_of_a_session_runs_in_its_order_one_at_a_time(tmp_path: Path) -> None:
    order: list[str] = []

    class Ordered(Interface):
        name = "test.ordered"
        inputs = groups(parameters=Field(ValueType.JSON))
        outputs = {"text": Field(ValueType.TEXT)}
        max_concurrency = 8

        async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
            order.append(f"+{context.activation_id}")
            yield {"text": "x"}
            yield {"text": "y"}
            order.append(f"-{context.activation_id}")

    async with driving(tmp_path, Ordered(), acks=False) as (_, driver):
        await driver.send(
            *(
                start_command(
                    handle,
                    "test.ordered",
                    {"parameters": Json({})},
                    yield_window=1,
                    session="s",
                    session_ordinal=ordinal,
                )
                for handle, ordinal in ((1, 1), (2, 9), (3, 4))
            )
        )
        for handle in (1, 3, 2):
            await eventually(lambda handle=handle: driver.pending(handle) == 2)  # type: ignore[misc]
            await driver.ack(handle, 1)
            await driver.finish(handle)
    assert order == ["+1", "-1", "+3", "-3", "+2", "-2"]


async def test_large_tensor_goes_by_reference_and_comes_back_whole(tmp_path: Path) -> None:
    size = 64 * 1024 * 1024
    async with driving(tmp_path, Large(), Swallow()) as (server, driver):
        await driver.parameters(1, "noop.large", {"size_bytes": size}, call_id="c")
        results = await driver.finish(1)
        assert kinds(results) == ["accepted", "yield", "completed"]
        message = getattr(results[1], "yield").fields["tensor"]
        assert message.tensor.payload.remote.size_bytes == size
        assert server.store.used_bytes == size

        async with ValueFetcher() as fetcher:
            tensor = await decode(message, fetcher)
        assert isinstance(tensor, Tensor)
        assert hashlib.sha256(tensor.data).digest() == hashlib.sha256(pattern(size)).digest()

        await driver.start(2, "noop.swallow", {"tensor": message}, call_id="c")
        (digest,) = values(await driver.finish(2), "digest")
        assert digest == Json({"size_bytes": size, "sha256": hashlib.sha256(pattern(size)).hexdigest()})

        await driver.stub.ReleaseCall(messages.ReleaseCallRequest(call_ids=["c", "unknown"]))
        assert server.store.used_bytes == 0
        server.store.check_integrity()


async def test_input_kept_by_another_process_is_fetched_before_the_run(tmp_path: Path) -> None:
    size = 1_000_000
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with driving(tmp_path / "a", Large()) as (_, maker), driving(tmp_path / "b", Swallow()) as (_, taker):
        await maker.parameters(1, "noop.large", {"size_bytes": size})
        message = getattr((await maker.finish(1))[1], "yield").fields["tensor"]
        await taker.start(1, "noop.swallow", {"tensor": message})
        (digest,) = values(await taker.finish(1), "digest")
        assert digest == Json({"size_bytes": size, "sha256": hashlib.sha256(pattern(size)).hexdigest()})

        message.tensor.payload.remote.value_id = "gone"
        await taker.start(2, "noop.swallow", {"tensor": message})
        error, _retryable = await taker.error(2)
        assert error.reason is Reason.UNKNOWN_RESOURCE


async def test_small_payload_stays_in_the_frame(tmp_path: Path) -> None:
    async with driving(tmp_path, Mirror()) as (server, driver):
        await driver.start(1, "noop.mirror", {"tensor": Tensor(ElementType.UINT8, (65536,), bytes(65536))})
        results = await driver.finish(1)
        assert getattr(results[1], "yield").fields["tensor"].tensor.payload.WhichOneof("place") == "inline"
        assert server.store.used_bytes == 0


async def test_values_beyond_the_budget_fail_the_activation_retryably(tmp_path: Path) -> None:
    async with driving(tmp_path, Large(), value_budget_bytes=150_000) as (_, driver):
        await driver.parameters(1, "noop.large", {"size_bytes": 100_000, "count": 2})
        error, is_retryable = await driver.error(1)
        assert error.reason is Reason.BUFFER_FULL
        assert is_retryable


def test_store_of_another_process_is_not_taken_for_this_one() -> None:
    mine = ValueStore(endpoint="unix:a", incarnation_id="a", budget_bytes=100)
    other = ValueStore(endpoint="unix:b", incarnation_id="b", budget_bytes=100)
    assert not mine.is_mine(other.put("c", b"x"))


async def test_describe_role_says_what_is_served(tmp_path: Path) -> None:
    async with driving(tmp_path, Join(), Count()) as (server, driver):
        answer = await driver.stub.DescribeRole(messages.DescribeRoleRequest())
        assert answer.replica.incarnation_id == server.identity.incarnation_id
        assert [one.name for one in answer.interfaces] == ["noop.join", "noop.count"]
        join, count = answer.interfaces
        assert [(f.name, f.is_optional) for f in join.input_groups[0].fields] == [
            ("a", False),
            ("b", False),
            ("c", True),
        ]
        assert count.is_streaming
        assert not join.is_streaming
