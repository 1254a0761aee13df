"""Commands that installed packages add, by entry point. A package is imported when its command runs or help lists it."""

from __future__ import annotations

from functools import cached_property
from importlib import metadata
from typing import Any

import typer
from typer.core import TyperGroup

from omniflow_server.cli import terminal

COMMANDS_GROUP = "omniflow.commands"
"""Each entry point is a `typer.Typer`, whose commands are added under the name of the entry point."""


class GroupWithPlugins(TyperGroup):
    """The commands of this package, which none of another package can replace, and those of the others."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names; nothing is imported."""
        own = super().list_commands(ctx)
        return own + sorted(set(self._points) - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name. One that cannot be loaded is reported once, and is then none: somebody else's package
        must not take our commands away."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        if cmd_name in self._points and cmd_name not in self._loaded:
            self._loaded[cmd_name] = _load(self._points[cmd_name])
        return self._loaded.get(cmd_name)

    @cached_property
    def _points(self) -> dict[str, metadata.EntryPoint]:
        return {point.name: point for point in metadata.entry_points(group=COMMANDS_GROUP)}

    @cached_property
    def _loaded(self) -> dict[str, Any]:
        return {}


def _load(point: metadata.EntryPoint) -> Any:
    try:
        app = point.load()
        if not isinstance(app, typer.Typer):
            raise TypeError(f"it is a {type(app).__name__}, and no typer.Typer")
        group = typer.main.get_group(app)
        group.name = point.name
        return group
    except Exception as problem:
        terminal.warn(f"the command {point.name!r} ({point.value}) cannot be loaded: {problem}")
        return None
