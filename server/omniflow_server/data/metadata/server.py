"""The server behind a URL: how to connect to it, and whether it can keep what a cluster agrees on.

What INFO tells is enough, and managed services that forbid CONFIG allow it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping

from hiredis import ReplyError

from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_server.data.metadata.connection import Connection, Reply
from omniflow_server.data.metadata.endpoint import endpoint_of, invalid
from omniflow_server.data.metadata.pipeline import RETRY_AFTER_S, STARTING, code_of

MIN_REDIS = (6, 2)
MIN_VALKEY = (7, 2)
_RETRY_S = 0.05
_TRY_LUA = "return {type(cmsgpack.pack), type(redis.call)}"


def connection_of(url: str) -> Connection:
    """A connection that is not open yet. Raises INVALID_CONFIG for options that there are not. TLS checks the host's name
    unless the URL says `ssl_check_hostname=no`."""
    return Connection(endpoint_of(url))


async def check(url: str, *, address: str, allow_volatile: bool, timeout_s: float) -> None:
    """Raises INVALID_CONFIG with all that is wrong with the server, STORE_UNAVAILABLE when it does not answer."""
    connection = connection_of(url)
    try:
        async with asyncio.timeout(timeout_s):
            info = await _ask_until_answered(connection, address)
    except TimeoutError:
        raise _unavailable(address) from None
    if found := tuple(objections(info, allow_volatile=allow_volatile)):
        texts = "; ".join(found)
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"the metadata store at {address} cannot be used: {texts}",
            violations=[Violation(field="control.metadata_url", description=text) for text in found],
        )


def objections(info: Mapping[str, str], *, allow_volatile: bool) -> Iterator[str]:
    """What speaks against a server, from its INFO."""
    yield from _objections_to_version(info)
    if info.get("redis_mode") == "cluster":
        yield "it is a cluster; use a single server, with replicas if you like"
    if info.get("role", "master") != "master":
        yield "it is a replica, which only reads; use its primary"
    policy = info.get("maxmemory_policy", "unknown")
    if policy != "noeviction":
        yield (
            f"its maxmemory-policy is {policy}, so it may throw away who owns what; set it to noeviction"
            " (CONFIG SET maxmemory-policy noeviction)"
        )
    if not allow_volatile and info.get("aof_enabled") != "1":
        yield (
            "it does not write what it is told to disk; set appendonly to yes (CONFIG SET appendonly yes), or set"
            " control.allow_volatile_store if it may forget owners and graphs"
        )


def _objections_to_version(info: Mapping[str, str]) -> Iterator[str]:
    valkey = info.get("valkey_version")
    name, version, least = (
        ("Valkey", valkey, MIN_VALKEY) if valkey else ("Redis", info.get("redis_version", ""), MIN_REDIS)
    )
    if _numbers(version) < least:
        yield f"it is {name} {version or 'of an unknown version'}; use Redis 6.2, Valkey 7.2 or a newer one"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


async def _ask_until_answered(connection: Connection, address: str) -> Mapping[str, str]:
    while True:
        try:
            return await _ask(connection)
        except ReplyError as error:
            if (code := code_of(error)) not in STARTING:
                raise invalid(_refused(code, address)) from None
        except ssl.SSLError:
            raise invalid(
                f"TLS with {address} failed: the server has none, or its certificate is not trusted; name the file of"
                " its authority with ?ssl_ca_certs= in the URL"
            ) from None
        except OSError:
            pass  # it may be there in a moment
        finally:
            await connection.disconnect(nowait=True)
        await asyncio.sleep(_RETRY_S)


async def _ask(connection: Connection) -> Mapping[str, str]:
    await connection.connect()
    text = await _answer(connection, "INFO")
    await _answer(connection, "EVAL", _TRY_LUA, 0)
    return dict(line.split(":", 1) for line in text.decode(errors="replace").splitlines() if ":" in line)


async def _answer(connection: Connection, *words: str | int) -> Reply:
    await connection.send_command(*words)
    reply = await connection.read_response()
    if isinstance(reply, ReplyError):
        raise reply
    return reply


def _refused(code: str, address: str) -> str:
    """What to do about a server's word."""
    if code in ("WRONGPASS", "NOAUTH"):
        return f"the server at {address} wants another user or password; check them in its URL"
    if code == "NODB":
        return f"the server at {address} has no database of that number; use another one in its URL, such as 0"
    if code == "NOPERM":
        return (
            f"the user of {address} may not run what is needed; allow it ~{{omniflow:*, +@scripting, +@read, +@write, "
            "+info, +time and +select"
        )
    return f"the server at {address} cannot run Lua scripts; use Redis 6.2, Valkey 7.2 or a newer one"


def _unavailable(address: str) -> OmniFlowError:
    return OmniFlowError(
        Reason.STORE_UNAVAILABLE,
        f"the metadata store at {address} does not answer: check that it runs and can be reached from here",
        retry_after_s=RETRY_AFTER_S,
    )
