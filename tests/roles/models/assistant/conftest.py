"""Engines that are slow to load, loaded once for the tests that need the assistant's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from omniflow_roles.models.assistant.asr import Asr
from omniflow_roles.models.assistant.llm import Llm
from omniflow_roles.models.assistant.tts import Tts


@pytest.fixture(scope="session")
def llm() -> Llm:
    """The language model, by way of the user's cache: the first run converts the weights, which takes half a minute."""
    interface = Llm()
    interface.setup()
    return interface


@pytest.fixture(scope="session")
def asr() -> Asr:
    interface = Asr()
    interface.setup()
    return interface


@pytest.fixture(scope="session")
def tts() -> Tts:
    interface = Tts()
    interface.setup()
    return interface


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path
