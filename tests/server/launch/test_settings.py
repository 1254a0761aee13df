"""Settings of the supervisor that cannot be."""

from __future__ import annotations

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server import config
from omniflow_server.launch.settings import SupervisorSettings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"control_planes": 0}, "supervisor.control_planes: must be 1 or more"),
        ({"metadata": "disk"}, "supervisor.metadata: 'disk' is neither 'auto' nor 'memory'"),
        ({"metadata": "memory", "control_planes": 2}, "2 control planes cannot share a store in memory"),
    ],
)
def test_supervisor_settings_refuse_what_cannot_be(values: dict[str, int | str], message: str) -> None:
    with pytest.raises(OmniFlowError, match=message) as caught:
        SupervisorSettings(**values)  # type: ignore[arg-type]
    assert caught.value.reason is Reason.INVALID_CONFIG


def test_mistakes_of_the_supervisor_are_reported_with_their_keys() -> None:
    flags = [config.settings_flag("supervisor.metadata=disk"), config.settings_flag("supervisor.control_planes=0")]
    with pytest.raises(OmniFlowError) as caught:
        config.load(environ={}, flags=flags)
    assert [violation.field for violation in caught.value.violations] == [
        *("supervisor.control_planes", "supervisor.metadata")
    ]
