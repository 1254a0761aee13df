"""Settings of several control planes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.settings import ControlSettings
from omniflow_server.launch.control_plans import plan_control_planes, target_beside

RUNTIME = Path("/run/omniflow/default")
SETTINGS = ControlSettings(max_calls=7)


def test_one_control_plane_keeps_its_name_and_settings() -> None:
    (only,) = plan_control_planes(SETTINGS, 1, RUNTIME)
    assert (only.name, only.settings_file) == ("control", RUNTIME / "control.json")
    assert only.settings == dataclasses.replace(SETTINGS, internal_listen=f"unix:{RUNTIME}/control.sock")


def test_several_control_planes_differ_in_name_identifier_and_addresses_only() -> None:
    plans = plan_control_planes(dataclasses.replace(SETTINGS, advertise="10.0.0.7:7800", resume_key="c0"), 3, RUNTIME)
    assert [plan.name for plan in plans] == ["control-0", "control-1", "control-2"]
    assert [plan.settings.control_id for plan in plans] == ["control-0", "control-1", "control-2"]
    assert [plan.settings.listen for plan in plans] == ["127.0.0.1:7700", "127.0.0.1:7701", "127.0.0.1:7702"]
    assert [plan.settings.advertise for plan in plans] == ["10.0.0.7:7800", "10.0.0.7:7801", "10.0.0.7:7802"]
    assert [plan.settings.internal_listen.rpartition("/")[2] for plan in plans] == [
        *("control.sock", "control-1.sock", "control-2.sock")
    ]
    assert len({plan.settings_file for plan in plans}) == 3
    assert {plan.settings.resume_key for plan in plans} == {"c0"}


def test_an_identifier_of_the_operator_begins_that_of_each() -> None:
    plans = plan_control_planes(dataclasses.replace(SETTINGS, control_id="rack7"), 2, RUNTIME)
    assert [plan.settings.control_id for plan in plans] == ["rack7-0", "rack7-1"]


@pytest.mark.parametrize(
    ("target", "beside"),
    [
        ("127.0.0.1:7700", "127.0.0.1:7702"),
        ("[::1]:7700", "[::1]:7702"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("unix:/run/public.sock", "unix:/run/public-2.sock"),
        ("unix:/run/v1.2/public", "unix:/run/v1.2/public-2"),
        ("", ""),
    ],
)
def test_target_beside_counts_ports_and_names_sockets(target: str, beside: str) -> None:
    assert target_beside(target, 2) == beside
    assert target_beside(target, 0) == target


def test_target_beside_refuses_what_is_past_the_last_port() -> None:
    with pytest.raises(OmniFlowError, match=r"there is no port 2 after 127\.0\.0\.1:65534") as caught:
        target_beside("127.0.0.1:65534", 2)
    assert caught.value.reason is Reason.INVALID_CONFIG


def test_control_planes_whose_ports_run_into_each_other_are_refused() -> None:
    settings = dataclasses.replace(SETTINGS, internal_listen="127.0.0.1:7701")
    assert len(plan_control_planes(settings, 1, RUNTIME)) == 1
    with pytest.raises(OmniFlowError, match=r"two servers would listen on 127\.0\.0\.1:7701") as caught:
        plan_control_planes(settings, 2, RUNTIME)
    assert caught.value.reason is Reason.INVALID_CONFIG


def test_a_row_of_free_ports_is_not_taken_for_one_address() -> None:
    settings = dataclasses.replace(SETTINGS, listen="127.0.0.1:0", internal_listen="127.0.0.1:0")
    assert [plan.settings.listen for plan in plan_control_planes(settings, 2, RUNTIME)] == ["127.0.0.1:0"] * 2
