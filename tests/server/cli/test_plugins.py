"""Commands that other packages add."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

import pytest
import typer

from omniflow_server.cli.plugins import COMMANDS_GROUP
from tests.server.cli.command import CommandLine


def hello() -> typer.Typer:
    app = typer.Typer(help="Greets.")
    app.command("hello")(lambda: typer.echo("hello"))
    return app


def broken() -> object:
    return 1 / 0


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Installs entry points that say when they are loaded, and lists them as they are."""
    loaded: list[str] = []
    targets: dict[str, Callable[[], object]] = {
        "good": hello,
        "broken": broken,
        "strange": lambda: "no app",
        "graph": hello,
    }

    class Point(metadata.EntryPoint):
        def load(self) -> object:
            loaded.append(self.name)
            return targets[self.name]()

    points = [Point(name=name, value=f"{name}:app", group=COMMANDS_GROUP) for name in targets]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == COMMANDS_GROUP else [])
    return loaded


def test_plugin_is_a_command_group_of_its_name(omniflow: CommandLine, loaded: list[str]) -> None:
    outcome = omniflow("good", "hello")
    assert (outcome.status, outcome.out, outcome.err) == (0, "hello\n", "")


def test_plugin_is_loaded_only_by_its_own_command(omniflow: CommandLine, loaded: list[str]) -> None:
    assert omniflow("config", "show").status == 0
    assert loaded == []
    omniflow("good", "hello")
    assert loaded == ["good"]


def test_plugin_that_is_broken_is_named_and_harms_no_other(omniflow: CommandLine, loaded: list[str]) -> None:
    outcome = omniflow("broken", "hello")
    assert outcome.status == 2
    assert "the command 'broken' (broken:app) cannot be loaded: division by zero" in outcome.err
    assert omniflow("down").status == 0
    assert omniflow("good", "hello").status == 0


def test_plugin_that_is_no_typer_app_is_named(omniflow: CommandLine, loaded: list[str]) -> None:
    outcome = omniflow("strange")
    assert outcome.status == 2
    assert "the command 'strange' (strange:app) cannot be loaded: it is a str, and no typer.Typer" in outcome.err


def test_help_lists_plugins_and_names_each_broken_one_once(omniflow: CommandLine, loaded: list[str]) -> None:
    outcome = omniflow("--help")
    assert outcome.status == 0
    assert "Greets." in outcome.out
    assert outcome.err.count("cannot be loaded") == 2
    assert sorted(loaded) == ["broken", "good", "strange"]


def test_plugin_replaces_no_command_of_ours(omniflow: CommandLine, loaded: list[str]) -> None:
    assert "explain" in omniflow("graph", "--help").out
    assert loaded == []
