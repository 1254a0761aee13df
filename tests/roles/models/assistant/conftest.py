"""Engines that are slow to load, loaded once for the tests that need the assistant's environment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from omniflow_roles.models.assistant.asr import Asr
from omniflow_roles.models.assistant.llm import Llm
from omniflow_roles.models.assistant.tts import Tts


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def llm() -> AsyncIterator[Llm]:
    """The language model, by way of the user's cache: the first run converts the weights, which takes half a minute.

    It is set up and torn down on a loop of its own; each test asks it from another one.
    """
    interface = Llm()
    await interface.setup()
    yield interface
    await interface.teardown()


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
