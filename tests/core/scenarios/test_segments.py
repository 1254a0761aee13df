"""A segment that its replica runs by itself changes nothing but who starts what."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from omniflow_core.control.commands import Emit, FailCall, FinishCall, StartActivation
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    Event,
    Value,
)
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.control.segments import ENTRY, RunInner, SegmentRun
from omniflow_core.control.work_items import HostedSegment
from omniflow_core.graph.inside import segment_graph
from omniflow_core.graph.plan import plan_graph
from omniflow_core.graph.spec import GraphSpec
from tests.support.graphs import graph, node

ROUNDS = 3

INSIDE = "-inside-"
"""What the call is given in the place of a value that does not leave its segment."""

Fields = Mapping[str, tuple[Value, ...]]


def illustrated_story() -> GraphSpec:
    """Each sentence of llm is drawn in some rounds of a diamond; pictures go to a join, a count join and out."""
    served: dict[str, Any] = {"is_inline": False, "role": "dit"}
    nodes = (
        node("llm", outputs="y n#"),
        node("step", "first: x; more: z", loop_bound=20, **served),
        node("cond", **served),
        node("uncond", **served),
        node("combine", "p q", "again preview image", **served),
        node("vae"),
        node("page", "text image"),
        node("album", "image n#", counts="image=n"),
    )
    edges = (
        "x>llm.x llm.y>step.first.x llm.n>album.n step.y>cond.x step.y>uncond.x cond.y>combine.p uncond.y>combine.q "
        "combine.again>step.more.z combine.preview>previews combine.image>vae.x vae.y>page.image llm.y>page.text "
        "vae.y>album.image page.y>pages album.y>bound"
    )
    return graph(nodes, edges, outputs="previews pages bound")


def yields_of(name: str, fields: Fields) -> list[dict[str, Value]]:
    """What each node makes of its inputs. A picture has a stroke for each round."""
    given = ",".join("+".join(map(str, fields[key])) for key in sorted(fields))
    match name:
        case "llm":
            return [{"y": "one"}, {"y": "two", "n": 2}]
        case "step":
            return [{"y": f"{given}'"}]
        case "uncond":
            return [{"y": f"{given}a"}, {"y": f"{given}b"}]
        case "combine":
            (picture,) = fields["p"]
            is_done = str(picture).count("'") == ROUNDS
            return [{"preview": given}, {"image" if is_done else "again": picture}]
        case "cond":
            return [{"y": given}]
        case _:
            return [{"y": f"{name}({given})"}]


class Story:
    """Plays a call whose activations run in the order of their starts, with replicas that run segments or do not."""

    def __init__(self, *, has_hosts: bool) -> None:
        self._has_hosts = has_hosts
        self._plan = plan_graph(illustrated_story())
        self._scheduler = CallScheduler(self._plan)
        self._waiting: deque[tuple[int, str, Fields]] = deque()
        self._hosts: dict[int, Host] = {}
        """By activation."""
        self.started: set[tuple[str, tuple[int, ...], str]] = set()
        """Node, path and inputs."""
        self.commanded: list[str] = []
        self.emitted: list[Emit] = []
        self.terminal: FinishCall | FailCall | None = None

    def play(self) -> Story:
        self._handle(CallAdmitted({"x": "v"}))
        while self._waiting:
            activation_id, name, fields = self._waiting.popleft()
            self._accept(activation_id, name)
            yields = yields_of(name, fields)
            for ordinal, given in enumerate(yields):
                self._happen(activation_id, ActivationYielded(activation_id, ordinal, given))
            self._happen(activation_id, ActivationFinished(activation_id, len(yields)))
        return self

    def _accept(self, activation_id: int, name: str) -> None:
        if activation_id in self._hosts:
            return
        segment = self._plan.nodes[name].segment
        is_hosted = self._has_hosts and segment is not None and segment.entry == name
        self._handle(ActivationAccepted(activation_id, hosts_segment=is_hosted))
        hosted = self._scheduler.segment_of(activation_id)
        if hosted is not None:
            self._hosts[activation_id] = Host(hosted, activation_id)

    def _happen(self, activation_id: int, event: ActivationYielded | ActivationFinished) -> None:
        """On a replica that runs a segment first, and in the call with what leaves it only."""
        host = self._hosts.get(activation_id)
        if host is None:
            self._handle(event)
            return
        started = host.handle(event)
        self._handle(host.as_told(event))
        for start in started:
            own_id = host.match(start)
            self._hosts[own_id] = host
            self._start(own_id, start.node, self._path_of(own_id), start.fields)

    def _path_of(self, activation_id: int) -> tuple[int, ...]:
        return next(a.origin_path for a in self._scheduler.inspect().activations if a.activation_id == activation_id)

    def _start(self, activation_id: int, name: str, path: tuple[int, ...], fields: Fields) -> None:
        self.started.add((name, path, str(sorted(fields.items()))))
        self._waiting.append((activation_id, name, fields))

    def _handle(self, event: Event) -> None:
        for command in self._scheduler.handle(event):
            match command:
                case StartActivation():
                    name = command.node.name
                    self.commanded.append(name)
                    self._start(command.activation_id, name, command.origin_path, command.fields)
                case Emit():
                    self.emitted.append(command)
                case FinishCall() | FailCall():
                    self.terminal = command
        self._scheduler.check_integrity()


class Host:
    """A replica that runs a segment."""

    def __init__(self, hosted: HostedSegment, entry_id: int) -> None:
        plan = hosted.plan
        self._hosted = hosted
        self._exits = {name: frozenset(fields) for name, fields in plan.exits.items()}
        inside = segment_graph(plan.nodes, plan.edges, plan.entry)
        self._run = SegmentRun(inside, plan.entry, self._exits, yield_window=64, byte_credit=1 << 20)
        self._ids = {ENTRY: entry_id}
        """The call's ids, by the run's."""
        self._inner = {entry_id: (ENTRY, plan.entry)}
        """The run's ids and the nodes, by the call's ids."""

    def handle(self, event: ActivationYielded | ActivationFinished) -> list[RunInner]:
        inner_id, _ = self._inner[event.activation_id]
        if isinstance(event, ActivationYielded):
            commands = self._run.yielded(inner_id, event.ordinal, event.fields, 0, 0)
        else:
            commands = self._run.finished(inner_id, event.yield_count)
        return [command for command in commands if isinstance(command, RunInner)]

    def as_told(self, event: ActivationYielded | ActivationFinished) -> ActivationYielded | ActivationFinished:
        if isinstance(event, ActivationFinished):
            return event
        _, name = self._inner[event.activation_id]
        left = self._exits.get(name, frozenset())
        fields = {key: value if key in left else INSIDE for key, value in event.fields.items()}
        return ActivationYielded(event.activation_id, event.ordinal, fields)

    def match(self, start: RunInner) -> int:
        own_id = self._hosted.take(start.node, start.group, self._ids[start.parent_id], start.parent_ordinal)
        assert own_id is not None
        self._ids[start.inner_id] = own_id
        self._inner[own_id] = (start.inner_id, start.node)
        return own_id


def test_segment_cut_changes_nothing() -> None:
    whole, cut = Story(has_hosts=False).play(), Story(has_hosts=True).play()
    assert len(whole.started) == len(whole.commanded) == 1 + 2 * (4 * ROUNDS + 2) + 1
    assert cut.started == whole.started
    assert isinstance(whole.terminal, FinishCall)
    assert cut.terminal == whole.terminal
    for output in ("previews", "pages", "bound"):
        assert [e for e in cut.emitted if e.output == output] == [e for e in whole.emitted if e.output == output]
    assert Counter(cut.commanded) == {"llm": 1, "step": 2, "vae": 2, "page": 2, "album": 1}
    assert INSIDE not in [event.value for event in cut.emitted]
