"""Addresses to listen on."""

from __future__ import annotations

import socket

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.launch.ports import resolve_listen


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_resolve_listen_puts_a_free_port_in_place_of_zero(host: str) -> None:
    target = resolve_listen(f"{host}:0")
    name, _, port = target.rpartition(":")
    assert name == host
    with socket.create_server((host, int(port))):
        pass


def test_resolve_listen_leaves_a_free_port_and_sockets_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"127.0.0.1:{server.getsockname()[1]}"
    assert resolve_listen(target) == target
    assert resolve_listen("unix:/run/x.sock") == "unix:/run/x.sock"


def test_resolve_listen_refuses_a_port_that_is_taken() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(OmniFlowError, match="another process listens there") as caught,
    ):
        resolve_listen(f"127.0.0.1:{server.getsockname()[1]}")
    assert caught.value.reason is Reason.INVALID_CONFIG


def test_resolve_listen_finds_free_ports_in_a_row() -> None:
    first = int(resolve_listen("127.0.0.1:0", count=3).rpartition(":")[2])
    for port in range(first, first + 3):
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_resolve_listen_names_the_port_of_a_row_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(OmniFlowError, match=f"cannot listen on '127.0.0.1:{taken}'"):
            resolve_listen(f"127.0.0.1:{taken - 1}", count=2)


def test_resolve_listen_refuses_an_unknown_host_also_for_several() -> None:
    with pytest.raises(OmniFlowError, match="unknown host"):
        resolve_listen("no.such.host.invalid:0", count=2)


def test_resolve_listen_refuses_an_address_of_another_machine() -> None:
    with pytest.raises(OmniFlowError, match=r"cannot listen on '192\.0\.2\.1:0': Cannot assign"):
        resolve_listen("192.0.2.1:0")
