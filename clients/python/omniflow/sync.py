"""The client without asyncio: `with omniflow.sync.connect("127.0.0.1:7700") as client:`.

    for event in client.stream("assistant", text="hi"):
        ...
    print(client.run("assistant", text="hi").text("text"))
    with client.converse() as conversation:
        call = conversation.start("assistant", text="hi")

It has the methods of `omniflow.Client`, and their documentation is there: what is a coroutine there returns its result
here, an asynchronous iterator is an iterator, and `async with` is `with` (`aclose` is `close`). There is no second
implementation: every call is handed to the asynchronous client, which runs on one background loop for all synchronous
clients of the process. Objects may be used from several threads.

grpc.aio works with one event loop per process. So `connect` refuses to start a second one: in a process whose own loop
uses grpc.aio (a server, the asynchronous client), use the asynchronous client there.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ParamSpec, Self

import grpc.aio

from omniflow import client as _client
from omniflow.calls import EventStream
from omniflow.conversation import Conversation, ConversationCall
from omniflow.events import Event
from omniflow.transport import second_loop

_P = ParamSpec("_P")


class _LoopThread:
    """The background loop; it runs while a synchronous client is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._users = 0

    def acquire(self) -> asyncio.AbstractEventLoop:
        """The running loop. Raises OmniFlowError when another one uses grpc.aio."""
        with self._lock:
            if self._loop is None:
                check_no_other_loop()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run_loop, args=(self._loop,), name="omniflow-sync", daemon=True)
                self._thread.start()
            self._users += 1
            return self._loop

    def release(self) -> None:
        """Undoes one `acquire`; the last one stops the loop."""
        with self._lock:
            self._users -= 1
            if self._users or self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of work on the loop. An exception in the waiting thread (Ctrl-C) cancels the work."""
        if self._loop is None:
            work.close()
            raise RuntimeError("the client is closed; use it inside its `with` block")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the synchronous client cannot be used on its own loop")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


_thread = _LoopThread()


def check_no_other_loop() -> None:
    """Raises OmniFlowError when a server or channel of grpc.aio lives on an event loop of this process.

    grpc.aio keeps no list of them that can be asked, so this looks through the process's objects: some milliseconds,
    once, before the background loop starts.
    """
    kinds = (grpc.aio.Channel, grpc.aio.Server)
    for item in gc.get_objects():
        if issubclass(type(item), kinds):
            loop = getattr(item, "_loop", None)
            if loop is not None and loop.is_running():
                raise second_loop(f"a grpc.aio {'server' if isinstance(item, grpc.aio.Server) else 'channel'} is open")


class Blocking:
    """A synchronous face of an asynchronous object: its coroutine methods block, and what they give is wrapped too."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        attribute = getattr(self._target, _ASYNC_NAMES.get(name, name))
        return _blocking(attribute) if callable(attribute) else attribute

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]

    def __enter__(self) -> Self:
        _thread.run(self._target.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        _thread.run(self._target.__aexit__(*error))


class SyncEvents(Blocking):
    """Events of a call, as an iterator. Leaving the loop early drops it, which cancels a stream's call."""

    def __init__(self, target: EventStream | ConversationCall) -> None:
        super().__init__(target)
        self._ready: list[Event] = []

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if not self._ready:
            # Whatever has come is fetched at once: a change of threads costs more than an event.
            self._ready = _thread.run(self._target.next_batch())
            self._ready.reverse()
            if not self._ready:
                raise StopIteration
        return self._ready.pop()


class SyncClient(Blocking):
    """The synchronous client; see `omniflow.Client` for its methods."""

    def __enter__(self) -> Self:
        _thread.acquire()
        try:
            return super().__enter__()
        except BaseException:
            _thread.release()
            raise

    def __exit__(self, *error: object) -> None:
        try:
            super().__exit__(*error)
        finally:
            _thread.release()


def _synchronous(make: Callable[_P, _client.Client]) -> Callable[_P, SyncClient]:
    """`omniflow.connect` for a synchronous client: the signature is written once."""

    @functools.wraps(make)
    def connect(*args: _P.args, **kwargs: _P.kwargs) -> SyncClient:
        return SyncClient(make(*args, **kwargs))

    return connect


connect = _synchronous(_client.connect)


_ASYNC_NAMES = {"close": "aclose"}


def _blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _wrapped(_thread.run(_on_loop(method, args, kwargs)))

    return call


async def _on_loop(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls on the loop, also what is no coroutine: the asynchronous client is not made for several threads."""
    result = method(*args, **kwargs)
    return await result if inspect.iscoroutine(result) else result


def _wrapped(result: Any) -> Any:
    if isinstance(result, EventStream | ConversationCall):
        return SyncEvents(result)
    return Blocking(result) if isinstance(result, Conversation) else result
