"""One activation of one interface, without gRPC."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from omniflow.activation import Activation
from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.threads import ThreadPool
from omniflow.values import ValueType
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason, invalid_field
from tests.roles.running import eventually


class Recorder:
    """A sink that keeps what it is told."""

    def __init__(self, size_bytes: int = 10, *, first_ordinal: int = 0) -> None:
        self.size_bytes = size_bytes
        self.first_ordinal = first_ordinal
        self.yields: list[Outputs] = []
        self.reports: list[tuple[int, int, str]] = []
        self.ends: list[tuple[str, Any]] = []
        self.is_retryable = False
        self.on_yield: Callable[[], None] = lambda: None

    def yielded(self, ordinal: int, outputs: Outputs) -> int:
        assert not self.ends, "nothing follows the end"
        assert ordinal == self.first_ordinal + len(self.yields)
        self.yields.append(outputs)
        self.on_yield()
        return self.size_bytes

    def progress(self, completed: int, total: int, message: str) -> None:
        assert not self.ends, "nothing follows the end"
        self.reports.append((completed, total, message))

    def answered(self, ordinal: int, outputs: Outputs, context: Context) -> None:
        self.yielded(ordinal, outputs)
        self.completed(ordinal + 1, context)

    def completed(self, yield_count: int, context: Context) -> None:
        self.ends.append(("completed", yield_count))

    def failed(self, error: ErrorInfo, is_retryable: bool) -> None:
        self.ends.append((error.reason.value, error))
        self.is_retryable = is_retryable

    @property
    def texts(self) -> list[Any]:
        return [outputs["text"] for outputs in self.yields]

    @property
    def end(self) -> str:
        (end,) = self.ends
        return str(end[0])

    @property
    def message(self) -> str:
        return str(self.ends[0][1].message)


def activation(one: Interface, sink: Recorder, **options: Any) -> Activation:
    defaults: dict[str, Any] = {"yield_window": 64, "byte_credit": 1 << 20, "threads": None}
    inputs = Inputs("main", {"text": ("hi",)})
    return Activation(one, inputs, Context(call_id="c", activation_id=7, node="n"), sink, **(defaults | options))


class Coroutine(Interface):
    name = "test.coroutine"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {"text": Field(ValueType.TEXT)}

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"text": inputs["text"]}


class Function(Coroutine):
    def run(self, inputs: Inputs, context: Context) -> Outputs:  # type: ignore[override]
        return {"text": inputs["text"]}


class AsyncGenerator(Coroutine):
    count = 3

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:  # type: ignore[override]
        for index in range(self.count):
            yield {"text": str(index)}


class Generator(Coroutine):
    count = 3
    made = 0
    is_closed = False

    def run(self, inputs: Inputs, context: Context) -> Iterator[Outputs]:  # type: ignore[override]
        try:
            for index in range(self.count):
                self.made += 1
                yield {"text": str(index)}
        finally:
            self.is_closed = True


@pytest.mark.parametrize(
    ("one", "texts"),
    [
        (Coroutine(), ["hi"]),
        (Function(), ["hi"]),
        (AsyncGenerator(), ["0", "1", "2"]),
        (Generator(), ["0", "1", "2"]),
    ],
)
async def test_every_form_yields_and_completes(one: Interface, texts: list[str]) -> None:
    sink = Recorder()
    await activation(one, sink).run()
    assert sink.texts == texts
    assert sink.ends == [("completed", len(texts))]


@pytest.mark.parametrize("kind", [AsyncGenerator, Generator])
async def test_yields_stop_at_the_window_and_go_on_with_acks(kind: type[AsyncGenerator | Generator]) -> None:
    one, sink = kind(), Recorder()
    one.count = 10
    running = activation(one, sink, yield_window=4)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(running.run())
        await eventually(lambda: len(sink.yields) == 4)
        running.ack(1)
        await eventually(lambda: len(sink.yields) == 5)
        running.ack(5)
        await eventually(lambda: len(sink.yields) == 9)
        assert not sink.ends
        running.ack(6)
    assert len(sink.yields) == 10
    assert sink.end == "completed"


@pytest.mark.parametrize("kind", [AsyncGenerator, Generator])
async def test_generator_with_a_full_window_ends_without_an_ack(kind: type[AsyncGenerator | Generator]) -> None:
    sink = Recorder()
    await activation(kind(), sink, yield_window=3).run()
    assert sink.ends == [("completed", 3)]


@pytest.mark.parametrize("kind", [AsyncGenerator, Generator])
async def test_attempt_that_goes_on_begins_at_its_ordinal_with_an_open_window(
    kind: type[AsyncGenerator | Generator],
) -> None:
    sink = Recorder(first_ordinal=5)
    running = activation(kind(), sink, yield_window=2, first_ordinal=5)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(running.run())
        await eventually(lambda: len(sink.yields) == 2)
        running.ack(6)
    assert sink.texts == ["0", "1", "2"]
    assert sink.ends == [("completed", 8)]


@pytest.mark.parametrize("one", [Coroutine(), Function()])
async def test_interface_of_one_output_is_not_run_again_after_it(one: Interface) -> None:
    sink = Recorder(first_ordinal=1)
    await activation(one, sink, first_ordinal=1).run()
    assert sink.yields == []
    assert sink.ends == [("completed", 1)]


async def test_blocking_generator_is_at_most_one_step_ahead_of_the_window() -> None:
    one, sink = Generator(), Recorder()
    one.count = 100
    running = activation(one, sink, yield_window=4)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(running.run())
        await eventually(lambda: len(sink.yields) == 4 and one.made == 5)
        running.cancel("enough")
    assert one.made == 5
    assert one.is_closed


@pytest.mark.parametrize("kind", [AsyncGenerator, Generator])
async def test_yields_stop_at_the_byte_credit(kind: type[AsyncGenerator | Generator]) -> None:
    one, sink = kind(), Recorder(size_bytes=1000)
    one.count = 4
    running = activation(one, sink, byte_credit=10)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(running.run())
        for done in range(1, 4):
            await eventually(lambda done=done: len(sink.yields) == done)  # type: ignore[misc]
            running.ack(done)
    assert sink.end == "completed"


async def test_no_tick_of_the_loop_per_yield_while_the_window_is_open() -> None:
    sink, one = Recorder(), AsyncGenerator()
    one.count = 60
    ticks: list[int] = []
    loop = asyncio.get_running_loop()

    def note() -> None:
        loop.call_soon(lambda: ticks.append(len(sink.yields)))

    sink.on_yield = note
    await activation(one, sink).run()
    await asyncio.sleep(0)
    assert ticks == [60] * 60


async def test_generator_that_never_awaits_does_not_hold_the_loop() -> None:
    one, sink = AsyncGenerator(), Recorder()
    one.count = 100_000
    running = activation(one, sink, yield_window=1_000_000, byte_credit=1 << 40)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(running.run())
        await eventually(lambda: sink.yields)
        running.cancel("enough")
    assert len(sink.yields) < 100_000
    assert sink.end == "CALL_CANCELLED"


@pytest.mark.parametrize(
    ("outputs", "named"),
    [
        ({"texts": "x"}, "'texts'"),
        ({"text": b"x"}, "BYTES for output 'text'"),
        ({"text": 3}, "int for output 'text'"),
        (None, "NoneType"),
        (["x"], "list"),
    ],
)
async def test_output_that_is_not_declared_fails_and_is_named(outputs: Any, named: str) -> None:
    class Bad(Coroutine):
        async def run(self, inputs: Inputs, context: Context) -> Any:
            return outputs

    class BadBlocking(Generator):
        def run(self, inputs: Inputs, context: Context) -> Iterator[Any]:  # type: ignore[override]
            yield outputs

    for one in (Bad(), BadBlocking()):
        sink = Recorder()
        await activation(one, sink).run()
        assert sink.end == "INVALID_OUTPUT"
        assert named in sink.message
        assert "test.coroutine" in sink.message
        assert not sink.yields


async def test_plain_function_that_returns_a_coroutine_is_told_to_be_async() -> None:
    made: list[Any] = []

    class Forgot(Coroutine):
        def run(self, inputs: Inputs, context: Context) -> Awaitable[Outputs]:  # type: ignore[override]
            made.append(super().run(inputs, context))
            return made[0]  # type: ignore[no-any-return]

    sink = Recorder()
    await activation(Forgot(), sink).run()
    made[0].close()
    assert sink.end == "INVALID_OUTPUT"
    assert "async def" in sink.message


@pytest.mark.parametrize("error", [ValueError("a secret"), SystemExit(3), StopIteration("a secret")])
@pytest.mark.parametrize("is_blocking", [False, True])
async def test_exception_of_an_interface_stays_in_the_log(
    error: BaseException, is_blocking: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Raises(Coroutine):
        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            raise error

    class RaisesBlocking(Coroutine):
        def run(self, inputs: Inputs, context: Context) -> Outputs:  # type: ignore[override]
            raise error

    sink = Recorder()
    with caplog.at_level(logging.ERROR):
        await activation(RaisesBlocking() if is_blocking else Raises(), sink).run()
    assert sink.end == "INTERFACE_FAILED"
    assert "test.coroutine" in sink.message
    assert "secret" not in sink.message
    assert caplog.records


@pytest.mark.parametrize(("reason", "is_retryable"), [(Reason.INVALID_MEDIA, False), (Reason.POOL_EXHAUSTED, True)])
async def test_typed_error_of_an_interface_passes_through(reason: Reason, is_retryable: bool) -> None:
    class Raises(Coroutine):
        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            raise OmniFlowError(reason, "no WAV", metadata={"field": "audio"})

    sink = Recorder()
    await activation(Raises(), sink).run()
    assert sink.ends == [(reason.value, ErrorInfo(reason=reason, message="no WAV", metadata={"field": "audio"}))]
    assert sink.is_retryable is is_retryable


@pytest.mark.parametrize(
    "error", [invalid_field("json", "no number"), UnicodeEncodeError("utf-8", "x", 0, 1, "surrogate")]
)
@pytest.mark.parametrize("one", [Coroutine(), Generator()])
async def test_value_that_cannot_be_sent_is_the_interfaces_mistake(one: Interface, error: Exception) -> None:
    sink = Recorder()

    def refuse() -> None:
        raise error

    sink.on_yield = refuse
    await activation(one, sink).run()
    assert sink.end == "INVALID_OUTPUT"


@pytest.mark.parametrize("one", [AsyncGenerator(), Generator()])
async def test_fault_of_the_sink_ends_the_activation(one: Interface, caplog: pytest.LogCaptureFixture) -> None:
    sink = Recorder()

    def fault() -> None:
        raise KeyError("bug")

    sink.on_yield = fault
    await activation(one, sink).run()
    assert sink.end == "INTERFACE_FAILED"


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_cancelled_error_raised_by_the_interface_is_a_failure_not_a_hang(is_blocking: bool) -> None:
    class Raises(Coroutine):
        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            raise asyncio.CancelledError

    class RaisesBlocking(Coroutine):
        def run(self, inputs: Inputs, context: Context) -> Outputs:  # type: ignore[override]
            raise asyncio.CancelledError

    sink = Recorder()
    async with asyncio.timeout(5):
        await activation(RaisesBlocking() if is_blocking else Raises(), sink).run()
    assert sink.end == "CALL_CANCELLED"


async def test_cancel_of_the_owners_task_is_honoured() -> None:
    class Waits(Coroutine):
        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            await asyncio.Event().wait()
            raise AssertionError

    sink = Recorder()
    task = asyncio.create_task(activation(Waits(), sink).run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sink.end == "CALL_CANCELLED"


async def test_cancel_reports_before_the_cleanup_and_the_task_survives() -> None:
    cleaned = asyncio.Event()
    go_on = asyncio.Event()
    started = asyncio.Event()

    class Cleans(Coroutine):
        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await go_on.wait()
                cleaned.set()
            raise AssertionError

    sink = Recorder()
    running = activation(Cleans(), sink)
    task = asyncio.create_task(running.run())
    await started.wait()
    running.cancel("changed my mind")
    assert sink.end == "CALL_CANCELLED"
    assert sink.message == "changed my mind"
    running.cancel("again")
    assert not cleaned.is_set()
    go_on.set()
    await task
    assert cleaned.is_set()
    assert task.cancelling() == 0


async def test_cancel_of_a_handler_that_swallows_it_drops_its_result() -> None:
    started = asyncio.Event()

    class Swallows(Coroutine):
        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return {"text": "too late"}
            raise AssertionError

    sink = Recorder()
    running = activation(Swallows(), sink)
    task = asyncio.create_task(running.run())
    await started.wait()
    running.cancel("")
    await task
    assert sink.end == "CALL_CANCELLED"
    assert not sink.yields


@pytest.mark.parametrize("is_at_the_window", [False, True])
async def test_cancel_closes_an_async_generator(is_at_the_window: bool) -> None:
    closed = []

    class Endless(Coroutine):
        async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:  # type: ignore[override]
            try:
                while True:
                    yield {"text": "x"}
                    await asyncio.sleep(0 if is_at_the_window else 0.001)
            finally:
                closed.append(context.is_cancelled)

    sink = Recorder()
    running = activation(Endless(), sink, yield_window=2 if is_at_the_window else 1000)
    task = asyncio.create_task(running.run())
    await eventually(lambda: len(sink.yields) >= 2)
    running.cancel("enough")
    await task
    assert closed == [True]
    assert sink.end == "CALL_CANCELLED"


async def test_cancel_of_a_blocked_thread_reports_at_once_and_abandons_it(caplog: pytest.LogCaptureFixture) -> None:
    gate, entered = threading.Event(), threading.Event()

    class Blocks(Coroutine):
        def run(self, inputs: Inputs, context: Context) -> Outputs:  # type: ignore[override]
            entered.set()
            gate.wait(10)
            return {"text": "too late"}

    pool, sink = ThreadPool(1), Recorder()
    running = activation(Blocks(), sink, threads=pool)
    task = asyncio.create_task(running.run())
    await eventually(entered.is_set)
    began = time.monotonic()
    running.cancel("enough")
    assert sink.end == "CALL_CANCELLED"
    with caplog.at_level(logging.WARNING):
        await task
    assert time.monotonic() - began < 1.0
    assert pool.abandoned_count == 1
    assert "abandoned" in caplog.text

    after = Recorder()
    await activation(Function(), after, threads=pool).run()
    assert after.end == "completed"
    gate.set()
    await eventually(lambda: pool.abandoned_count == 0)
    assert not sink.yields
    pool.shutdown()


async def test_cancel_of_a_thread_that_looks_at_its_context_abandons_nothing() -> None:
    class Polite(Coroutine):
        def run(self, inputs: Inputs, context: Context) -> Outputs:  # type: ignore[override]
            assert context.cancelled.wait(10)
            return {"text": "stopped"}

    pool, sink = ThreadPool(1), Recorder()
    running = activation(Polite(), sink, threads=pool, abandon_after_s=5.0)
    task = asyncio.create_task(running.run())
    await eventually(lambda: pool.thread_count)
    running.cancel("enough")
    await task
    assert pool.abandoned_count == 0
    pool.shutdown()


async def test_cancel_before_a_thread_is_free_never_runs_the_interface() -> None:
    gate = threading.Event()
    pool = ThreadPool(1)
    pool.submit(gate.wait, 10)
    one, sink = Generator(), Recorder()
    running = activation(one, sink, threads=pool)
    task = asyncio.create_task(running.run())
    await asyncio.sleep(0)
    running.cancel("enough")
    await task
    gate.set()
    pool.shutdown()
    assert one.made == 0
    assert sink.end == "CALL_CANCELLED"


async def test_cancel_before_run_and_after_the_end() -> None:
    sink = Recorder()
    running = activation(Coroutine(), sink)
    running.cancel("early")
    await running.run()
    assert sink.end == "CALL_CANCELLED"
    assert not sink.yields

    sink = Recorder()
    running = activation(Coroutine(), sink)
    await running.run()
    running.cancel("late")
    running.ack(1)
    assert sink.end == "completed"


async def test_stop_from_inside_the_sink_ends_the_generator() -> None:
    one, sink = AsyncGenerator(), Recorder()
    running = activation(one, sink)
    sink.on_yield = lambda: running.stop(ErrorInfo(reason=Reason.DEADLINE_EXCEEDED, message="late"), is_retryable=True)
    await running.run()
    assert len(sink.yields) == 1
    assert sink.end == "DEADLINE_EXCEEDED"
    assert sink.is_retryable


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_progress_gives_the_newest_report_before_the_result(is_blocking: bool) -> None:
    def report(context: Context) -> Outputs:
        for step in range(1000):
            context.progress(step + 1, 1000, "steps")
        return {"text": "done"}

    class Reports(Coroutine):
        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            return report(context)

    class ReportsBlocking(Coroutine):
        def run(self, inputs: Inputs, context: Context) -> Outputs:  # type: ignore[override]
            return report(context)

    sink = Recorder()
    await activation(ReportsBlocking() if is_blocking else Reports(), sink).run()
    assert sink.reports[-1] == (1000, 1000, "steps")
    assert len(sink.reports) < 1000
    assert sink.texts == ["done"]


async def test_prepared_inputs_are_used_and_their_failure_fails_the_activation() -> None:
    async def fetched() -> Inputs:
        return Inputs("main", {"text": ("fetched",)})

    async def lost() -> Inputs:
        raise OmniFlowError(Reason.UNKNOWN_RESOURCE, "gone")

    sink = Recorder()
    await activation(Coroutine(), sink).run(fetched)
    assert sink.texts == ["fetched"]
    sink = Recorder()
    await activation(Coroutine(), sink).run(lost)
    assert sink.end == "UNKNOWN_RESOURCE"
