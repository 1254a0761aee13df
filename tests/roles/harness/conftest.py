"""The transports that the tests of links run over."""

from __future__ import annotations

import pytest

from tests.roles import driver
from tests.support.pipes import TRANSPORTS


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `dial` takes while the test runs."""
    monkeypatch.setattr(driver, "transport", request.param)
    return str(request.param)
