"""One connection to the store, on which everything goes out in pipelines: what is asked while an answer is on its way goes
out together with the next, so many callers share a round trip.

    call ──▶ waiting ──▶ written, read ──▶ answered
                ▲            │ the connection broke, or the server did not know a script
                └────────────┘

It decides when to connect, to load scripts and to repeat, and gives each operation up at its deadline. All operations may be
repeated. It does not know what the commands mean. A caller that goes away leaves the connection alone.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import deque
from collections.abc import Iterable, Sequence

from hiredis import ReplyError

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.connection import Command, Connection, Reply, packed
from omniflow_server.data.metadata.scripts import Script

log = logging.getLogger(__name__)

RETRY_AFTER_S = 0.5
_FIRST_DELAY_S = 0.02
_LONGEST_DELAY_S = 0.5
_MOST_OPERATIONS = 256
"""In one pipeline, so that the answers to the first do not wait for the writing of thousands."""

# The first word of an error; some also inside the text, for servers before 7 wrap an error that a script ran into.
_CODE = re.compile(
    r"^(?:NOSCRIPT|LOADING|WRONGPASS|NOAUTH)\b"
    r"|\b(?:OOM|READONLY|NOPERM|MISCONF|BUSY|MASTERDOWN|CLUSTERDOWN|NOREPLICAS|TRYAGAIN)\b"
)
# What servers have no word of its own for; the last two before version 6, which had other texts.
_CODES_OF_TEXTS = (
    ("ERR max number of clients reached", "MAXCLIENTS"),
    ("ERR DB index is out of range", "NODB"),
    ("ERR SELECT is not allowed in cluster mode", "NODB"),
    ("ERR AUTH <password> called without any password", "WRONGPASS"),
    ("ERR Client sent AUTH, but no password is set", "WRONGPASS"),
    ("ERR invalid password", "WRONGPASS"),
)
STARTING = frozenset({"LOADING", "MAXCLIENTS"})
_PASSING = STARTING | {
    *("READONLY", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN"),
    *("WRONGPASS", "NOAUTH"),  # it was asked with the right ones before, and may be set up anew at this moment
}
"""Errors of a server that another connection, or the same one a little later, does not have."""


class _Operation:
    """Commands whose replies one caller waits for."""

    __slots__ = ("answer", "packed", "size")

    def __init__(self, commands: Sequence[Command], answer: asyncio.Future[list[Reply]]) -> None:
        self.packed = b"".join(map(packed, commands))
        self.size = len(commands)
        self.answer = answer

    def fail(self, error: OmniFlowError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Pipeline:
    """Sends operations over a connection that it opens as often as it breaks. `run` does the work, until cancelled."""

    def __init__(self, connection: Connection, scripts: Iterable[Script], *, address: str, timeout_s: float) -> None:
        self._connection = connection
        self._loading = [(b"SCRIPT", b"LOAD", script.text) for script in scripts]
        self._address = address
        self._timeout_s = timeout_s
        self._waiting: deque[_Operation] = deque()
        self._has_waiting = asyncio.Event()
        self._is_closed = False
        self._is_down = False

    async def call(self, *commands: Command) -> list[Reply]:
        """The reply to each command. Raises STORE_UNAVAILABLE at the deadline."""
        if self._is_closed:
            raise self._closed()
        loop = asyncio.get_running_loop()
        operation = _Operation(commands, loop.create_future())
        timer = loop.call_later(self._timeout_s, self._give_up, operation)
        self._waiting.append(operation)
        self._has_waiting.set()
        try:
            return await operation.answer
        finally:
            timer.cancel()

    async def run(self) -> None:
        """Connects, answers, and connects again, for ever."""
        delay_s = _FIRST_DELAY_S
        try:
            while True:
                try:
                    await self._connect()
                    delay_s = _FIRST_DELAY_S
                    await self._serve()
                except (ReplyError, OSError, TimeoutError) as error:
                    self._lost(error)
                except Exception:  # one odd answer must not leave a process without its store for good
                    log.exception("the connection to the metadata store at %s failed", self._address)
                await self._connection.disconnect(nowait=True)
                await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
                delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
        finally:
            self._close()

    async def _connect(self) -> None:
        async with asyncio.timeout(self._timeout_s):
            await self._connection.connect()
            await self._load()
        if self._is_down:
            self._is_down = False
            log.info("the metadata store at %s answers again", self._address)

    async def _load(self) -> None:
        """Gives the server the scripts: it forgets them when it restarts, and when somebody flushes them."""
        await self._connection.send_packed_command(b"".join(map(packed, self._loading)))
        for reply in [await self._connection.read_response() for _ in self._loading]:
            if isinstance(reply, ReplyError):
                raise reply

    async def _serve(self) -> None:
        while True:
            if not self._waiting:
                self._has_waiting.clear()
                await self._has_waiting.wait()
            operations = self._take()
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._exchange(operations)
            finally:
                # In their order: whoever waits longest goes first.
                self._waiting.extendleft(each for each in reversed(operations) if not each.answer.done())

    def _take(self) -> list[_Operation]:
        taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_OPERATIONS))]
        return [operation for operation in taken if not operation.answer.done()]

    async def _exchange(self, operations: Sequence[_Operation]) -> None:
        read = self._connection.read_response
        await self._connection.send_packed_command(b"".join(operation.packed for operation in operations))
        settled = [self._settle(each, [await read() for _ in range(each.size)]) for each in operations]
        if not all(settled):
            await self._load()

    def _settle(self, operation: _Operation, replies: list[Reply]) -> bool:
        """False when it has to be sent again after scripts were loaded."""
        error = next((reply for reply in replies if isinstance(reply, ReplyError)), None)
        if error is None:
            if not operation.answer.done():
                operation.answer.set_result(replies)
            return True
        code = code_of(error)
        if code in _PASSING:
            raise error
        if code != "NOSCRIPT":
            operation.fail(self._refused(code, error))
        return code != "NOSCRIPT"

    def _lost(self, error: Exception) -> None:
        # Once for each time that it goes; and only the kind of error, for its text may quote what a client was given.
        if not self._is_down:
            self._is_down = True
            kind = (isinstance(error, ReplyError) and code_of(error)) or type(error).__name__
            log.warning("the metadata store at %s is away (%s), trying again", self._address, kind)

    def _give_up(self, operation: _Operation) -> None:
        operation.fail(
            self._unavailable(
                f"has not answered within {self._timeout_s:g} s: check that it runs and can be reached from here"
            )
        )

    def _refused(self, code: str, error: ReplyError) -> OmniFlowError:
        log.error("the metadata store at %s refused a command: %s", self._address, error)
        if code == "OOM":
            return self._unavailable("has no memory left: raise its maxmemory")
        if code == "MISCONF":
            return self._unavailable("cannot write to its disk: see its log")
        if code == "NOPERM":
            return OmniFlowError(
                Reason.INVALID_CONFIG,
                f"the user of the metadata store at {self._address} may not run scripts on its keys: allow it "
                "~{omniflow:*, +@scripting, +@read, +@write and +time",
            )
        return OmniFlowError(
            Reason.INTERNAL, f"the metadata store at {self._address} refused a command; its words are in the log"
        )

    def _unavailable(self, what: str) -> OmniFlowError:
        return OmniFlowError(
            Reason.STORE_UNAVAILABLE, f"the metadata store at {self._address} {what}", retry_after_s=RETRY_AFTER_S
        )

    def _closed(self) -> OmniFlowError:
        return self._unavailable("is not connected any more: this process is ending")

    def _close(self) -> None:
        self._is_closed = True
        for operation in self._waiting:
            operation.fail(self._closed())
        self._waiting.clear()


def code_of(error: ReplyError) -> str:
    """The word by which an error is known; "" for one that is not told apart here."""
    text = str(error)
    if found := _CODE.search(text):
        return found[0]
    return next((code for start, code in _CODES_OF_TEXTS if text.startswith(start)), "")
