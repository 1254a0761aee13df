"""Graphs of a cluster: changes through the store, what each process takes, and who wins when two change one graph."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.findings import InvalidGraphError
from omniflow_core.graph.plan import GraphPlan, plan_graph
from omniflow_core.graph.spec import GraphSpec
from omniflow_server.control import catalog as catalog_module
from omniflow_server.control import graph_directory
from omniflow_server.data.metadata.memory import MemoryStore
from omniflow_server.data.metadata.port import GraphRow
from tests.server.control.cluster import NAME, Process, open_life, process, spec
from tests.server.control.table import Step


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 1_000.0)


@pytest.fixture
async def a(store: MemoryStore) -> Process:
    return await process(store, "a")


@pytest.fixture
async def b(store: MemoryStore) -> Process:
    return await process(store, "b")


async def row_of(store: MemoryStore, name: str = NAME) -> GraphRow:
    (row,) = [row for row in (await store.graphs())[1] if row.name == name]
    return row


# --- apply --------------------------------------------------------------------------------------------------------------


async def test_applied_graph_is_callable_at_once_here_and_after_a_refresh_elsewhere(a: Process, b: Process) -> None:
    entry = await a.directory.apply(spec("one"))
    assert a.catalog.get(NAME) is entry
    assert a.changes == [[NAME]]
    assert b.catalog.names() == []
    await b.directory.refresh()
    assert b.catalog.get(NAME).message == entry.message
    assert b.catalog.get(NAME).create_time_ms == entry.create_time_ms == 1_000
    assert b.prepared == [entry.message.revision]
    assert b.changes == [[NAME]]


async def test_revision_takes_all_calls_or_a_share_of_them(a: Process, b: Process) -> None:
    await a.directory.apply(spec("one"), 10)
    assert a.shares() == {"one": 100}, "a new graph takes all"
    await a.directory.apply(spec("two"), 10)
    assert a.shares() == {"one": 90, "two": 10}
    await b.directory.apply(spec("three"), 50)
    assert b.shares() == {"one": 45, "two": 5, "three": 50}
    await a.directory.apply(spec("two"))
    assert a.shares() == {"one": 0, "two": 100, "three": 0}
    await b.directory.refresh()
    assert b.shares() == a.shares()
    assert all(a.catalog.pick(NAME, x) is a.catalog.get(NAME) for x in map(str, range(200)))


async def test_both_processes_pick_the_same_revision(a: Process, b: Process) -> None:
    for description in ("one", "two", "three"):
        await a.directory.apply(spec(description), 30)
    await b.directory.refresh()
    for i in range(300):
        here, there = (p.catalog.pick(NAME, f"sessions/{i}").message.revision for p in (a, b))
        assert here == there


async def test_same_definition_again_writes_nothing(a: Process, store: MemoryStore) -> None:
    entry = await a.directory.apply(spec("one"))
    assert await a.directory.apply(spec("one")) is entry
    assert await a.directory.apply(spec("one"), 10) is entry, "the only revision has all calls"
    assert (a.store.puts, (await row_of(store)).version) == (1, 1)


async def test_definition_that_another_process_installed_before_keeps_its_time(a: Process, b: Process) -> None:
    await a.directory.apply(spec("one"))
    await a.directory.apply(spec("two"))
    b.clock_ms.append(9_000)
    assert (await b.directory.apply(spec("one"))).create_time_ms == 1_000
    assert b.shares() == {"one": 100, "two": 0}
    assert b.catalog.get(NAME).create_time_ms == 1_000


async def test_graph_that_cannot_run_is_not_written(a: Process, store: MemoryStore) -> None:
    with pytest.raises(InvalidGraphError):
        await a.directory.apply(spec(interface="test.unknown"))
    a.unfit.add(Step.name)
    with pytest.raises(RuntimeError, match="no such device"):
        await a.directory.apply(spec())
    assert await store.graphs() == (0, ())
    assert a.catalog.names() == []


async def test_graph_is_planned_once(a: Process, b: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []

    def counted(definition: GraphSpec) -> GraphPlan:
        planned.append(definition.name)
        return plan_graph(definition)

    monkeypatch.setattr(catalog_module, "plan_graph", counted)
    await a.directory.apply(spec("one"))
    await a.directory.apply(spec("two"), 0)
    await a.directory.apply(spec("two"), 20)
    await a.directory.refresh()
    assert len(planned) == 2
    await b.directory.refresh()
    await a.directory.apply(spec("two"), 30)
    await b.directory.refresh()
    assert b.shares() == {"one": 70, "two": 30}
    assert len(planned) == 4


async def test_graph_too_many_is_refused_and_not_written(
    a: Process, b: Process, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "MAX_GRAPHS", 2)
    await a.directory.apply(spec(name="x"))
    results = await asyncio.gather(
        a.directory.apply(spec(name="y")), a.directory.apply(spec(name="z")), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["CatalogEntry", "OmniFlowError"]
    with pytest.raises(OmniFlowError) as caught:
        await b.directory.apply(spec(name="w"))
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    assert len((await store.graphs())[1]) == 2
    await b.directory.apply(spec("another", name="x"))
    await b.directory.refresh()
    assert len(b.catalog.names()) == 2


# --- concurrent changes -------------------------------------------------------------------------------------------------


async def test_concurrent_applies_both_land(a: Process, b: Process) -> None:
    await a.directory.apply(spec("one"))
    await b.directory.refresh()
    await asyncio.gather(a.directory.apply(spec("two"), 10), b.directory.apply(spec("three"), 20))
    for each in (a, b):
        await each.directory.refresh()
        assert sum(each.shares().values()) == 100
        assert set(each.shares()) == {"one", "two", "three"}
    assert a.catalog.versions(NAME) == b.catalog.versions(NAME)


async def test_first_applies_of_one_graph_both_land(a: Process, b: Process) -> None:
    await asyncio.gather(a.directory.apply(spec("one")), b.directory.apply(spec("two")))
    for each in (a, b):
        await each.directory.refresh()
        assert sorted(each.shares().values()) == [0, 100]


async def test_change_that_loses_against_another_is_made_again_on_top_of_it(a: Process, b: Process) -> None:
    await a.directory.apply(spec("one"))
    await b.directory.apply(spec("two"), 40)
    rival = (await row_of(a.store.store)).payload
    await b.directory.set_traffic(NAME, [(b.catalog.get(NAME).message.revision, 100)])
    a.store.rivals = [rival]
    await a.directory.apply(spec("three"), 50)
    assert a.shares() == {"one": 30, "two": 20, "three": 50}
    assert a.store.puts == 3


async def test_change_that_always_loses_is_a_conflict(a: Process) -> None:
    await a.directory.apply(spec("one"))
    a.store.rivals = [None] * graph_directory.MAX_ATTEMPTS
    with pytest.raises(OmniFlowError, match="has been changed meanwhile; read its revisions again") as caught:
        await a.directory.apply(spec("two"))
    assert caught.value.reason is Reason.CONFLICT
    assert a.store.puts == 1 + graph_directory.MAX_ATTEMPTS
    assert a.runs() == "one"


async def test_other_errors_of_the_store_are_not_tried_again(a: Process, store: MemoryStore) -> None:
    await a.directory.apply(spec("one"))
    await open_life(store, "a", "2")
    with pytest.raises(OmniFlowError) as caught:
        await a.directory.apply(spec("two"))
    assert caught.value.reason is Reason.STALE_OWNER
    assert (a.store.puts, a.runs()) == (2, "one")


async def test_random_changes_of_two_processes_keep_shares_whole_and_alike(a: Process, b: Process) -> None:
    chance = random.Random(7)
    for _ in range(60):
        each = chance.choice((a, b))
        if chance.random() < 0.5 or not each.catalog.names():
            description, canary = str(chance.randrange(12)), chance.choice((None, 0, 1, 10, 33, 50, 99))
            try:
                await each.directory.apply(spec(description), canary)
            except OmniFlowError as refused:
                assert refused.reason is Reason.INVALID_FIELD, refused
        else:
            state = await each.directory.revisions(NAME)
            first, second = chance.choice(state.versions.names), chance.choice(state.versions.names)
            percent = chance.randrange(101) if first != second else 0
            shares = [(first, percent), (second, 100 - percent)] if first != second else [(first, 100)]
            await each.directory.set_traffic(NAME, shares, state.etag)
        if chance.random() < 0.3:
            await chance.choice((a, b)).directory.refresh()
        for known in (p for p in (a, b) if p.catalog.names()):
            assert sum(known.catalog.versions(NAME).shares.values()) == 100
            assert len(known.catalog.versions(NAME).revisions) <= 8
    for each in (a, b):
        await each.directory.refresh()
    assert a.catalog.versions(NAME) == b.catalog.versions(NAME)


# --- traffic ------------------------------------------------------------------------------------------------------------


async def test_traffic_is_set_and_seen_elsewhere(a: Process, b: Process) -> None:
    one = (await a.directory.apply(spec("one"))).message.revision
    two = (await a.directory.apply(spec("two"))).message.revision
    state = await b.directory.set_traffic(NAME, [(one, 75), (two, 25)])
    assert (state.versions.shares, state.etag) == ({one: 75, two: 25}, "3")
    assert b.shares() == {"one": 75, "two": 25}
    await a.directory.refresh()
    assert a.runs() == "one"
    assert await a.directory.revisions(NAME) == state


async def test_etag_guards_a_change(a: Process, b: Process) -> None:
    one = (await a.directory.apply(spec("one"))).message.revision
    seen = await b.directory.revisions(NAME)
    assert seen.etag == "1"
    await a.directory.apply(spec("two"), 10)
    for etag in (seen.etag, "nonsense", "3"):
        with pytest.raises(OmniFlowError) as caught:
            await b.directory.set_traffic(NAME, [(one, 100)], etag)
        assert caught.value.reason is Reason.CONFLICT
    assert (await a.directory.revisions(NAME)).etag == "2", "nothing has happened"
    assert (await b.directory.set_traffic(NAME, [(one, 100)], "2")).etag == "3"


async def test_change_in_the_middle_of_a_guarded_one_is_a_conflict(a: Process) -> None:
    one = (await a.directory.apply(spec("one"))).message.revision
    await a.directory.apply(spec("two"))
    a.store.rivals = [None]
    with pytest.raises(OmniFlowError) as caught:
        await a.directory.set_traffic(NAME, [(one, 100)], "2")
    assert caught.value.reason is Reason.CONFLICT
    assert a.store.puts == 3
    await a.directory.set_traffic(NAME, [(one, 100)], "3")
    assert a.runs() == "one"


async def test_traffic_for_what_is_not_there_is_refused(a: Process) -> None:
    with pytest.raises(OmniFlowError) as unknown:
        await a.directory.set_traffic(NAME, [("x", 100)])
    assert unknown.value.reason is Reason.UNKNOWN_GRAPH
    with pytest.raises(OmniFlowError) as no_revisions:
        await a.directory.revisions(NAME)
    assert no_revisions.value.reason is Reason.UNKNOWN_GRAPH
    await a.directory.apply(spec("one"))
    with pytest.raises(OmniFlowError) as caught:
        await a.directory.set_traffic(NAME, [("x", 100)])
    assert [violation.field for violation in caught.value.violations] == ["shares[0].revision"]


async def test_traffic_for_a_revision_that_cannot_run_here_is_refused(store: MemoryStore, b: Process) -> None:
    a = await process(store, "a", ["test.new"])
    new = (await a.directory.apply(spec("new", interface="test.new"))).message.revision
    await a.directory.apply(spec("plain"))
    await b.directory.refresh()
    with pytest.raises(InvalidGraphError, match=r"No interface 'test.new' is registered"):
        await b.directory.set_traffic(NAME, [(new, 100)])
    assert (b.store.puts, b.runs()) == (0, "plain")


# --- refresh ------------------------------------------------------------------------------------------------------------


async def test_refresh_takes_only_what_is_new(a: Process, b: Process) -> None:
    await a.directory.apply(spec("one"))
    await a.directory.apply(spec("x", name="other"))
    await b.directory.refresh()
    assert len(b.prepared) == 2
    await b.directory.refresh()
    assert (len(b.prepared), len(b.changes)) == (2, 1), "nothing is new"
    await a.directory.apply(spec("two"))
    await b.directory.refresh()
    assert (len(b.prepared), b.runs()) == (3, "two")
    await a.directory.refresh()
    assert len(a.changes) == 3, "the own changes are known"


async def test_row_that_cannot_run_here_is_left_out_and_others_are_taken(
    store: MemoryStore, b: Process, caplog: pytest.LogCaptureFixture
) -> None:
    a = await process(store, "a", ["test.new"])
    await a.directory.apply(spec("old"))
    await b.directory.refresh()
    await a.directory.apply(spec("new", interface="test.new"))
    await a.directory.apply(spec(name="other"))
    await b.directory.refresh()
    assert b.catalog.names() == [NAME, "graphs/other"]
    assert b.runs() == "old", "what it had goes on"
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"{NAME} in version 2 is left out: {NAME} cannot run: No interface 'test.new'"
    )
    await a.directory.apply(spec("old"))
    await b.directory.refresh()
    assert b.shares() == {"old": 100, "new": 0}, "a revision without a share need not run here"


async def test_row_whose_interfaces_cannot_be_set_up_is_tried_again(
    a: Process, b: Process, caplog: pytest.LogCaptureFixture
) -> None:
    await a.directory.apply(spec("one"))
    b.unfit.add(Step.name)
    await b.directory.refresh()
    assert b.catalog.names() == []
    assert [record.getMessage() for record in caplog.records] == [
        f"{NAME} in version 1 is left out: its interfaces could not be set up"
    ]
    b.unfit.clear()
    await b.directory.refresh()
    assert b.runs() == "one"


@pytest.mark.parametrize(
    ("payload", "fault"), [(b'{"format": 7}', "format 7, and this version reads 1"), (b"???", "its row is broken")]
)
async def test_row_that_cannot_be_read_is_left_out_and_never_written_over(
    payload: bytes, fault: str, a: Process, b: Process, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await a.directory.apply(spec("one"))
    await store.put_graph(a.life[-1], GraphRow(name=NAME, version=2, payload=payload))
    for each in (a, b):
        await each.directory.refresh()
        assert fault in caplog.records[-1].getMessage()
    assert (a.runs(), b.catalog.names()) == ("one", [])
    for change in (a.directory.apply(spec("two")), b.directory.revisions(NAME)):
        with pytest.raises(OmniFlowError, match="cannot be read by this process") as caught:
            await change
        assert caught.value.reason is Reason.UNIMPLEMENTED
    assert (await row_of(store)).payload == payload


async def test_newer_row_that_is_read_while_an_older_one_is_prepared_wins(a: Process, b: Process) -> None:
    await a.directory.apply(spec("one"))
    await a.directory.apply(spec("two"))
    gate, seen = asyncio.Event(), asyncio.Event()
    prepare = b.directory._prepare

    async def slow(entry: catalog_module.CatalogEntry) -> None:
        if entry.message.description == "two":
            seen.set()
            await gate.wait()
        await prepare(entry)

    b.directory._prepare = slow
    first = asyncio.ensure_future(b.directory.refresh())
    await seen.wait()
    await a.directory.apply(spec("three"))
    await b.directory.refresh()
    assert b.runs() == "three"
    gate.set()
    await first
    assert b.shares() == {"one": 0, "two": 0, "three": 100}


async def test_wiped_store_gets_its_graphs_back(a: Process, b: Process, store: MemoryStore) -> None:
    await a.directory.apply(spec("one"))
    await a.directory.apply(spec("two"), 10)
    await b.directory.refresh()
    store.wipe()
    for name, each in (("a", a), ("b", b)):
        each.life.append(await open_life(store, name))
    before = b.catalog.versions(NAME)
    await asyncio.gather(a.directory.refresh(), b.directory.refresh())
    assert (await row_of(store)).version == 1
    c = await process(store, "c")
    await c.directory.refresh()
    assert a.catalog.versions(NAME) == b.catalog.versions(NAME) == c.catalog.versions(NAME) == before
    await c.directory.apply(spec("three"), 50)
    for each in (a, b):
        await each.directory.refresh()
        assert each.shares() == {"one": 45, "two": 5, "three": 50}


async def test_row_of_a_wiped_store_counts_from_one_and_is_taken(a: Process, b: Process, store: MemoryStore) -> None:
    await a.directory.apply(spec("one"))
    await b.directory.refresh()
    store.wipe()
    c = await process(store, "c")
    await c.directory.apply(spec("other"))
    await b.directory.refresh()
    assert b.runs() == "other", "the same version, another row"


async def test_graph_of_this_process_alone_goes_into_the_store_with_its_first_change(a: Process, b: Process) -> None:
    entry = a.catalog.compile(spec("one"))
    a.catalog.install(entry)
    state = await a.directory.revisions(NAME)
    assert (state.etag, state.versions.names) == ("0", (entry.message.revision,))
    await a.directory.apply(spec("two"), 10)
    await b.directory.refresh()
    assert b.shares() == {"one": 90, "two": 10}


# --- flows of the operator ----------------------------------------------------------------------------------------------


async def test_flow_is_installed_when_the_cluster_has_no_graph_of_its_name(a: Process, b: Process) -> None:
    await asyncio.gather(a.directory.install_flow(spec("flow")), b.directory.install_flow(spec("flow")))
    assert (a.shares(), b.shares()) == ({"flow": 100}, {"flow": 100})
    assert (await a.directory.revisions(NAME)).etag == "1"


async def test_flow_that_is_kept_leaves_shares_as_they_are(a: Process, b: Process, store: MemoryStore) -> None:
    await a.directory.install_flow(spec("flow"))
    await a.directory.apply(spec("canary"), 10)
    await b.directory.install_flow(spec("flow"))
    assert b.shares() == {"flow": 90, "canary": 10}, "a canary outlives a restart"
    await a.directory.install_flow(spec("next flow"))
    c = await process(store, "c")
    await c.directory.install_flow(spec("flow"))
    assert c.shares() == {"flow": 0, "canary": 0, "next flow": 100}, "an old process restarts during the update"
    assert (await row_of(store)).version == 3


async def test_flow_that_is_new_takes_all_calls(a: Process, b: Process) -> None:
    await a.directory.install_flow(spec("flow"))
    await a.directory.apply(spec("canary"), 10)
    await b.directory.install_flow(spec("next flow"))
    assert b.shares() == {"flow": 0, "canary": 0, "next flow": 100}


async def test_flow_runs_by_itself_while_the_cluster_has_what_cannot_run_here(
    store: MemoryStore, b: Process, caplog: pytest.LogCaptureFixture
) -> None:
    a = await process(store, "a", ["test.new"])
    await a.directory.install_flow(spec("flow"))
    await a.directory.apply(spec("new", interface="test.new"), 10)
    await b.directory.install_flow(spec("flow"))
    assert b.shares() == {"flow": 100}
    assert b.changes == [[NAME]]
    assert "runs here as its flow says, not as in the cluster" in caplog.records[0].getMessage()
    assert (await row_of(store)).version == 2, "the cluster keeps its canary"
    flow = b.catalog.get(NAME).message.revision
    await a.directory.set_traffic(NAME, [(flow, 100)])
    await b.directory.refresh()
    assert b.shares() == {"flow": 100, "new": 0}


async def test_flow_runs_by_itself_beside_a_row_of_a_newer_version(a: Process, store: MemoryStore) -> None:
    await store.put_graph(a.life[-1], GraphRow(name=NAME, version=1, payload=json.dumps({"format": 2}).encode()))
    await a.directory.install_flow(spec("flow"))
    assert a.runs() == "flow"
    assert json.loads((await row_of(store)).payload) == {"format": 2}


async def test_flow_that_cannot_run_is_refused(a: Process) -> None:
    with pytest.raises(InvalidGraphError):
        await a.directory.install_flow(spec(interface="test.unknown"))
    a.unfit.add(Step.name)
    with pytest.raises(RuntimeError):
        await a.directory.install_flow(spec())
    assert a.catalog.names() == []


async def test_flow_is_not_installed_by_a_life_that_has_ended(a: Process, store: MemoryStore) -> None:
    await open_life(store, "a", "2")
    with pytest.raises(OmniFlowError) as caught:
        await a.directory.install_flow(spec())
    assert caught.value.reason is Reason.STALE_OWNER
    assert a.catalog.names() == []
