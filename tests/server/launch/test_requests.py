"""Requests to a running supervisor."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.launch.requests import ask_restart, served, socket_of


def restart(only: str) -> int:
    if only == "ecko":
        raise OmniFlowError(Reason.UNKNOWN_RESOURCE, "no role is named 'ecko'")
    return len(only)


async def test_ask_restart_returns_the_number(tmp_path: Path) -> None:
    async with served(tmp_path, restart):
        assert await asyncio.to_thread(ask_restart, tmp_path, "llm") == 3
        assert socket_of(tmp_path).stat().st_mode & 0o777 == 0o600
    assert not socket_of(tmp_path).exists()


async def test_ask_restart_raises_the_refusal(tmp_path: Path) -> None:
    async with served(tmp_path, restart):
        with pytest.raises(OmniFlowError, match="no role is named 'ecko'") as caught:
            await asyncio.to_thread(ask_restart, tmp_path, "ecko")
    assert caught.value.reason is Reason.UNKNOWN_RESOURCE


def test_ask_restart_says_when_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(OmniFlowError, match="the supervisor does not answer") as caught:
        ask_restart(tmp_path, "")
    assert caught.value.reason is Reason.CONNECTION_LOST


async def test_served_takes_the_place_of_a_socket_that_was_left(tmp_path: Path) -> None:
    socket_of(tmp_path).touch()
    async with served(tmp_path, restart):
        assert await asyncio.to_thread(ask_restart, tmp_path, "") == 0


@pytest.mark.parametrize("line", [b'{"stop": true}\n', b"[]\n", b'{"restart": 1}\n'])
async def test_served_refuses_what_it_does_not_know(line: bytes, tmp_path: Path) -> None:
    async with served(tmp_path, restart):
        reader, writer = await asyncio.open_unix_connection(str(socket_of(tmp_path)))
        writer.write(line)
        assert b'"reason": "UNIMPLEMENTED"' in await reader.readline()
        writer.close()


async def test_served_goes_on_after_a_line_that_is_no_json(tmp_path: Path) -> None:
    async with served(tmp_path, restart):
        reader, writer = await asyncio.open_unix_connection(str(socket_of(tmp_path)))
        writer.write(b"restart!\n")
        assert await reader.read() == b""
        writer.close()
        assert await asyncio.to_thread(ask_restart, tmp_path, "a") == 1
