"""Addresses to listen on, chosen and checked before anything is started."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.launch.control_plans import target_beside

_ATTEMPTS = 50
"""Free ports to look at until one has as many free ones after it as are wanted."""


def resolve_listen(target: str, *, count: int = 1) -> str:
    """The gRPC target with a free port in place of port 0, such that the `count - 1` targets beside it are free as well.
    Raises OmniFlowError INVALID_CONFIG for an address that is taken, that this machine does not have, or that is none.

    No port is held until its server takes it: whoever takes it in between makes the server fail by name.
    """
    if target.startswith(("unix:", "unix-abstract:")):
        return target
    host, separator, port = target.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise _refused(target, "write it as HOST:PORT, such as 127.0.0.1:7700, or unix:PATH")
    if int(port) or count == 1:
        return _checked(host, int(port), count)
    for _ in range(_ATTEMPTS):
        free = _probe(target, host, 0)
        with contextlib.suppress(OmniFlowError):
            return _checked(host, free, count)
    raise _refused(target, f"there are no {count} free ports in a row; name one")


def _checked(host: str, port: int, count: int) -> str:
    first = f"{host}:{_probe(f'{host}:{port}', host, port)}"
    for ordinal in range(1, count):
        beside = target_beside(first, ordinal)
        _probe(beside, host, int(beside.rpartition(":")[2]))
    return first


def _probe(target: str, host: str, port: int) -> int:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that wind down do not count
            probe.bind(address)
            return int(probe.getsockname()[1])
    except socket.gaierror as problem:
        raise _refused(target, f"unknown host ({problem.strerror})") from None
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise _refused(target, "another process listens there; choose another port, or 0 for a free one") from None
        raise _refused(target, os.strerror(problem.errno or 0)) from None


def _refused(target: str, why: str) -> OmniFlowError:
    return OmniFlowError(Reason.INVALID_CONFIG, f"cannot listen on {target!r}: {why}")
