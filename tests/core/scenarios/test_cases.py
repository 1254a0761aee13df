"""What users of other systems ran into, as behaviour of the pure core: endless waits, leaks, lost and mixed values."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from omniflow_core.control.calls import Admission
from omniflow_core.control.commands import FinishCall
from omniflow_core.control.events import Value
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.spec import ChunkSpec, GraphSpec
from tests.core.scenarios.driven import Driven
from tests.core.scenarios.playing import Player
from tests.support.graphs import graph, node


def served() -> GraphSpec:
    """A multimodal shape: frames, a diamond, a gated model, chunks and a count join."""
    nodes = (
        node("parser", outputs="text image n#", yield_window=3),
        node("embed"),
        node("vit", yield_window=2),
        node("vae", yield_window=2),
        node("llm", "text: emb; image: vit vae", is_session_ordered=True, yield_window=4),
        node("tts"),
        node("dit", "vit n#", counts="vit=n"),
    )
    edges = (
        "x>parser.x parser.text>embed.x parser.image>vit.x parser.image>vae.x embed.y>llm.emb vit.y>llm.image.vit "
        "vae.y>llm.image.vae llm.y>tts.x vit.y>dit.vit parser.n>dit.n tts.y>speech dit.y>picture llm.y>text"
    )
    return graph(nodes, edges, outputs="speech picture", unordered="text", chunks={"llm.y>tts.x": ChunkSpec(size=2)})


def frames(name: str, group: str) -> Sequence[Value]:
    if name == "parser":
        return [{"text": "t0"}, {"image": "i1"}, {"text": "t2"}, {"image": "i3"}, {"n": 2}]
    many = {"llm": 5, "tts": 2, "dit": 3}.get(name.partition("#")[0], 1)
    return [f"{name}.{i}" for i in range(many)]


# --- leaks ------------------------------------------------------------------------------------------------------------


class Session:
    """Calls as a server holds them: admitted in turn, and cancelled at some moment."""

    def __init__(self, chance: random.Random) -> None:
        self.admission = Admission(max_calls=7, max_calls_per_tenant=7)
        self.outcomes: Counter[str] = Counter()
        self._chance = chance
        self._spec = served()
        self._open: dict[str, Driven] = {}
        self._admitted: set[str] = set()

    def arrive(self, name: str) -> None:
        session, supersede = f"s{self._chance.randrange(3)}", self._chance.random() < 0.1
        try:
            arrival = self.admission.arrive(name, tenant="t", session=session, supersede=supersede)
        except OmniFlowError as refused:
            assert refused.reason is Reason.TOO_MANY_CALLS
            self.outcomes["refused"] += 1
            return
        self._open[name] = Driven(self._spec, checks_every_step=False)
        if arrival.is_admitted:
            self._admitted.add(name)
        for superseded in reversed(arrival.superseded):
            self.end(superseded)

    def end_any(self) -> None:
        if self._open:
            self.end(self._chance.choice(list(self._open)))

    def end_all(self) -> None:
        while self._open:
            self.end_any()

    def end(self, name: str) -> None:
        """Lets the call run for a while if it may, then cancels it."""
        drive = self._open.pop(name)
        if name in self._admitted:
            player = Player(drive, frames, workers=2)
            player.size = 100
            player.pick = self._chance.choice
            player.run(x="v", steps=self._chance.randrange(160))
        self.outcomes["finished" if drive.terminal else "cancelled" if name in self._admitted else "queued"] += 1
        was_open = drive.terminal is None
        assert ("fail CALL_CANCELLED" in drive.cancel()) == was_open
        assert drive.cancel() == []
        drive.stop_all()
        assert drive.is_released
        assert drive.leftovers == {}
        following = self.admission.end(name)
        self.admission.check_integrity()
        if following is not None:
            self._admitted.add(following)


@pytest.mark.slow
def test_2000_cancels_at_any_moment_leave_nothing() -> None:
    """Before admission, in the queue of the session, at any step of the call, after its end, by a later call."""
    chance = random.Random(7)
    session = Session(chance)
    for i in range(2000):
        session.arrive(f"call {i}")
        if chance.random() < 0.6:
            session.end_any()
    session.end_all()
    assert len(session.admission) == 0
    assert session.outcomes.total() == 2000
    assert min(session.outcomes[what] for what in ("finished", "cancelled", "queued", "refused")) > 50


# --- waits that never end ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["not taken", "nothing", "skipped"])
@pytest.mark.parametrize("last", ["b", "c", "a"])
def test_branch_that_gives_nothing_is_impossible_in_the_step_that_closes_the_last_lease(how: str, last: str) -> None:
    """No further event, and no time, is needed; and the join never runs without its input."""
    spec = graph(
        (node("a", outputs="p q"), node("b"), node("c"), node("j", "b c")),
        "x>a.x a.p>b.x a.q>c.x b.y>j.b c.y>j.c j.y>out",
    )
    drive = Driven(spec)
    drive.admit(x="v")
    drive.give("a", **({"p": 1} if how == "not taken" else {"p": 1, "q": 1}))
    ends: dict[str, list[Value]] = {"a": [], "b": ["b0"], "c": [{}] if how == "skipped" else []}
    names = [name for name in ("a", "b", "c") if name != last and name in drive.running]
    for name in names:
        assert drive.terminal is None
        drive.run(name, *ends[name])
    if last in drive.running and drive.terminal is None:
        drive.run(last, *ends[last])
    drive.stop_all()
    assert drive.error.reason is Reason.IMPOSSIBLE_INPUT
    assert drive.error.metadata == {"node": "j", "group": "main", "missing": "c", "path": "0.0"}
    assert "j" not in drive.starts
    assert drive.leftovers == {}


# --- lost, doubled and reordered --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_thousand_values_over_two_branches_reach_a_consumer_once_each_in_order(seed: int) -> None:
    """The branches differ in speed; the consumer runs one at a time in the producer's order."""
    sink = node("sink", "fast: p; slow: q", is_session_ordered=True)
    nodes = (node("a", outputs="p q", yield_window=16), node("fast"), node("slow"), sink)
    drive = Driven(
        graph(nodes, "x>a.x a.p>fast.x a.q>slow.x fast.y>sink.p slow.y>sink.q sink.y>out"), checks_every_step=False
    )

    def script(name: str, group: str) -> Sequence[Value]:
        if name == "a":
            chance = random.Random(seed)
            return [{chance.choice("pq"): i} for i in range(1000)]
        (values,) = drive.starts[name].fields.values()
        return values

    player = Player(drive, script, workers=3)
    chance = random.Random(seed)

    def pick(ready: list[str]) -> str:
        quick = [name for name in ready if not name.startswith("slow")]
        return chance.choice(quick if quick and chance.random() < 0.9 else ready)

    player.pick = pick
    player.run(x="v")
    consumed = [start.fields for start in drive.starts.values() if start.node.name == "sink"]
    assert [value for fields in consumed for values in fields.values() for value in values] == list(range(1000))
    assert drive.values() == list(range(1000))


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_values_gathered_by_a_join_are_each_there_once_in_order(count: int) -> None:
    """Each is made by an activation of its own, which answer in any order."""
    nodes = (node("s"), node("d"), node("h"), node("k"), node("j", "h? k"))
    drive = Driven(graph(nodes, "x>s.x s.y>d.x s.y>k.x d.y>h.x h.y>j.h k.y>j.k j.y>out"), checks_every_step=False)
    drive.admit(x="v")
    drive.run("s", "go")
    drive.run("d", *range(count))
    drive.run("k", "k")
    made = [name for name in drive.running if name.startswith("h")]
    random.Random(count).shuffle(made)
    for name in made:
        drive.run(name, drive.starts[name].fields["x"][0])
    if count:
        assert drive.inputs_of("j") == [((0, 0), {"h": tuple(range(count)), "k": ("k",)})]
    else:
        assert drive.inputs_of("j") == [((0, 0, 0), {"k": ("k",)})]


def test_last_value_and_end_of_an_input_in_one_message() -> None:
    drive = Driven(graph((node("a"),), "s>a.x a.y>out", inputs="", streaming="s"))
    drive.admit()
    drive.push("s", 0)
    assert drive.push("s", 1, last=True) == ["start a#1 main(x=1)"]
    assert drive.push("s", 2) == [], "what comes after the end is not taken"
    assert drive.push("s", last=True) == []
    drive.run("a#1", "later")
    assert drive.run("a", "earlier") == ["emit out=earlier", "emit out=later", "finish stop", "release"]


def test_input_that_ends_without_a_value_gives_nothing() -> None:
    drive = Driven(graph((node("a"),), "s>a.x a.y>out", inputs="", streaming="s"))
    assert drive.admit() == []
    assert drive.push("s", last=True) == ["finish stop", "release"]


def test_end_that_overtakes_its_yields_is_no_silent_loss() -> None:
    """An activation that says it gave more than has come fails the call; what comes after is not taken."""
    drive = Driven(graph((node("a"),), "x>a.x a.y>out"))
    drive.admit(x="v")
    assert drive.give("a", y=0) == ["emit out=0"]
    drive.running["a"] = 2
    assert drive.finish("a")[-2:] == ["fail INTERNAL", "release"]
    assert drive.values() == [0]


@pytest.mark.parametrize("is_late", [False, True])
def test_late_chunk_is_given_before_the_terminal_event_or_not_taken(is_late: bool) -> None:
    drive = Driven(graph((node("a"), node("b")), "x>a.x x>b.x a.y>out b.y>out"))
    drive.admit(x="v")
    drive.give("a", y=0)
    if is_late:
        drive.cancel()
        assert drive.give("a", y=1) == []
    else:
        drive.finish("b")
        assert drive.give("a", y=1) == ["emit out=1"]
        assert drive.finish("a") == ["finish stop", "release"]
    drive.stop_all()
    assert drive.values() == ([0] if is_late else [0, 1])


# --- mixed ------------------------------------------------------------------------------------------------------------


def test_64_calls_side_by_side_do_not_mix() -> None:
    """Every value carries its call's tag; every node asserts it."""
    chance = random.Random(64)
    spec = served()
    players: list[Player] = []

    def script_of(drive: Driven, tag: int) -> Player:
        def script(name: str, group: str) -> Sequence[Value]:
            start = drive.starts[name]
            seen = {value for facet in start.facets for values in facet.fields.values() for value in values}
            assert {str(value).partition(":")[0] for value in seen} == {str(tag)}
            return [
                {k: v if k == "n" else f"{tag}:{v}" for k, v in value.items()}
                if isinstance(value, dict)
                else f"{tag}:{value}"
                for value in frames(name, group)
            ]

        player = Player(drive, script, workers=2)
        player.pick = chance.choice
        return player

    for tag in range(64):
        players.append(script_of(Driven(spec), tag))
    open_calls = list(range(64))
    while open_calls:
        tag = chance.choice(open_calls)
        players[tag].run(x=f"{tag}:v", steps=chance.randrange(1, 9))
        if players[tag].drive.is_released:
            open_calls.remove(tag)
    for tag, player in enumerate(players):
        assert isinstance(player.drive.terminal, FinishCall)
        assert {str(event.value).partition(":")[0] for event in player.drive.emitted} == {str(tag)}
    outputs = {tuple(str(v).partition(":")[2] for v in player.drive.values("speech")) for player in players}
    assert {len(values) for values in outputs} == {4 * 3 * 2}


def test_two_producers_of_3000_yields_with_full_windows_are_bounded() -> None:
    """Both send what their windows allow before anything is taken; what is kept stays within the windows."""
    nodes = (node("a", yield_window=16), node("b", yield_window=16), node("u"), node("w"))
    spec = graph(nodes, "x>a.x x>b.x a.y>u.x b.y>w.x u.y>out w.y>out", outputs="", unordered="out")
    drive = Driven(spec, checks_every_step=False)
    player = Player(drive, lambda name, _: range(3000) if name in ("a", "b") else ["y"], workers=1)
    player.pick = lambda ready: next((n for n in ready if n in ("a", "b")), ready[-1])
    player.run(x="v")
    assert len(drive.emitted) == 6000
    assert player.most_running <= 2 + 2 * 16 + 2
