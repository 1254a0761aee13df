"""Interfaces by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from omniflow import discovery
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.noop import Echo


@pytest.fixture(autouse=True)
def points(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "noop.echo": "omniflow_roles.noop:Echo",
        "noop.ekko": "omniflow_roles.noop:Echo",
        "noop.module": "omniflow_roles.noop",
        "noop.heavy": "not_installed_here.models:Heavy",
    }
    group = "omniflow.interfaces"
    monkeypatch.setattr(
        discovery, "entry_points", lambda **_: [EntryPoint(name, value, group) for name, value in known.items()]
    )


def test_load_gives_the_class() -> None:
    assert discovery.load("noop.echo") is Echo


def test_load_of_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(OmniFlowError, match=r"did you mean 'noop\.echo'") as caught:
        discovery.load("noop.echoo")
    assert caught.value.reason is Reason.UNKNOWN_INTERFACE


@pytest.mark.parametrize("name", ["noop.ekko", "noop.module"])
def test_load_of_what_is_no_interface_of_that_name_is_refused(name: str) -> None:
    with pytest.raises(OmniFlowError) as caught:
        discovery.load(name)
    assert caught.value.reason is Reason.INVALID_CONFIG


def test_load_in_an_environment_that_lacks_a_library_names_it() -> None:
    with pytest.raises(OmniFlowError, match="not_installed_here") as caught:
        discovery.load("noop.heavy")
    assert caught.value.reason is Reason.INVALID_CONFIG
