"""Runs one activation of one interface on the running loop. Knows nothing of gRPC: role servers and the control plane's
inline nodes give it a `Sink` each.

    run() ──▶ yielded(0) yielded(1) …   each as soon as the send window is open
          ──▶ answered | completed | failed        exactly one of them, last; after that nothing more is reported

An activation that goes on where another attempt was lost begins with the ordinal after those in `context.delivered`.
An interface that gives one output only has nothing left to give then, and is not run.

The four forms of `Interface.run` (see omniflow.interface): coroutines and async generators run in the caller's task, plain
functions and generators in one thread, whose yields come over in batches. The generator is one step ahead of the window, so
an interface that has nothing more to give ends without waiting for an acknowledgement.

`stop` reports at once and cleans up afterwards: the coroutine is cancelled, the generator closed, a thread gets
`abandon_after_s` to notice `context.is_cancelled`, then it is abandoned.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import inspect
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from concurrent.futures import Executor, Future
from contextlib import aclosing
from typing import Any, NoReturn, Protocol, cast

from omniflow.interface import Context, Inputs, Interface, Outputs
from omniflow.send_window import SendWindow
from omniflow.threads import ThreadPool
from omniflow.values import type_of
from omniflow_core.errors import Code, ErrorInfo, OmniFlowError, Reason

logger = logging.getLogger(__name__)

ABANDON_AFTER_S = 0.05
"""Long enough for a loop that looks at `is_cancelled` between its steps, short enough that the next activation of an
interface that does not look is hardly delayed."""

_reporting = threading.Lock()
"""Of all activations: it is held for two assignments, and one for each would cost every activation that reports nothing."""

_YIELDS_BETWEEN_PAUSES = 64
"""A generator that never awaits would hold the loop while its window is open."""


class Sink(Protocol):
    """Takes the results of one activation. Every method is called on the loop's thread."""

    def yielded(self, ordinal: int, outputs: Outputs) -> int:
        """One output, already checked against the interface's declaration; returns its size in bytes."""

    def progress(self, completed: int, total: int, message: str) -> None:
        """How far a long activation is; only the newest report of a loop tick is given."""

    def answered(self, ordinal: int, outputs: Outputs, context: Context) -> None:
        """The only output of an activation and its end in one: `yielded`, then `completed`. Raises before it reports."""

    def completed(self, yield_count: int, context: Context) -> None:
        """Last result on success. `yield_count` has the yields of earlier attempts in it, `context` usage and finish
        reason."""

    def failed(self, error: ErrorInfo, is_retryable: bool) -> None:
        """Last result on failure or when stopped."""


class _Form(enum.Enum):
    """The forms of `Interface.run`."""

    COROUTINE = enum.auto()
    ASYNC_GENERATOR = enum.auto()
    FUNCTION = enum.auto()
    GENERATOR = enum.auto()


_forms: dict[type[Interface], _Form] = {}


def _form_of(interface: type[Interface]) -> _Form:
    form = _forms.get(interface)
    if form is None:
        form = _forms[interface] = _look_up_form(interface)
    return form


def _look_up_form(interface: type[Interface]) -> _Form:
    if inspect.isasyncgenfunction(interface.run):
        return _Form.ASYNC_GENERATOR
    if inspect.isgeneratorfunction(interface.run):
        return _Form.GENERATOR
    return _Form.FUNCTION if interface.is_blocking() else _Form.COROUTINE


@functools.cache
def _shared_threads() -> ThreadPool:
    """For activations that were given no pool."""
    return ThreadPool(16, name="activation")


class Activation:
    """One activation. Made by its owner, who awaits `run` in a task of its own; all methods belong to the loop's thread."""

    def __init__(
        self,
        interface: Interface,
        inputs: Inputs,
        context: Context,
        sink: Sink,
        *,
        yield_window: int,
        byte_credit: int,
        threads: Executor | None,
        first_ordinal: int = 0,
        abandon_after_s: float = ABANDON_AFTER_S,
    ) -> None:
        self._interface = interface
        self._inputs = inputs
        self._context = context
        self._sink = sink
        self._next_ordinal = first_ordinal
        self._limits = (yield_window, byte_credit)
        self._window: SendWindow | None = None
        """Of an interface that may yield more than once; until it runs."""
        self._threads = threads
        self._abandon_after_s = abandon_after_s
        self._has_ended = False
        self._task: asyncio.Task[Any] | None = None
        self._is_task_cancelled = False
        """By `stop`, not by the owner."""
        self._opened: asyncio.Future[None] | None = None
        self._thread: _ThreadRun | None = None
        self._progress: tuple[int, int, str] | None = None
        """The newest report that has not been handed on; written by any thread."""
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def has_ended(self) -> bool:
        """Completed or failed has been reported; cleanup may still go on."""
        return self._has_ended

    async def run(self, prepare: Callable[[], Awaitable[Inputs]] | None = None) -> None:
        """Runs to the end and through the cleanup. Never raises, but honours the cancellation of its own task.

        `prepare` fetches inputs that are not here yet; what it raises fails the activation.
        """
        if self._has_ended:
            return
        self._task = task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._loop = asyncio.get_running_loop()
        self._context.report = self._report
        cancels_before = task.cancelling()
        try:
            if prepare is not None:
                self._inputs = await prepare()
            await self._perform()
            self._complete()
        except asyncio.CancelledError:
            self._fail(_cancelled("the activation was cancelled"))
            if task.cancelling() - cancels_before > self._is_task_cancelled:
                raise  # by the owner, beside or instead of `stop`; an interface may also raise it by itself
        except OmniFlowError as error:
            self._fail(error.info, is_retryable=_may_pass_elsewhere(error.info))
        except (Exception, SystemExit) as error:
            self._fail_unexpectedly(error)
        finally:
            self._context.cancelled.set()  # whatever still runs has nobody to work for
            if self._is_task_cancelled:
                task.uncancel()
            self._task = None

    def ack(self, next_ordinal: int) -> None:
        """Yields below the ordinal are delivered."""
        if self._thread is not None:
            self._thread.ack(next_ordinal)
            return
        if self._window is not None:
            self._window.ack(next_ordinal)
            if self._opened is not None and self._window.is_open and not self._opened.done():
                self._opened.set_result(None)

    def cancel(self, reason: str) -> None:
        """Stops with CALL_CANCELLED. Repeats, and cancels after the end, change nothing."""
        self.stop(_cancelled(reason or "the activation was cancelled"))

    def stop(self, error: ErrorInfo, *, is_retryable: bool = False) -> None:
        """Reports the failure at once, then stops what runs."""
        if self._has_ended:
            return
        self._context.cancelled.set()
        self._fail(error, is_retryable=is_retryable)
        # A sink may stop its own activation from `yielded`; the loop there sees that it has ended.
        if self._task is not None and self._task is not asyncio.current_task():
            self._is_task_cancelled = self._task.cancel()

    # The four forms.

    async def _perform(self) -> None:
        form = _form_of(type(self._interface))
        if self._next_ordinal and form in (_Form.COROUTINE, _Form.FUNCTION):
            return
        if form is _Form.COROUTINE:
            self._answer(await self._interface.run(self._inputs, self._context))
        elif form is _Form.ASYNC_GENERATOR:
            await self._iterate(self._interface.run(self._inputs, self._context))
        else:
            await self._run_in_thread(is_generator=form is _Form.GENERATOR)

    def _open_window(self) -> SendWindow:
        yields, credit_bytes = self._limits
        self._window = SendWindow(yields, credit_bytes, first_ordinal=self._next_ordinal)
        return self._window

    async def _iterate(self, generator: AsyncGenerator[Outputs, None]) -> None:
        window = self._open_window()
        async with aclosing(generator):
            async for outputs in generator:
                if not window.is_open:
                    await self._window_opened()
                window.sent(self._emit(outputs))
                if self._has_ended:
                    return
                if not self._next_ordinal % _YIELDS_BETWEEN_PAUSES:
                    await asyncio.sleep(0)

    async def _window_opened(self) -> None:
        self._opened = asyncio.get_running_loop().create_future()
        try:
            await self._opened
        finally:
            self._opened = None

    async def _run_in_thread(self, *, is_generator: bool) -> None:
        thread = _ThreadRun(self, self._open_window(), is_generator=is_generator)
        self._thread = thread
        threads = self._threads or _shared_threads()
        work = threads.submit(thread.main, self._interface, self._inputs, self._context)
        ended = asyncio.wrap_future(work)
        try:
            await asyncio.wait((ended,))  # unlike `await ended` this leaves the work alone when it is cancelled
        except asyncio.CancelledError:
            thread.stop()
            if not work.cancel():
                await self._leave_thread(threads, work, ended)
            raise
        thread.drain()
        if thread.error is not None:
            raise thread.error
        if not is_generator:
            self._answer(cast("Outputs", thread.outputs))

    async def _leave_thread(self, threads: Executor, work: Future[Any], ended: asyncio.Future[Any]) -> None:
        """Gives a stopped thread a moment to end by itself."""
        try:
            await asyncio.wait((ended,), timeout=self._abandon_after_s)
        finally:
            if not work.done():
                self._abandon_thread(threads, work)

    def _abandon_thread(self, threads: Executor, work: Future[Any]) -> None:
        if isinstance(threads, ThreadPool):
            threads.abandon(work)
        logger.warning(
            "%s still runs after its activation %d of call %s was stopped; its thread is abandoned",
            self._interface.name,
            self._context.activation_id,
            self._context.call_id,
        )

    # Reports.

    def _emit(self, outputs: Outputs) -> int:
        """Checks one output and hands it on; nothing after the end."""
        if self._has_ended:
            return 0
        self._flush_progress()
        _check(self._interface, outputs)
        ordinal = self._next_ordinal
        self._next_ordinal = ordinal + 1
        try:
            return self._sink.yielded(ordinal, outputs)
        except (TypeError, ValueError, OmniFlowError) as error:
            raise self._unsendable(error) from None

    def _answer(self, outputs: Outputs) -> None:
        """Hands on the only output, with the end."""
        if self._has_ended:
            return
        if self._progress is not None:
            self._flush_progress()
        _check(self._interface, outputs)
        self._has_ended = True
        try:
            self._sink.answered(self._next_ordinal, outputs, self._context)
        except (TypeError, ValueError, OmniFlowError) as error:
            self._has_ended = False
            raise self._unsendable(error) from None

    def _unsendable(self, error: Exception) -> OmniFlowError:
        """What to raise for a value that the sink did not take: most are the interface's mistake, not the caller's."""
        what = "gave a value that cannot be sent"
        if not isinstance(error, OmniFlowError):
            logger.error("%s gave a value that cannot be sent", self._interface.name, exc_info=error)
        elif error.code is Code.INVALID_ARGUMENT:
            what = f"{what}: {error.message}"
        else:
            return error
        return _refusal(self._interface, what)

    def _complete(self) -> None:
        if self._has_ended:
            return
        self._flush_progress()
        self._has_ended = True
        self._sink.completed(self._next_ordinal, self._context)

    def _fail(self, error: ErrorInfo, *, is_retryable: bool = False) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        self._sink.failed(error, is_retryable)

    def _fail_unexpectedly(self, error: BaseException) -> None:
        context = self._context
        logger.error(
            "%s failed in activation %d of call %s",
            self._interface.name,
            context.activation_id,
            context.call_id,
            exc_info=error,
        )
        self._fail(
            ErrorInfo(
                reason=Reason.INTERFACE_FAILED,
                message=f"interface {self._interface.name} of node {context.node} failed; the log of the process that ran "
                f"it has the details under activation {context.activation_id} of call {context.call_id}",
                metadata={"interface": self._interface.name, "node": context.node},
            )
        )

    def _report(self, completed: int, total: int, message: str) -> None:
        """Any thread. One wake-up of the loop serves all reports until it comes round."""
        with _reporting:
            is_first = self._progress is None
            self._progress = (completed, total, message)
        if is_first and not self._has_ended:
            assert self._loop is not None, "an interface reports while it runs"
            _call_soon_threadsafe(self._loop, self._flush_progress)

    def _flush_progress(self) -> None:
        if self._progress is None:
            return
        with _reporting:
            latest, self._progress = self._progress, None
        if latest is not None and not self._has_ended:
            self._sink.progress(*latest)


class _ThreadRun:
    """The part of an activation that runs in a thread, and the hand-over of its yields to the loop.

    The window admits a yield in the thread, by an estimate of its size, and learns its true size on the loop.
    """

    def __init__(self, activation: Activation, window: SendWindow, *, is_generator: bool) -> None:
        self._activation = activation
        self._window = window
        self._is_generator = is_generator
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._posted: deque[Outputs] = deque()
        self._is_stopped = False
        self.outputs: Outputs | None = None
        """What a plain function returned."""
        self.error: BaseException | None = None
        """What the interface raised; carried by hand because a future refuses some exceptions."""

    def main(self, interface: Interface, inputs: Inputs, context: Context) -> None:
        """Runs in the thread."""
        try:
            if self._is_stopped:
                return
            if self._is_generator:
                self._iterate(interface.run(inputs, context))
            else:
                self.outputs = interface.run(inputs, context)
        except (Exception, asyncio.CancelledError) as error:
            self.error = error
        except BaseException as error:
            # Meant for this thread; it must not end the process when it is raised again on the loop.
            self.error = RuntimeError(f"{type(error).__name__} raised by an interface")
            self.error.__cause__ = error

    def _iterate(self, generator: Generator[Outputs, None, None]) -> None:
        try:
            for outputs in generator:
                if not self._admit(outputs):
                    return
                self._post(outputs)
        finally:
            generator.close()

    def _admit(self, outputs: Outputs) -> bool:
        """Waits for the window; False when the activation has been stopped."""
        size_bytes = _estimate_size(outputs)
        with self._changed:
            while not (self._window.is_open or self._is_stopped):
                self._changed.wait()
            self._window.sent(size_bytes)
            return not self._is_stopped

    def _post(self, outputs: Outputs) -> None:
        """One wake-up of the loop serves everything that is posted until it comes round."""
        with self._changed:
            is_first = not self._posted
            self._posted.append(outputs)
        if is_first:
            _call_soon_threadsafe(self._loop, self._drain_posted)

    # On the loop's thread from here on.

    def _drain_posted(self) -> None:
        try:
            self.drain()
        except OmniFlowError as error:
            self._activation.stop(error.info, is_retryable=_may_pass_elsewhere(error.info))
        except Exception as error:
            self._activation._fail_unexpectedly(error)
            self.stop()

    def drain(self) -> None:
        """Hands over what is posted; raises what `Activation._emit` raises."""
        with self._changed:
            posted, self._posted = self._posted, deque()
        for outputs in posted:
            ordinal = self._activation._next_ordinal
            size_bytes = self._activation._emit(outputs)
            with self._changed:
                self._window.resize(ordinal, size_bytes)

    def ack(self, next_ordinal: int) -> None:
        with self._changed:
            self._window.ack(next_ordinal)
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()


def _call_soon_threadsafe(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        logger.debug("an abandoned thread reported after its loop had closed")


def _cancelled(reason: str) -> ErrorInfo:
    return ErrorInfo(reason=Reason.CALL_CANCELLED, message=reason)


def _may_pass_elsewhere(error: ErrorInfo) -> bool:
    """Another replica may have what this one lacks."""
    full = (Reason.TOO_MANY_CALLS, Reason.BUFFER_FULL, Reason.POOL_EXHAUSTED)
    return error.code is Code.UNAVAILABLE or error.reason in full


def _estimate_size(outputs: Outputs) -> int:
    """Roughly the bytes of a yield, without serializing it."""
    if not isinstance(outputs, Mapping):
        return 0
    return sum(16 + _payload_size(value) for value in outputs.values())


def _payload_size(value: object) -> int:
    data = getattr(value, "data", None) or getattr(getattr(value, "values", None), "data", None) or value
    if isinstance(data, memoryview):
        return data.nbytes
    return len(data) if isinstance(data, str | bytes | bytearray) else 64


def _check(interface: Interface, outputs: object) -> None:
    """Raises INVALID_OUTPUT unless the outputs are declared and of their types."""
    if type(outputs) is not dict and not isinstance(outputs, Mapping):
        hint = "; declare run with 'async def'" if inspect.isawaitable(outputs) else ""
        _refuse(interface, f"gave {type(outputs).__name__}, not a mapping of output fields to values{hint}")
    declared = interface.outputs
    for name, value in outputs.items():
        field = declared.get(name)
        if field is None:
            known = ", ".join(declared) or "none"
            _refuse(interface, f"gave an output {name!r} that it does not declare; it declares {known}")
        try:
            kind = type_of(value)
        except TypeError:
            _refuse(interface, f"gave {type(value).__name__} for output {name!r}, which is no field value")
        if kind is not field.type:
            _refuse(interface, f"gave {kind.name} for output {name!r}, which is declared {field.type.name}")


def _refuse(interface: Interface, what: str) -> NoReturn:
    raise _refusal(interface, what) from None


def _refusal(interface: Interface, what: str) -> OmniFlowError:
    return OmniFlowError(
        Reason.INVALID_OUTPUT, f"interface {interface.name} {what}", metadata={"interface": interface.name}
    )
