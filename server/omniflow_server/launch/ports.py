"""Addresses to listen on, chosen and checked before anything is started."""

from __future__ import annotations

import errno
import os
import socket

from omniflow_core.errors import OmniFlowError, Reason


def resolve_listen(target: str) -> str:
    """The gRPC target with a free port in place of port 0. Raises OmniFlowError INVALID_CONFIG for an address that is
    taken, that this machine does not have, or that is none.

    The port is not held until the server takes it: whoever takes it in between makes the server fail by name.
    """
    if target.startswith(("unix:", "unix-abstract:")):
        return target
    host, separator, port = target.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise _refused(target, "write it as HOST:PORT, such as 127.0.0.1:7700, or unix:PATH")
    return f"{host}:{_probe(target, host.strip('[]'), int(port))}"


def _probe(target: str, host: str, port: int) -> int:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
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
