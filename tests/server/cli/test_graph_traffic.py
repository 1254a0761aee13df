"""`omniflow graph apply`, `revisions`, `traffic`, `promote`, `rollback`: what they decide, print and refuse."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import json_format

import omniflow
from omniflow.transport import ClientOptions
from omniflow_core.errors import OmniFlowError
from omniflow_server.data.metadata.memory import MemoryStore
from omniflow_server.rpc.workflow_service import WorkflowServicer
from tests.server.cli.command import CommandLine, Outcome
from tests.server.control.cluster import NAME, Process, process, spec


class NearClient(omniflow.Client):
    """A client that asks the servicer itself: commands run loops of their own, and one process has one loop for gRPC."""

    def __init__(self, servicer: WorkflowServicer) -> None:
        super().__init__(ClientOptions(target="near", tenant=""))
        self._workflows = servicer

    async def __aenter__(self) -> NearClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing to close."""

    @property
    def _connection(self) -> Any:
        return SimpleNamespace(workflows=self._workflows)

    async def _unary(self, method: Any, request: Any, *, timeout_s: float = 0) -> Any:
        return await method(request, None)


class Commands:
    """The command line, and a control plane that it finds at one target."""

    def __init__(self, omniflow_: CommandLine, made: Process) -> None:
        self._omniflow = omniflow_
        self.made = made

    def __call__(self, *arguments: str) -> Outcome:
        return self._omniflow("graph", *arguments, "--target", "near:1")

    def write(self, description: str) -> str:
        path = f"{description}.json"
        Path(path).write_text(json_format.MessageToJson(spec(description)))
        return path

    def install(self, *descriptions: str) -> list[str]:
        """Their revisions; the last one has all calls."""
        return [asyncio.run(self.made.directory.apply(spec(each))).message.revision for each in descriptions]

    def share(self, **shares: int) -> None:
        """By description."""
        by_name = {r.message.description: r.name for r in self.made.catalog.versions(NAME).revisions}
        asyncio.run(self.made.directory.set_traffic(NAME, [(by_name[name], share) for name, share in shares.items()]))


@pytest.fixture
def graph(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = asyncio.run(process(MemoryStore(lambda: 1_000.0)))
    targets: list[str] = []

    def connect(target: str) -> NearClient:
        targets.append(target)
        assert target == "near:1"
        return NearClient(WorkflowServicer(made.catalog, made.directory))

    monkeypatch.setattr("omniflow_server.cli.graph_traffic.omniflow.connect", connect)
    monkeypatch.setattr("omniflow_server.cli.graph_traffic.time.time", lambda: 3_661.0)
    return Commands(omniflow, made)


# --- apply and revisions ------------------------------------------------------------------------------------------------


def test_apply_installs_and_shows_what_new_calls_get(graph: Commands) -> None:
    first = graph("apply", graph.write("one"))
    (one,) = graph.made.catalog.versions(NAME).names
    assert (first.status, first.err) == (0, "")
    assert first.out.splitlines() == [
        f"graphs/demo: all new calls go to {one}",
        "revision          age        share",
        f"{one}  1 h 1 min  100 %",
    ]
    graph.made.clock_ms.append(3_600_000)
    second = graph("apply", graph.write("two"), "--canary", "10")
    two = graph.made.catalog.versions(NAME).names[1]
    assert second.out.splitlines() == [
        f"graphs/demo: new calls go 10 % to {two}, 90 % to {one}",
        "revision          age        share",
        f"{two}  1 min 1 s   10 %",
        f"{one}  1 h 1 min   90 %",
    ]
    assert graph.made.shares() == {"one": 90, "two": 10}


def test_apply_of_a_broken_graph_says_what_is_wrong_and_installs_nothing(graph: Commands) -> None:
    broken = spec("one", interface="test.stepp")
    Path("broken.json").write_text(json_format.MessageToJson(broken))
    outcome = graph("apply", "broken.json")
    assert outcome.status == 1
    assert outcome.out.splitlines() == [
        "UNKNOWN_INTERFACE graph.nodes[0].interface",
        "  No interface 'test.stepp' is registered. Did you mean 'test.step'?",
    ]
    assert graph.made.catalog.names() == []


def test_apply_of_what_is_no_graph_or_no_percent_is_misuse(graph: Commands) -> None:
    assert graph("apply", "absent.json").status == 2
    outcome = graph("apply", graph.write("one"), "--canary", "101")
    assert outcome.status == 2
    assert "Invalid value for '--canary'" in outcome.err
    assert graph.made.catalog.names() == []


def test_canary_that_cannot_be_says_what_to_do(graph: Commands) -> None:
    graph.install("one", "two")
    outcome = graph("apply", graph.write("two"), "--canary", "10")
    assert outcome.status == 2
    assert (
        "no other has a share to keep; set the shares of both (SetGraphTraffic, `omniflow graph traffic`)"
        in outcome.err
    )


def test_revisions_are_shown_newest_first(graph: Commands) -> None:
    one, two = graph.install("one", "two")
    graph.share(one=75, two=25)
    outcome = graph("revisions", "demo")
    assert outcome.status == 0
    assert [line.split() for line in outcome.out.splitlines()[2:]] == [
        [two, "1", "h", "1", "min", "25", "%"],
        [one, "1", "h", "1", "min", "75", "%"],
    ]


def test_revisions_as_json(graph: Commands) -> None:
    one, two = graph.install("one", "two")
    outcome = graph("revisions", "graphs/demo", "--json")
    assert json.loads(outcome.out) == {
        "name": NAME,
        "etag": "2",
        "revisions": [
            {"revision": two, "create_unix_s": 1.0, "percent": 100},
            {"revision": one, "create_unix_s": 1.0, "percent": 0},
        ],
    }


def test_age_of_a_revision_without_a_time_is_not_made_up(graph: Commands) -> None:
    graph.made.clock_ms.append(0)
    (one,) = graph.install("one")
    assert graph("revisions", "demo").out.splitlines()[2].split() == [one, "-", "100", "%"]


@pytest.mark.parametrize("command", [("revisions",), ("promote",), ("rollback",), ("traffic", "demo=100")])
def test_unknown_graph_is_said_so(command: tuple[str, ...], graph: Commands) -> None:
    name, *arguments = command
    outcome = graph(name, "none", *arguments)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("error: There is no graph 'graphs/none'")


def test_no_server_says_how_to_start_one(omniflow: CommandLine) -> None:
    outcome = omniflow("graph", "revisions", "demo")
    assert outcome.status == 2
    assert "start it with `omniflow up assistant --detach`, or name a server with --target" in outcome.err


# --- traffic ------------------------------------------------------------------------------------------------------------


def test_traffic_is_shared_by_the_beginnings_of_revisions(graph: Commands) -> None:
    one, two, _ = graph.install("one", "two", "three")
    outcome = graph("traffic", "demo", f"{one[:4]}=75", f"{two}=25")
    assert outcome.status == 0
    assert outcome.out.splitlines()[0] == f"graphs/demo: new calls go 25 % to {two}, 75 % to {one}"
    assert graph.made.shares() == {"one": 75, "two": 25, "three": 0}


@pytest.mark.parametrize("share", ["one", "one=", "=100", "one=x", "one=101", "one=-1", "one=1.5", "one=²"])
def test_share_that_is_none_is_misuse(share: str, graph: Commands) -> None:
    outcome = graph("traffic", "demo", "--", share)
    assert outcome.status == 2
    assert outcome.err == (
        f"error: {share}: write REVISION=PERCENT with a whole percent from 0 to 100, such as 3f2a=90\n"
    )


def test_shares_that_do_not_add_up_are_misuse(graph: Commands) -> None:
    one, two = graph.install("one", "two")
    outcome = graph("traffic", "demo", f"{one}=70", f"{two}=20")
    assert outcome.status == 2
    assert outcome.err == "error: the shares add up to 90 %; give 100 in all, 0 is for those that are not named\n"


def test_revision_that_is_named_twice_is_misuse(graph: Commands) -> None:
    one, _ = graph.install("one", "two")
    outcome = graph("traffic", "demo", f"{one}=70", f"{one[:6]}=30")
    assert (outcome.status, outcome.err) == (2, f"error: revision {one} is named twice; give it one share\n")


def test_beginning_of_no_revision_names_those_that_are_kept(graph: Commands) -> None:
    one, two = graph.install("one", "two")
    outcome = graph("promote", "demo", "xyz")
    assert outcome.status == 1
    assert outcome.err == (
        f"error: no revisions of graphs/demo begin with 'xyz'; kept, the newest first: {two}, {one}\n"
    )


def test_beginning_of_several_revisions_asks_for_more_of_it(graph: Commands) -> None:
    names = {graph.made.catalog.compile(spec(text)).message.revision: text for text in map(str, range(17))}
    one, two = next((a, b) for a in names for b in names if a < b and a[0] == b[0])  # 17 of 16 digits
    graph.install(names[one], names[two])
    outcome = graph("promote", "demo", one[0])
    assert outcome.status == 1
    assert outcome.err == (f"error: 2 revisions of graphs/demo begin with {one[0]!r}; give more of it: {two}, {one}\n")
    assert graph("promote", "demo", one).status == 0
    assert graph.made.runs() == names[one]


# --- promote and rollback -----------------------------------------------------------------------------------------------


def test_promote_gives_the_newest_or_the_named_one_all_calls(graph: Commands) -> None:
    one, two = graph.install("one", "two")
    graph.share(one=90, two=10)
    outcome = graph("promote", "demo")
    assert (outcome.status, outcome.out.splitlines()[0]) == (0, f"graphs/demo: all new calls go to {two}")
    assert graph("promote", "demo", one[:5]).status == 0
    assert graph.made.shares() == {"one": 100, "two": 0}


@pytest.mark.parametrize(
    ("shares", "kept"),
    [
        ({"three": 100}, "two"),
        ({"two": 100}, "one"),
        ({"two": 90, "three": 10}, "two"),  # ends the canary
        ({"one": 50, "two": 50}, "one"),
    ],
)
def test_rollback_goes_to_the_revision_before_the_newest_that_gets_calls(
    shares: dict[str, int], kept: str, graph: Commands
) -> None:
    graph.install("one", "two", "three")
    graph.share(**shares)
    outcome = graph("rollback", "demo")
    assert outcome.status == 0
    assert graph.made.runs() == kept
    assert graph.made.shares()[kept] == 100


def test_rollback_to_a_named_revision(graph: Commands) -> None:
    one, _, _ = graph.install("one", "two", "three")
    assert graph("rollback", "demo", one).status == 0
    assert graph.made.runs() == "one"


def test_rollback_without_an_earlier_revision_says_what_to_do(graph: Commands) -> None:
    (one,) = graph.install("one")
    outcome = graph("rollback", "demo")
    assert outcome.status == 1
    assert outcome.err == (
        f"error: no revision of graphs/demo before {one} is kept; apply the earlier definition with `omniflow graph apply`, "
        "or name a revision that `omniflow graph revisions demo` shows\n"
    )


def test_change_of_somebody_else_in_between_is_refused(graph: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.install("one", "two")
    read = NearClient.graph_revisions

    async def read_and_be_overtaken(self: NearClient, name: str) -> omniflow.GraphRevisions:
        found = await read(self, name)
        await graph.made.directory.apply(spec("three"), 10)
        return found

    monkeypatch.setattr(NearClient, "graph_revisions", read_and_be_overtaken)
    outcome = graph("rollback", "demo")
    assert outcome.status == 1
    assert outcome.err == (
        "error: graphs/demo has been changed meanwhile; read its revisions again, and decide by what they are now.\n"
    )
    assert graph.made.shares() == {"one": 0, "two": 90, "three": 10}


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ("apply", "omniflow graph apply path/to/flow.py --canary 10"),
        ("revisions", "omniflow graph revisions assistant"),
        ("traffic", "omniflow graph traffic assistant 3f2a=75 91bc=25"),
        ("promote", "omniflow graph promote my_graph 3f2a"),
        ("rollback", "omniflow graph rollback assistant 91bc"),
    ],
)
def test_help_teaches_with_an_example(command: str, example: str, omniflow: CommandLine) -> None:
    outcome = omniflow("graph", command, "--help")
    assert outcome.status == 0
    assert example in outcome.out


def test_help_of_the_group_goes_from_a_file_to_all_calls(omniflow: CommandLine) -> None:
    outcome = omniflow("graph", "--help")
    listed = [line.split()[1] for line in outcome.out.splitlines() if line.startswith("│") and len(line.split()) > 2]
    commands = ["check", "explain", "apply", "revisions", "traffic", "promote", "rollback"]
    assert [word for word in listed if word in commands] == commands


def test_error_of_the_server_is_one_line(graph: Commands) -> None:
    graph.install("one")
    asyncio.run(graph.made.store.close_owner(graph.made.life[-1]))
    outcome = graph("apply", graph.write("two"))
    assert outcome.status == 1
    assert outcome.err.startswith("error: the life with epoch")
    assert outcome.err.count("\n") == 1
    with pytest.raises(OmniFlowError):
        asyncio.run(graph.made.directory.apply(spec("two")))
