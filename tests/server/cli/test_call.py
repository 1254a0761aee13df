"""`omniflow call`: what it shows of calls that run, have ended or failed, and whether saved calls run again."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from omniflow.dsl import Graph
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.values import ValueType
from omniflow_core.control.commands import FailCall
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
)
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_server.cli import call_source, call_view
from omniflow_server.cli.call_look import look
from omniflow_server.cli.call_source import CallSource
from tests.server.cli.command import CommandLine
from tests.server.cli.recorded import RecordedCall, Step, diamond

STOPPED = ErrorInfo(reason=Reason.CALL_CANCELLED, message="stopped")


def begun() -> RecordedCall:
    """The diamond after its first yield has joined half and its second has started two more branches."""
    call = RecordedCall(diamond())
    call.at(1_000, CallAdmitted({"x": "v"}))
    call.at(3_000, ActivationAccepted(1))
    call.at(20_000, ActivationYielded(1, 0, {"y": "v"}, 100))
    call.at(30_000, ActivationAccepted(2), ActivationAccepted(3))
    call.at(60_000, ActivationYielded(2, 0, {"y": "v"}, 50))
    call.at(61_000, ActivationFinished(2, 1))
    call.at(80_000, ActivationYielded(1, 1, {"y": "v"}, 100))
    return call


def failed() -> tuple[RecordedCall, ErrorInfo]:
    """The same, where the second yield's other branch gives nothing: its join can never be complete."""
    call = begun()
    call.at(90_000, ActivationYielded(3, 0, {"y": "v"}, 50), ActivationFinished(3, 1), ActivationFinished(1, 2))
    call.at(100_000, ActivationFinished(5, 0), ActivationYielded(4, 0, {"y": "v"}, 50))
    (_, fail) = call.at(120_000, ActivationFinished(4, 1))
    assert isinstance(fail, FailCall)
    call.at(130_000, ActivationFailed(6, STOPPED))
    return call, fail.error


def finished() -> RecordedCall:
    call = RecordedCall(diamond())
    call.at(0, CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {"y": "v"}), ActivationFinished(1, 1))
    call.at(10_000, ActivationYielded(3, 0, {"y": "v"}), ActivationFinished(3, 1))
    call.at(40_000, ActivationYielded(2, 0, {"y": "v"}), ActivationFinished(2, 1))
    call.at(100_000, ActivationYielded(4, 0, {"y": "v"}), ActivationFinished(4, 1))
    return call


def saved(call: RecordedCall, state: pb.CallState, error: ErrorInfo | None = None, name: str = "saved.call") -> str:
    call_source.write(call.response(state, error), Path(name))
    return name


@pytest.fixture
def narrow(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("COLUMNS", "110")
    return omniflow


# --- show ---------------------------------------------------------------------------------------------------------------


def test_show_of_a_running_call(narrow: CommandLine) -> None:
    outcome = narrow("call", "show", saved(begun(), pb.CALL_STATE_RUNNING))
    assert outcome.status == 0
    assert (
        outcome.out
        == """\
call c0ffee graphs/diamond: running for 80 ms
8 events; 5 activations, 1 ended; given: nothing

activation       state     yields     began      took  0                                                80 ms
call
└─ a.main #1     running        2    1.0 ms     79 ms  ..-----------========================================
   ├─ b.main #2  finished       1     20 ms     41 ms               .......--------------------=
   ├─ c.main #3  running        0     20 ms     60 ms               .......---------------------------------
   ├─ b.main #4  sent           0     80 ms    0.0 ms                                                       .
   └─ c.main #5  sent           0     80 ms    0.0 ms                                                       .
bars: . sent, - at work, = yielding

joins
  j.main: bucket 1 below 0.0, holds p 1 (50 bytes); misses q; waits for activation 3
  j.main: bucket 2 below 0.1, holds nothing yet (0 bytes); misses p, q; waits for activation 4, activation 5
"""
    )


def test_show_of_a_finished_call(narrow: CommandLine) -> None:
    outcome = narrow("call", "show", saved(finished(), pb.CALL_STATE_FINISHED))
    assert (
        outcome.out
        == """\
call c0ffee graphs/diamond: finished after 100 ms
9 events; 4 activations, 4 ended; given: 1 out

activation       state     yields     began      took  0                                               100 ms
call
└─ a.main #1     finished       1    0.0 ms    0.0 ms  =
   ├─ b.main #2  finished       1    0.0 ms     40 ms  .....................
   ├─ c.main #3  finished       1    0.0 ms     10 ms  .....
   └─ j.main #4  finished       1     40 ms     60 ms                       ................................   from #2, #3
bars: . sent, - at work, = yielding
"""
    )


def test_show_of_a_failed_call_has_the_joins_before_its_end(narrow: CommandLine) -> None:
    call, error = failed()
    outcome = narrow("call", "show", saved(call, pb.CALL_STATE_FAILED, error))
    lines = outcome.out.splitlines()
    assert lines[:3] == [
        "call c0ffee graphs/diamond: failed after 120 ms",
        "IMPOSSIBLE_INPUT: Input group j.main got some of its fields but can never get q.",
        "15 events; 6 activations, 6 ended; given: nothing",
    ]
    (stopped,) = (line for line in lines if "j.main #6" in line)
    assert stopped.endswith("CALL_CANCELLED: stopped; from #2, #3")
    assert lines[-2:] == [
        "joins before the end, after event 12",
        "  j.main: bucket 2 below 0.1, holds p 1 (50 bytes); misses q; waits for activation 4",
    ]


def test_show_at_an_event_is_as_it_was_then(narrow: CommandLine) -> None:
    call, error = failed()
    outcome = narrow("call", "show", saved(call, pb.CALL_STATE_FAILED, error), "--at", "5")
    lines = outcome.out.splitlines()
    assert lines[0] == "call c0ffee graphs/diamond: failed; as it was after event 5"
    assert lines[2] == "6 events; 3 activations, 0 ended; given: nothing"
    assert lines[-1] == (
        "  j.main: bucket 1 below 0.0, holds p 1 (50 bytes); misses q; waits for activation 2, activation 3"
    )
    outcome = narrow("call", "show", "saved.call", "--at", "99")
    assert (outcome.status, outcome.err) == (2, "error: the record has 15 events, numbered from 0: there is no 99\n")


def test_show_as_json(omniflow: CommandLine) -> None:
    call, error = failed()
    shown = json.loads(omniflow("call", "show", saved(call, pb.CALL_STATE_FAILED, error), "--json").out)
    assert (shown["call_id"], shown["state"], shown["events"], shown["events_left_out"]) == ("c0ffee", "failed", 15, 0)
    assert shown["error"]["reason"] == "IMPOSSIBLE_INPUT"
    assert shown["error"]["metadata"]["missing"] == "q"
    (joined,) = (life for life in shown["activations"] if life["node"] == "j")
    assert (joined["parent"], joined["sources"], joined["state"]) == (1, [2, 3], "stopped")
    assert (joined["begin_us"], joined["end_us"]) == (90_000, 130_000)
    assert shown["snapshot"]["buckets"][0]["missing"] == ["q"]
    assert shown["first_difference"] is None


def test_show_of_a_full_record_takes_the_rest_from_the_snapshot(narrow: CommandLine) -> None:
    call = RecordedCall(diamond(), limit_bytes=880)
    call.at(0, CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {"y": "v"}))
    call.at(50_000, ActivationFinished(2, 0), ActivationYielded(1, 1, {"y": "v"}), ActivationAccepted(4))
    outcome = narrow("call", "show", saved(call, pb.CALL_STATE_RUNNING))
    assert "the record is full: the last 2 events are not in it" in outcome.err
    rows = {
        line.split("#")[1].split()[0]: line.split("#")[1].split()[1:3]
        for line in outcome.out.splitlines()
        if "#" in line
    }
    assert rows == {
        "1": ["running", "2"],
        "2": ["finished", "0"],
        "3": ["sent", "0"],
        "4": ["running", "0"],
        "5": ["sent", "0"],
    }
    assert "bucket 2 below 0.1" in outcome.out


def test_show_of_a_full_record_does_not_claim_what_it_does_not_know(narrow: CommandLine) -> None:
    call = RecordedCall(diamond(), limit_bytes=880)
    call.at(0, CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {"y": "v"}), ActivationYielded(1, 1, {"y": "v"}))
    call.at(10, ActivationFinished(2, 0), ActivationFinished(3, 0), ActivationFinished(1, 2))
    outcome = narrow("call", "show", saved(call, pb.CALL_STATE_FINISHED))
    (row,) = (line for line in outcome.out.splitlines() if "#3" in line)
    assert row.split("#3")[1].split() == ["ended", "0", "0.0", "ms", "-"]


def test_show_folds_many_equals(narrow: CommandLine) -> None:
    call = RecordedCall(diamond())
    call.at(0, CallAdmitted({"x": "v"}), *(ActivationYielded(1, i, {"y": "v"}) for i in range(20)))
    call.at(
        10,
        *(ActivationFinished(2 * i + 2, 0) for i in range(20)),
        *(ActivationFinished(2 * i + 3, 0) for i in range(20)),
    )
    name = saved(call, pb.CALL_STATE_RUNNING)
    folded = narrow("call", "show", name).out
    assert folded.count("#") == 41, "branches of two nodes alternate"
    linear = RecordedCall(chain())
    linear.at(0, CallAdmitted({"x": "v"}), *(ActivationYielded(1, i, {"y": "v"}) for i in range(20)))
    linear.at(10, *(ActivationFinished(i, 0) for i in range(2, 21)))
    name = saved(linear, pb.CALL_STATE_RUNNING)
    folded = narrow("call", "show", name).out
    assert "… 16 more of b, finished" in folded
    assert folded.count("#") == 1 + 3 + 1
    assert narrow("call", "show", name, "--all").out.count("#") == 21


def chain() -> Graph:
    """x -> a -> b -> out."""
    graph = Graph("chain")
    a, b = graph.node("a", Step, inline=True), graph.node("b", Step, inline=True)
    graph.input("x", ValueType.TEXT) >> a.inputs.field("x")
    a.y >> b.inputs.field("x")
    b.y >> graph.output("out", ValueType.TEXT)
    return graph


def test_show_cuts_lines_to_a_terminal_and_draws_blocks() -> None:
    response = begun().response(pb.CALL_STATE_RUNNING)
    history, snapshot, title = look(response, call_source.plan_of(response.call), None)
    console = Console(width=80, force_terminal=True, color_system=None, record=True, file=io.StringIO())
    call_view.show_tree(history, console, is_folded=True)
    call_view.show_snapshot(snapshot, console, title=title)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("░" in line and "▒" in line and "█" in line for line in lines)
    assert any(line.endswith("…") for line in lines)


# --- save and replay ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kept.call", "kept.json"])
def test_saved_call_is_the_same_call(omniflow: CommandLine, name: str) -> None:
    saved(finished(), pb.CALL_STATE_FINISHED)
    outcome = omniflow("call", "save", "saved.call", "--out", name)
    assert outcome.out == f"wrote {name}: call c0ffee of graphs/diamond\n"
    assert call_source.read(Path(name)) == call_source.read(Path("saved.call"))


def test_replay_agrees_with_the_record(omniflow: CommandLine) -> None:
    call, error = failed()
    outcome = omniflow("call", "replay", saved(call, pb.CALL_STATE_FAILED, error))
    assert (outcome.status, outcome.out) == (0, "15 events, 9 commands\nagrees with the record\n")


def test_replay_lists_commands(omniflow: CommandLine) -> None:
    outcome = omniflow("call", "replay", saved(finished(), pb.CALL_STATE_FINISHED), "--commands")
    assert outcome.out.splitlines()[:6] == [
        "     0    0.000000 s  admitted with x",
        "                        start #1 a below 0: main x",
        "     1    0.000000 s  yielded #1[0] y (0 bytes)",
        "                        start #2 b below 0.0: main x",
        "                        start #3 c below 0.0: main x",
        "     2    0.000000 s  finished #1 after 1 yields",
    ]
    assert "                        start #4 j below 0.0: main p, q" in outcome.out
    assert "                        finish the call: stop, 4 activations" in outcome.out


def test_replay_that_differs_names_the_event(omniflow: CommandLine) -> None:
    response = finished().response(pb.CALL_STATE_FINISHED)
    entries = bytearray(response.call.record.entries)
    entries[32 * 3 + 12] ^= 1  # an entry of the input comes first: this is the checksum of event 2
    response.call.record.entries = bytes(entries)
    call_source.write(response, Path("bent.call"))
    outcome = omniflow("call", "replay", "bent.call")
    assert outcome.status == 1
    assert "differs from event 2 on (finished #1 after 1 yields)" in outcome.out
    assert (
        "decides otherwise than the one that ran the call, from event 2 on" in omniflow("call", "show", "bent.call").err
    )


def test_replay_says_when_the_scheduler_breaks(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    name = saved(finished(), pb.CALL_STATE_FINISHED)

    def broken(self: object, event: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("omniflow_core.control.scheduler.CallScheduler.handle", broken)
    outcome = omniflow("call", "replay", name)
    assert outcome.status == 1
    assert "breaks on event 0 (admitted with x), and it did not when it was recorded" in outcome.err
    assert "ZeroDivisionError: by zero" in outcome.err


def test_replay_tells_of_events_that_are_not_in_the_record(omniflow: CommandLine) -> None:
    call = RecordedCall(diamond(), limit_bytes=880)
    call.at(0, CallAdmitted({"x": "v"}), *(ActivationYielded(1, i, {"y": "v"}) for i in range(50)))
    outcome = omniflow("call", "replay", saved(call, pb.CALL_STATE_RUNNING))
    assert outcome.status == 0
    assert "the record was full then, and 48 later events are not in it" in outcome.out


@pytest.mark.parametrize(
    ("name", "content"), [("x.call", b"\xff\xff"), ("x.json", b"{]"), ("x.call", b""), ("x.json", b"{}")]
)
def test_file_that_is_no_saved_call_is_refused(omniflow: CommandLine, name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    outcome = omniflow("call", "replay", name)
    assert outcome.status == 2
    assert f"{name} is no saved call" in outcome.err


def test_file_that_cannot_be_read_or_written_is_told(omniflow: CommandLine) -> None:
    assert "cannot read absent.call: No such file" in omniflow("call", "replay", "absent.call").err
    saved(finished(), pb.CALL_STATE_FINISHED)
    outcome = omniflow("call", "save", "saved.call", "--out", "absent/kept.call")
    assert (outcome.status, outcome.err) == (2, "error: cannot write absent/kept.call: No such file or directory\n")


# --- list ---------------------------------------------------------------------------------------------------------------


def test_list_shows_state_and_times(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    running = pb.CallSummary(call_id="aa", graph="graphs/g", state=pb.CALL_STATE_RUNNING, active_activations=3)
    running.create_time.FromSeconds(990)
    ended = pb.CallSummary(call_id="bb", graph="graphs/h", state=pb.CALL_STATE_FAILED, session="sessions/s")
    ended.create_time.FromSeconds(700)
    ended.end_time.FromSeconds(702)

    async def listed(self: CallSource) -> list[pb.CallSummary]:
        assert (self.target, self.tenant) == ("there:1", "me")
        return [ended, running]

    monkeypatch.setattr(CallSource, "list_calls", listed)
    monkeypatch.setattr("omniflow_server.cli.call.time.time", lambda: 1000.0)
    outcome = omniflow("call", "list", "--target", "there:1", "--tenant", "me")
    assert [line.split() for line in outcome.out.splitlines()] == [
        ["call", "graph", "state", "age", "took", "activations", "session"],
        ["bb", "h", "failed", "5", "min", "0", "s", "2.0", "s", "0", "s"],
        ["aa", "g", "running", "10.0", "s", "-", "3"],
    ]
    shown = json.loads(omniflow("call", "list", "--target", "there:1", "--tenant", "me", "--json").out)
    assert [(call["call_id"], call["state"]) for call in shown] == [("bb", "failed"), ("aa", "running")]


def test_list_of_nothing_says_so(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed(self: CallSource) -> list[pb.CallSummary]:
        return []

    monkeypatch.setattr(CallSource, "list_calls", listed)
    assert omniflow("call", "list", "-t", "there:1").out == "no calls of tenant 'default' run or are kept\n"


@pytest.mark.parametrize("command", ["list", "show", "save", "replay"])
def test_help_has_examples(omniflow: CommandLine, command: str) -> None:
    outcome = omniflow("call", command, "--help")
    assert outcome.status == 0
    assert "Examples" in outcome.out
    assert f"omniflow call {command}" in outcome.out


def test_call_without_a_server_says_how_to_start_one(omniflow: CommandLine) -> None:
    outcome = omniflow("call", "show", "3f2a")
    assert outcome.status == 2
    assert "start it with `omniflow up" in outcome.err
