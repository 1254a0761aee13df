"""`omniflow graph apply`, `revisions`, `traffic`, `promote`, `rollback`: revisions of a graph, and which new calls get.

What a command decides it decides from the revisions that it has read; when somebody changes the graph in between, the server
refuses it, and nothing has happened.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

import omniflow
from omniflow.client import Diagnostic, GraphRevision, GraphRevisions
from omniflow.requests import graph_name
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_server.cli import terminal
from omniflow_server.cli.graph_source import GraphReference, print_findings, read_spec
from omniflow_server.cli.options import DEFAULT_NAME, AsJson, ConfigFile, Name, Target, find_target, load_settings

WHOLE = 100

InstalledGraph = Annotated[str, typer.Argument(metavar="GRAPH", help="Name of an installed graph.")]
RevisionArgument = Annotated[
    str | None, typer.Argument(metavar="REVISION", help="A kept revision, or the beginning of it.")
]
Decision = Callable[[GraphRevisions], dict[str, int]]
"""From the revisions as they are to the shares that they shall have."""


def apply(
    graph: GraphReference,
    canary: Annotated[
        int | None,
        typer.Option("--canary", min=0, max=100, metavar="PERCENT", help="Share of new calls; all of them without it."),
    ] = None,
    target: Target = None,
    name: Name = DEFAULT_NAME,
    config: ConfigFile = None,
) -> None:
    """
    Install a graph as a new revision, in the whole cluster. Calls that run keep the revision that they started with.

    With --canary only a share of the new calls gets it, always the same sessions; widen it, promote it or roll back.
    Status 1 when something is wrong with the graph: nothing is installed then.

    [bold]Examples[/]

      omniflow graph apply path/to/flow.py
      omniflow graph apply path/to/flow.py --canary 10
      omniflow graph promote my_graph
    """
    spec = read_spec(graph)
    where = find_target(target, name, load_settings(config, None))
    findings, found = asyncio.run(_apply(where, spec, canary))
    if findings:
        print_findings(terminal.console(), graph, findings)
        raise typer.Exit(terminal.FAILED)
    _show(spec.name, found)


def revisions(
    graph: InstalledGraph,
    target: Target = None,
    name: Name = DEFAULT_NAME,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """
    List the kept revisions of a graph, the newest first, and the share of new calls that each gets.

    [bold]Examples[/]

      omniflow graph revisions assistant
      omniflow graph revisions assistant --target 127.0.0.1:7700 --json
    """
    found = asyncio.run(_revisions(find_target(target, name, load_settings(config, None)), graph))
    if as_json:
        typer.echo(json.dumps(_as_json(graph, found), indent=2))
    else:
        _show(graph, found)


def traffic(
    graph: InstalledGraph,
    shares: Annotated[
        list[str],
        typer.Argument(metavar="REVISION=PERCENT", help="Shares, 100 in all; revisions by their beginning."),
    ],
    target: Target = None,
    name: Name = DEFAULT_NAME,
    config: ConfigFile = None,
) -> None:
    """
    Share new calls among revisions. Those that are not named get none.

    A session keeps its revision as long as shares allow: widening a canary moves sessions into the canary only.

    [bold]Examples[/]

      omniflow graph revisions assistant
      omniflow graph traffic assistant 3f2a=75 91bc=25
    """
    wanted = [_share(text) for text in shares]
    _set_shares(graph, lambda found: _shares(graph, found, wanted), target, name, config)


def promote(
    graph: InstalledGraph,
    revision: RevisionArgument = None,
    target: Target = None,
    name: Name = DEFAULT_NAME,
    config: ConfigFile = None,
) -> None:
    """
    Give a revision all new calls: the newest one, or the one that is named.

    [bold]Examples[/]

      omniflow graph apply path/to/flow.py --canary 10
      omniflow graph promote my_graph
      omniflow graph promote my_graph 3f2a
    """

    def decide(found: GraphRevisions) -> dict[str, int]:
        return {_meant(graph, found, revision) if revision else found.revisions[0].revision: WHOLE}

    _set_shares(graph, decide, target, name, config)


def rollback(
    graph: InstalledGraph,
    revision: RevisionArgument = None,
    target: Target = None,
    name: Name = DEFAULT_NAME,
    config: ConfigFile = None,
) -> None:
    """
    Give all new calls to an earlier revision: the one before the newest that gets calls, or the one that is named.

    While a canary runs that ends the canary; otherwise it goes one revision back, by age.

    [bold]Examples[/]

      omniflow graph rollback assistant
      omniflow graph rollback assistant 91bc
    """

    def decide(found: GraphRevisions) -> dict[str, int]:
        return {_meant(graph, found, revision) if revision else _before(graph, found): WHOLE}

    _set_shares(graph, decide, target, name, config)


# --- what is meant ------------------------------------------------------------------------------------------------------


def _share(text: str) -> tuple[str, int]:
    """Beginning of a revision and its percent. Raises INVALID_FIELD."""
    revision, _, percent = text.partition("=")
    if not (revision and percent.isascii() and percent.isdecimal() and int(percent) <= WHOLE):
        raise invalid_field(text, "write REVISION=PERCENT with a whole percent from 0 to 100, such as 3f2a=90")
    return revision, int(percent)


def _shares(graph: str, found: GraphRevisions, wanted: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Raises INVALID_FIELD when they do not add up, or one revision is named twice."""
    total = sum(percent for _, percent in wanted)
    if total != WHOLE:
        raise OmniFlowError(
            Reason.INVALID_FIELD,
            f"the shares add up to {total} %; give {WHOLE} in all, 0 is for those that are not named",
        )
    shares: dict[str, int] = {}
    for beginning, percent in wanted:
        revision = _meant(graph, found, beginning)
        if revision in shares:
            raise OmniFlowError(Reason.INVALID_FIELD, f"revision {revision} is named twice; give it one share")
        shares[revision] = percent
    return shares


def _meant(graph: str, found: GraphRevisions, beginning: str) -> str:
    """The kept revision that begins so. Raises UNKNOWN_RESOURCE."""
    kept = [each.revision for each in found.revisions]
    meant = [beginning] if beginning in kept else [name for name in kept if name.startswith(beginning)]
    if len(meant) == 1:
        return meant[0]
    problem = f"{len(meant) or 'no'} revisions of {graph_name(graph)} begin with {beginning!r}"
    fix = f"give more of it: {', '.join(meant)}" if meant else f"kept, the newest first: {', '.join(kept)}"
    raise OmniFlowError(Reason.UNKNOWN_RESOURCE, f"{problem}; {fix}")


def _before(graph: str, found: GraphRevisions) -> str:
    """The revision before the newest that gets calls. Raises UNKNOWN_RESOURCE when none is kept."""
    newest = next(i for i, each in enumerate(found.revisions) if each.percent)
    if newest + 1 < len(found.revisions):
        return found.revisions[newest + 1].revision
    raise OmniFlowError(
        Reason.UNKNOWN_RESOURCE,
        f"no revision of {graph_name(graph)} before {found.revisions[newest].revision} is kept; apply the earlier "
        f"definition with `omniflow graph apply`, or name a revision that `omniflow graph revisions {graph}` shows",
    )


# --- the server ---------------------------------------------------------------------------------------------------------


async def _apply(
    target: str, spec: graph_spec_pb2.GraphSpec, canary: int | None
) -> tuple[Sequence[Diagnostic], GraphRevisions]:
    """Findings, or the revisions with the new one."""
    async with omniflow.connect(target) as client:
        if findings := await client.validate(spec):
            return findings, GraphRevisions(revisions=(), etag="")
        await client.apply(spec, canary_percent=canary)
        return (), await client.graph_revisions(spec.name)


async def _revisions(target: str, graph: str) -> GraphRevisions:
    async with omniflow.connect(target) as client:
        return await client.graph_revisions(graph)


async def _change(target: str, graph: str, decide: Decision) -> GraphRevisions:
    async with omniflow.connect(target) as client:
        found = await client.graph_revisions(graph)
        return await client.set_traffic(graph, decide(found), etag=found.etag)


def _set_shares(graph: str, decide: Decision, target: str | None, name: str, config: ConfigFile) -> None:
    where = find_target(target, name, load_settings(config, None))
    _show(graph, asyncio.run(_change(where, graph, decide)))


# --- what is shown ------------------------------------------------------------------------------------------------------


def _show(graph: str, found: GraphRevisions) -> None:
    out = terminal.console()
    out.print(f"[bold]{escape(graph_name(graph))}[/]: {_summary(found)}", soft_wrap=True)
    table = Table("revision", "age", "share", box=None, header_style="bold", pad_edge=False)
    table.columns[-1].justify = "right"
    now_s = time.time()
    for each in found.revisions:
        table.add_row(each.revision, _age(each, now_s), Text(f"{each.percent} %", "green" if each.percent else "dim"))
    out.print(table)


def _summary(found: GraphRevisions) -> str:
    called = [each for each in found.revisions if each.percent]
    if len(called) == 1:
        return f"all new calls go to {called[0].revision}"
    return "new calls go " + ", ".join(f"{each.percent} % to {each.revision}" for each in called)


def _age(revision: GraphRevision, now_s: float) -> str:
    """Empty for one whose time nobody has written down."""
    return terminal.seconds(max(0.0, now_s - revision.create_unix_s)) if revision.create_unix_s else "-"


def _as_json(graph: str, found: GraphRevisions) -> dict[str, object]:
    return {
        "name": graph_name(graph),
        "etag": found.etag,
        "revisions": [
            {"revision": each.revision, "create_unix_s": each.create_unix_s, "percent": each.percent}
            for each in found.revisions
        ],
    }
