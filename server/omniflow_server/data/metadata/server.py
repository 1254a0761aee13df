"""The server behind a URL: how to connect to it, and whether it can keep what a cluster agrees on.

What INFO tells is enough, and managed services that forbid CONFIG allow it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

from valkey.asyncio.connection import AbstractConnection, ConnectionPool
from valkey.exceptions import (
    AuthenticationError,
    NoPermissionError,
    ResponseError,
    ValkeyError,
)

from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_server.data.metadata.pipeline import RETRY_AFTER_S

MIN_REDIS = (6, 2)
MIN_VALKEY = (7, 2)
_RETRY_S = 0.05
_TRY_LUA = "return {type(cmsgpack.pack), type(redis.call)}"


def connection_of(url: str) -> AbstractConnection:
    """A connection that is not open yet. Raises INVALID_CONFIG for options that there are not. TLS checks the host's name
    unless the URL says `ssl_check_hostname=no`."""
    try:
        # No timeouts of its own: whoever uses the connection has a deadline.
        pool = ConnectionPool.from_url(url, socket_timeout=None)
        options = pool.connection_kwargs
        if _is_tls(url) and options.get("ssl_cert_reqs") != "none":
            options.setdefault("ssl_check_hostname", True)
        connection = pool.connection_class(**options)
    except (TypeError, ValueError, ValkeyError):
        raise _invalid("its URL has an option that is unknown or has a wrong value") from None
    authority = options.get("ssl_ca_certs")
    if authority and not Path(authority).is_file():
        raise _invalid(f"ssl_ca_certs in its URL names {authority}, and there is no such file")
    return connection


def _is_tls(url: str) -> bool:
    return url.startswith(("rediss://", "valkeys://"))


async def check(url: str, *, address: str, allow_volatile: bool, timeout_s: float) -> None:
    """Raises INVALID_CONFIG with all that is wrong with the server, STORE_UNAVAILABLE when it does not answer."""
    connection = connection_of(url)
    try:
        async with asyncio.timeout(timeout_s):
            info = await _ask_until_answered(connection, address)
    except TimeoutError:
        raise _unavailable(address) from None
    finally:
        with contextlib.suppress(ValkeyError, OSError):
            await connection.disconnect(nowait=True)
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


async def _ask_until_answered(connection: AbstractConnection, address: str) -> Mapping[str, str]:
    while True:
        try:
            return await _ask(connection)
        except NoPermissionError:
            raise _invalid(
                f"the user of {address} may not run what is needed; allow it ~{{omniflow:*, +@scripting, +@read, +@write, "
                "+info, +time and +select"
            ) from None
        except ResponseError:
            raise _invalid(
                f"the server at {address} cannot run Lua scripts; use Redis 6.2, Valkey 7.2 or a newer one"
            ) from None
        except (ValkeyError, OSError) as error:
            if _is_caused_by(error, AuthenticationError):
                raise _invalid(
                    f"the server at {address} wants another user or password; check them in its URL"
                ) from None
            if _is_caused_by(error, ssl.SSLError):
                raise _invalid(
                    f"TLS with {address} failed: the server has none, or its certificate is not trusted; name the file of"
                    " its authority with ?ssl_ca_certs= in the URL"
                ) from None
        await asyncio.sleep(_RETRY_S)


async def _ask(connection: AbstractConnection) -> Mapping[str, str]:
    await connection.connect()
    await connection.send_command("INFO")
    text = await connection.read_response(disable_decoding=True)
    await connection.send_command("EVAL", _TRY_LUA, 0)
    await connection.read_response()
    return dict(line.split(":", 1) for line in text.decode(errors="replace").splitlines() if ":" in line)


def _is_caused_by(error: BaseException | None, kind: type[Exception]) -> bool:
    """The client library wraps what goes wrong while it connects."""
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False


def _invalid(what: str) -> OmniFlowError:
    return OmniFlowError(
        Reason.INVALID_CONFIG,
        f"the metadata store: {what}",
        violations=(Violation(field="control.metadata_url", description=what),),
    )


def _unavailable(address: str) -> OmniFlowError:
    return OmniFlowError(
        Reason.STORE_UNAVAILABLE,
        f"the metadata store at {address} does not answer: check that it runs and can be reached from here",
        retry_after_s=RETRY_AFTER_S,
    )
