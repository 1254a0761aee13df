"""What the words of a server do to those who wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hiredis import ReplyError

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.connection import Connection
from omniflow_server.data.metadata.endpoint import Endpoint
from omniflow_server.data.metadata.pipeline import Pipeline, code_of
from omniflow_server.data.metadata.scripts import Script
from tests.server.data.metadata.scripted import BREAK, ScriptedStore

SCRIPT = Script(name="s", text=b"return 1", digest=b"d")
WRAPPED = "ERR Error running script (call to f_0): @user_script:12: @user_script: 12: -{} and more"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NOSCRIPT No matching script.", "NOSCRIPT"),
        ("OOM command not allowed when used memory > 'maxmemory'.", "OOM"),
        ("READONLY You can't write against a read only replica.", "READONLY"),
        ("NOPERM User x has no permissions to run the 'evalsha' command", "NOPERM"),
        ("MISCONF Valkey is configured to save RDB snapshots", "MISCONF"),
        ("BUSY Valkey is busy running a script.", "BUSY"),
        ("LOADING Valkey is loading the dataset in memory", "LOADING"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "WRONGPASS"),
        ("NOAUTH Authentication required.", "NOAUTH"),
        ("MASTERDOWN Link with MASTER is down", "MASTERDOWN"),
        ("CLUSTERDOWN The cluster is down", "CLUSTERDOWN"),
        ("NOREPLICAS Not enough good replicas to write.", "NOREPLICAS"),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "TRYAGAIN"),
        *((WRAPPED.format(code), code) for code in ("OOM", "READONLY", "NOPERM", "MISCONF", "NOREPLICAS")),
        ("ERR max number of clients reached", "MAXCLIENTS"),
        ("ERR DB index is out of range", "NODB"),
        (
            "ERR AUTH <password> called without any password configured for the default user. Are you sure ...?",
            "WRONGPASS",
        ),
        ("ERR invalid password", "WRONGPASS"),
        ("ERR unknown command 'NOAUTH'", ""),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", ""),
        ("BUSYGROUP there is one", ""),
        ("", ""),
    ],
)
def test_code_of_is_the_word_of_the_server(text: str, code: str) -> None:
    assert code_of(ReplyError(text)) == code


class Answers:
    """Bytes for each word, the last of them for ever; scripts are always loaded."""

    def __init__(self, **answers: Sequence[bytes]) -> None:
        self._left = {word.encode(): list(pieces) for word, pieces in answers.items()}

    def __call__(self, command: list[bytes]) -> Sequence[bytes]:
        if command[0] == b"SCRIPT":
            return [b"$1\r\nd\r\n"]
        left = self._left[command[0]]
        piece = left.pop(0) if len(left) > 1 else left[0]
        return [
            *([piece.removesuffix(b"<break>")] if piece != b"<break>" else []),
            *([BREAK] if b"<break>" in piece else []),
        ]


@contextlib.asynccontextmanager
async def pipeline(folder: Path, answers: Answers) -> AsyncIterator[tuple[Pipeline, ScriptedStore]]:
    connection = Connection(Endpoint(path=str(folder / "s")))
    running = Pipeline(connection, [SCRIPT], address="the store", timeout_s=5.0)
    async with ScriptedStore(answers).at(folder / "s") as store:
        task = asyncio.ensure_future(running.run())
        try:
            yield running, store
        finally:
            task.cancel()
            await asyncio.wait([task])
            await connection.disconnect(nowait=True)


async def test_error_among_the_replies_is_its_callers_alone(tmp_path: Path) -> None:
    answers = Answers(GOOD=[b"$4\r\ngood\r\n"], BAD=[b"-OOM no\r\n"], ODD=[b"-ERR odd\r\n"], LIST=[b"*1\r\n:1\r\n"])
    async with pipeline(tmp_path, answers) as (running, store):
        calls = [[(b"GOOD",)], [(b"BAD",)], [(b"GOOD",), (b"ODD",), (b"LIST",)], [(b"LIST",), (b"GOOD",)]]
        good, bad, odd, two = await asyncio.gather(*(running.call(*each) for each in calls), return_exceptions=True)
        assert (good, two) == ([b"good"], [[1], b"good"])
        assert isinstance(bad, OmniFlowError)
        assert bad.reason is Reason.STORE_UNAVAILABLE
        assert isinstance(odd, OmniFlowError)
        assert odd.reason is Reason.INTERNAL
        assert store.connection_count == 1
        assert await running.call((b"GOOD",)) == [b"good"]


@pytest.mark.parametrize(
    ("said", "reason", "words"),
    [
        ("OOM x", Reason.STORE_UNAVAILABLE, "raise its maxmemory"),
        (WRAPPED.format("OOM x"), Reason.STORE_UNAVAILABLE, "raise its maxmemory"),
        ("MISCONF x", Reason.STORE_UNAVAILABLE, "cannot write to its disk"),
        ("NOPERM x", Reason.INVALID_CONFIG, r"allow it ~\{omniflow:\*"),
        ("WRONGTYPE x", Reason.INTERNAL, "its words are in the log"),
    ],
)
async def test_refusal_says_what_to_do(
    tmp_path: Path, said: str, reason: Reason, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with pipeline(tmp_path, Answers(ASK=[b"-%b\r\n" % said.encode()])) as (running, _):
        with pytest.raises(OmniFlowError, match=words) as caught:
            await running.call((b"ASK",))
    assert caught.value.reason is reason
    assert f"refused a command: {said}" in caplog.text


@pytest.mark.parametrize(
    "said",
    [
        "LOADING x",
        "BUSY x",
        "READONLY x",
        WRAPPED.format("READONLY"),
        "NOAUTH secret",
        "WRONGPASS secret",
        "ERR max number of clients reached",
    ],
)
async def test_error_that_passes_is_waited_out_on_another_connection(
    tmp_path: Path, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Answers(ASK=[b"-%b\r\n" % said.encode(), b"+OK\r\n"])
    async with pipeline(tmp_path, answers) as (running, store):
        assert await running.call((b"ASK",)) == [b"OK"]
        assert store.connection_count == 2
    assert f"is away ({code_of(ReplyError(said))}), trying again" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("broken", [b"<break>", b"$10\r\nabc<break>", b"*2\r\n:1\r\n<break>", b"?\r\n"])
async def test_server_that_ends_in_the_middle_of_a_pipeline_is_asked_again_for_what_is_left(
    tmp_path: Path, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Answers(FIRST=[b":1\r\n", b":2\r\n"], ASK=[broken, b"+OK\r\n"])
    async with pipeline(tmp_path, answers) as (running, store):
        with caplog.at_level(logging.INFO):
            first, second = await asyncio.gather(running.call((b"FIRST",)), running.call((b"ASK",), (b"ASK",)))
        assert (first, second) == ([1], [b"OK", b"OK"])
        assert store.connection_count == 2
    assert caplog.text.count("is away") == caplog.text.count("answers again") == 1


async def test_scripts_that_are_gone_are_loaded_before_the_command_is_sent_again(tmp_path: Path) -> None:
    async with pipeline(tmp_path, Answers(EVALSHA=[b"-NOSCRIPT x\r\n", b":1\r\n"])) as (running, store):
        assert await running.call((b"EVALSHA", b"d")) == [1]
        load, run = [b"SCRIPT", b"LOAD", b"return 1"], [b"EVALSHA", b"d"]
        assert store.commands == [load, run, load, run]
