"""Replicas that do not register: what is asked, what is adopted, what is forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from omniflow.dsl import Graph
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow.values import ValueType
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.noop import Echo
from omniflow_server import compose
from omniflow_server.compose import ControlPlane, control_plane
from omniflow_server.control import discovery
from omniflow_server.control.discovery import Discovery, NamedReplicas, StaticReplica, configured, describe, resolve
from omniflow_server.control.registry import Registration, Registry
from omniflow_server.control.settings import ControlSettings
from omniflow_server.data.metadata.memory import MemoryStore
from tests.roles.running import eventually, running
from tests.server.cluster.clusters import cluster
from tests.server.control.planes import channel_to, plane
from tests.server.control.scripted_role import ScriptedRole, Work
from tests.server.rpc.client import GraphClient
from tests.support.interfaces import Exclaim, single
from tests.support.processes import Process, free_port

NEVER_S = 3_600.0
SOON_S = 0.01
READY, DRAINING, STARTING = (
    replica_pb2.REPLICA_STATE_READY,
    replica_pb2.REPLICA_STATE_DRAINING,
    replica_pb2.REPLICA_STATE_STARTING,
)
HERE, THERE = "10.0.0.7:7800", "10.0.0.8:7800"
NAME = "llm.svc:7800"


def replica(replica_id: str = "a", life: str = "1", **fields: Any) -> replica_pb2.Replica:
    options: dict[str, Any] = {
        "role": "llm",
        "endpoint": "0.0.0.0:7800",
        "state": READY,
        "protocol_revisions": [1],
        "lanes": [replica_pb2.LaneOffer(kind="unix-frames", address="/run/lane.sock")],
    }
    return replica_pb2.Replica(replica_id=replica_id, incarnation_id=life, **(options | fields))


class Network:
    """What answers where, which addresses names have, and a discovery that asks."""

    def __init__(self) -> None:
        self.registry = Registry(lease_ttl_s=3.0)
        self.registry.subscribe(lambda _: self.discovery.look_again())
        self.answers: dict[str, replica_pb2.Replica] = {}
        self.addresses: dict[str, list[str] | OSError] = {}
        self.asked: Counter[str] = Counter()
        self.needed: set[str] = set()
        """Identifiers of replicas that a call works with."""
        self.discovery: Discovery

    async def describe(self, target: str) -> replica_pb2.Replica:
        self.asked[target] += 1
        if target not in self.answers:
            raise OmniFlowError(Reason.CONNECTION_LOST, "nobody there")
        return self.answers[target]

    async def resolve(self, host: str, port: int) -> list[str]:
        name = f"{host}:{port}"
        self.asked[name] += 1
        found = self.addresses[name]
        if isinstance(found, OSError):
            raise found
        return found

    @contextlib.asynccontextmanager
    async def finding(
        self, *replicas: str, names: tuple[str, ...] = (), every_s: float = SOON_S
    ) -> AsyncIterator[None]:
        """Discovery runs meanwhile."""
        self.discovery = Discovery(
            self.registry,
            ControlSettings(replicas=replicas, dns_replicas=names, discovery_interval_s=every_s),
            is_needed=lambda registration: registration.replica.replica_id in self.needed,
            describe=self.describe,
            resolve=self.resolve,
        )
        running = asyncio.create_task(self.discovery.run())
        try:
            yield
            assert not running.done(), "it runs for ever"
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def round(self, *asked: str) -> None:
        """All of these have been asked again, and again: by then the first answer is taken in."""
        before = self.asked.copy()
        await eventually(lambda: all(self.asked[each] >= before[each] + 2 for each in asked))

    def known(self) -> list[tuple[str, str, str]]:
        return [(r.replica.replica_id, r.replica.incarnation_id, r.replica.endpoint) for r in self.registry.replicas()]

    def found(self, replica_id: str = "a") -> Registration:
        registration = self.registry.find("llm", replica_id)
        assert registration is not None
        return registration

    async def find(self, *known: tuple[str, str, str]) -> None:
        """Waits until these are known: replica, life and endpoint of each."""
        await eventually(lambda: self.known() == list(known))

    def stream(self, replica_id: str = "a") -> Registration:
        """Opens the stream to a replica."""
        registration = self.found(replica_id)
        registration.has_stream = True
        self.discovery.look_again()
        return registration

    def end_stream(self, replica_id: str = "a") -> None:
        self.found(replica_id).has_stream = False
        self.discovery.look_again()


@pytest.fixture
def network() -> Network:
    return Network()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == discovery.__name__ and record.levelno >= logging.WARNING
    ]


# --- what is configured ---------------------------------------------------------------------------------------------------


def test_entries_are_read() -> None:
    static, named = configured(
        ControlSettings(
            replicas=("llm=10.0.0.7:7800", "tts=unix:/run/tts.sock", "asr=dns:///asr:1", "llm=[::1]:7800"),
            dns_replicas=("llm=llm.default.svc:7800", "a_b-c=[::1]:65535"),
        )
    )
    assert static == [
        StaticReplica(role="llm", target="10.0.0.7:7800"),
        StaticReplica(role="tts", target="unix:/run/tts.sock"),
        StaticReplica(role="asr", target="dns:///asr:1"),
        StaticReplica(role="llm", target="[::1]:7800"),
    ]
    assert named == [
        NamedReplicas(role="llm", host="llm.default.svc", port=7800),
        NamedReplicas(role="a_b-c", host="::1", port=65_535),
    ]


@pytest.mark.parametrize(
    "text",
    ["", "llm", "10.0.0.7:7800", "=10.0.0.7:7800", "llm=", "llm=10.0.0.7", "llm=10.0.0.7:0", "llm=h:65536", "7=h:1",
     "llm=h:x", "llm=a b:1", "llm=:7800", "l" * 129 + "=h:1"],
)  # fmt: skip
@pytest.mark.parametrize("key", ["replicas", "dns_replicas"])
def test_entry_that_is_none_is_named(key: str, text: str) -> None:
    with pytest.raises(OmniFlowError) as refused:
        configured(ControlSettings(**{key: ("llm=good:1", text)}))  # type: ignore[arg-type]
    assert refused.value.reason is Reason.INVALID_CONFIG
    (violation,) = refused.value.info.violations
    assert violation.field == f"control.{key}[1]"
    assert violation.description.startswith(f"{text!r} is not ROLE=")


@pytest.mark.parametrize("text", ["llm=unix:/run/llm.sock", "llm=dns:///llm:7800", "llm=::1:7800", "llm=llm/x:7800"])
def test_name_is_a_host_and_no_target(text: str) -> None:
    with pytest.raises(OmniFlowError) as refused:
        configured(ControlSettings(dns_replicas=(text,)))
    assert [violation.field for violation in refused.value.info.violations] == ["control.dns_replicas[0]"]


def test_all_mistakes_are_reported_at_once() -> None:
    settings = ControlSettings(
        replicas=("llm=a:1", "llm=a:1", "x"), dns_replicas=("y", "llm=a:1"), discovery_interval_s=0.0
    )
    with pytest.raises(OmniFlowError) as refused:
        configured(settings)
    assert refused.value.info.violations[0].description == "'llm=a:1' is there already; leave it out"
    assert [violation.field for violation in refused.value.info.violations] == [
        "control.replicas[1]",
        "control.replicas[2]",
        "control.dns_replicas[0]",
        "control.discovery_interval_s",
    ]


async def test_control_plane_does_not_start_with_a_mistake() -> None:
    with pytest.raises(OmniFlowError) as refused:
        async with plane(replicas=("llm",)):
            pass
    assert refused.value.reason is Reason.INVALID_CONFIG
    assert [violation.field for violation in refused.value.info.violations] == ["control.replicas[0]"]


async def test_nothing_to_find_is_no_work() -> None:
    registry = Registry(lease_ttl_s=3.0)
    await asyncio.wait_for(Discovery(registry, ControlSettings(), is_needed=lambda _: True).run(), timeout=1)


# --- static targets -------------------------------------------------------------------------------------------------------


async def test_replica_is_adopted_under_the_target_where_it_answered(network: Network) -> None:
    network.answers[HERE] = replica(max_activations=4)
    async with network.finding(f"llm={HERE}", every_s=NEVER_S):
        await network.find(("a", "1", HERE))
        found = network.found()
        assert (found.is_adopted, found.is_ready, found.replica.max_activations) == (True, True, 4)
        assert not found.replica.lanes, "a path of another host"
        assert network.answers[HERE].endpoint == "0.0.0.0:7800", "what was answered is not changed"


async def test_replica_on_a_unix_socket_keeps_its_lanes(network: Network) -> None:
    target = "unix:/run/llm.sock"
    network.answers[target] = replica(endpoint="unix:/elsewhere/llm.sock")
    async with network.finding(f"llm={target}"):
        await network.find(("a", "1", target))
        assert [lane.address for lane in network.found().replica.lanes] == ["/run/lane.sock"]


async def test_replica_that_is_asked_again_is_not_adopted_again(network: Network) -> None:
    network.answers[HERE] = replica()
    async with network.finding(f"llm={HERE}"):
        await network.find(("a", "1", HERE))
        found, revision = network.found(), network.registry.revision
        await network.round(HERE)
        assert network.found() is found
        assert network.registry.revision == revision


async def test_replica_becomes_ready_and_drains(network: Network) -> None:
    network.answers[HERE] = replica(state=STARTING)
    async with network.finding(f"llm={HERE}"):
        await eventually(lambda: network.known())
        assert not network.found().is_ready
        network.answers[HERE] = replica(state=READY)
        await eventually(lambda: network.found().is_ready)
        network.answers[HERE] = replica(state=DRAINING)
        await eventually(lambda: not network.found().is_ready)
        assert network.known() == [("a", "1", HERE)]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (replica(role="tts"), "it is one of role 'tts'; correct the role or the target in the configuration"),
        (replica(replica_id=""), "it does not say who it is"),
        (replica(life=""), "it does not say who it is"),
        (
            replica(protocol_revisions=[2, 3]),
            "it speaks protocol revisions [2, 3], this control plane speaks 1",
        ),
    ],
    ids=["role", "replica_id", "incarnation_id", "revision"],
)
async def test_replica_that_does_not_fit_is_refused_with_one_line(
    network: Network, caplog: pytest.LogCaptureFixture, answer: replica_pb2.Replica, why: str
) -> None:
    network.answers[HERE] = answer
    async with network.finding(f"llm={HERE}"):
        await network.round(HERE)
        assert network.known() == []
        assert warnings(caplog) == [f"role llm: the replica at {HERE} is not used: {why}"]
        network.answers[HERE] = replica()
        await network.find(("a", "1", HERE))


async def test_target_that_does_not_answer_is_asked_again_and_logged_once(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    network.answers[THERE] = replica("b")
    async with network.finding(f"llm={HERE}", f"llm={THERE}"):
        await network.round(HERE, THERE)
        assert network.known() == [("b", "1", THERE)], "one does not hold the other up"
        assert warnings(caplog) == [f"role llm: {HERE} does not answer: nobody there"]
        network.answers[HERE] = replica()
        await network.find(("a", "1", HERE), ("b", "1", THERE))
        del network.answers[HERE]
        await network.find(("b", "1", THERE))
        await network.round(HERE)
        assert warnings(caplog) == 2 * [f"role llm: {HERE} does not answer: nobody there"]


# --- lives ----------------------------------------------------------------------------------------------------------------


async def test_replica_with_a_stream_lives_though_it_does_not_answer(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    network.answers[HERE] = replica()
    async with network.finding(f"llm={HERE}"):
        await network.find(("a", "1", HERE))
        network.stream()
        del network.answers[HERE]
        await network.round(HERE)
        assert network.found().is_ready
        assert warnings(caplog) == []
        network.end_stream()
        await network.find()


async def test_replica_is_asked_at_once_when_its_stream_has_ended(network: Network) -> None:
    network.answers[HERE] = replica()
    async with network.finding(f"llm={HERE}", every_s=NEVER_S):
        await network.find(("a", "1", HERE))
        network.stream()
        network.end_stream()
        await eventually(lambda: network.asked[HERE] == 2)
        network.stream()
        network.answers[HERE] = replica(life="2")
        network.end_stream()
        await network.find(("a", "2", HERE))
        network.stream()
        del network.answers[HERE]
        network.end_stream()
        await network.find()
        assert network.asked[HERE] == 4


async def test_new_life_at_a_target_replaces_the_old_one(network: Network) -> None:
    network.answers[HERE] = replica()
    async with network.finding(f"llm={HERE}"):
        await network.find(("a", "1", HERE))
        old = network.found()
        network.answers[HERE] = replica(life="2")
        await network.find(("a", "2", HERE))
        assert old.replica.state == replica_pb2.REPLICA_STATE_LOST
        network.answers[HERE] = replica("other", life="3")
        await network.find(("other", "3", HERE))
        del network.answers[HERE]
        await network.find()


async def test_new_life_waits_for_the_end_of_the_old_ones_stream(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    """The address of a service with several processes would else end, with each question, what runs."""
    network.answers[HERE] = replica()
    async with network.finding(f"llm={HERE}"):
        await network.find(("a", "1", HERE))
        network.stream()
        network.answers[HERE] = replica("b", life="2")
        await network.round(HERE)
        assert network.known() == [("a", "1", HERE)]
        assert warnings(caplog) == [
            f"role llm: {HERE} answers as another process while llm/a has a stream; the target must be that of one process"
        ]
        network.end_stream()
        await network.find(("b", "2", HERE))


async def test_replica_that_an_operator_drains_stays_so_for_its_life(network: Network) -> None:
    network.answers[HERE] = replica()
    async with network.finding(f"llm={HERE}"):
        await network.find(("a", "1", HERE))
        network.registry.drain("llm", "a", 7.0)
        await network.round(HERE)
        found = network.found()
        assert (found.replica.state, found.drain_grace_s) == (DRAINING, 7.0)
        network.answers[HERE] = replica(life="2")
        await network.find(("a", "2", HERE))
        assert network.found().is_ready


# --- the same replica twice -----------------------------------------------------------------------------------------------


async def test_replica_that_registers_is_left_to_its_registration(network: Network) -> None:
    network.answers[HERE] = replica()
    async with network.finding(f"llm={HERE}"):
        await network.find(("a", "1", HERE))
        registration = network.registry.register(replica(), 0.0)
        lease_id = registration.lease_id
        await network.round(HERE)
        assert (network.found().lease_id, network.found().is_adopted) == (lease_id, False)
        del network.answers[HERE]
        await network.round(HERE)
        assert network.registry.by_lease(lease_id) is registration
        network.answers[HERE] = replica()
        network.registry.deregister(lease_id)
        await eventually(lambda: network.known() and network.found().is_adopted)


async def test_one_process_under_two_targets_is_one_replica(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    network.answers[HERE] = network.answers[THERE] = replica()
    async with network.finding(f"llm={HERE}", f"llm={THERE}"):
        await network.round(HERE, THERE)
        assert network.known() == [("a", "1", HERE)]
        del network.answers[HERE]
        await network.find(("a", "1", THERE))
        assert warnings(caplog) == [f"role llm: {HERE} does not answer: nobody there"]


async def test_target_that_answers_as_a_replica_found_elsewhere_gives_up_its_own(network: Network) -> None:
    network.answers = {HERE: replica(), THERE: replica("b")}
    async with network.finding(f"llm={HERE}", f"llm={THERE}"):
        await network.find(("a", "1", HERE), ("b", "1", THERE))
        network.answers[HERE] = replica("b")
        await network.find(("b", "1", THERE))


async def test_second_process_under_a_known_name_waits_for_the_first(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    network.answers[HERE] = replica()
    async with network.finding(f"llm={HERE}", f"llm={THERE}"):
        await network.find(("a", "1", HERE))
        network.answers[THERE] = replica(life="2")
        await network.round(HERE, THERE)
        assert network.known() == [("a", "1", HERE)]
        expected = f"role llm: the replica at {THERE} is not used while another process is known as llm/a; "
        assert warnings(caplog)[-1] == expected + "give each a replica_id of its own"
        del network.answers[HERE]
        await network.find(("a", "2", THERE))


async def test_replica_that_has_moved_is_found_as_soon_as_the_old_place_is_forgotten(network: Network) -> None:
    network.answers[HERE], network.answers[THERE] = replica(), replica(life="2")
    async with network.finding(f"llm={HERE}", f"llm={THERE}", every_s=NEVER_S):
        await eventually(lambda: network.asked[THERE])
        await network.find(("a", "1", HERE))
        network.stream()
        del network.answers[HERE]
        network.end_stream()
        await network.find(("a", "2", THERE))


# --- names ----------------------------------------------------------------------------------------------------------------


async def test_every_address_of_a_name_is_a_target(network: Network) -> None:
    sixth = "[fd00::1]:7800"
    network.addresses[NAME] = [HERE, sixth]
    network.answers = {HERE: replica(), sixth: replica("b"), THERE: replica("c")}
    async with network.finding(names=(f"llm={NAME}",)):
        await network.find(("a", "1", HERE), ("b", "1", sixth))
        network.addresses[NAME] = [HERE, sixth, THERE]
        await network.find(("a", "1", HERE), ("b", "1", sixth), ("c", "1", THERE))


async def test_address_that_is_no_longer_listed_is_forgotten_when_no_call_needs_it(network: Network) -> None:
    network.addresses[NAME] = [HERE, THERE]
    network.answers = {HERE: replica(), THERE: replica("b")}
    async with network.finding(names=(f"llm={NAME}",)):
        await network.find(("a", "1", HERE), ("b", "1", THERE))
        network.stream("a"), network.stream("b")
        network.needed = {"a"}
        network.addresses[NAME] = []
        await network.find(("a", "1", HERE))
        await eventually(lambda: network.found().replica.state == DRAINING)
        asked = network.asked[HERE]
        await network.round(NAME)
        assert network.known() == [("a", "1", HERE)]
        assert network.asked[HERE] == asked, "it is not asked any more"
        network.needed = set()
        await network.find()
        await eventually(lambda: not list(network.discovery._targets()))


async def test_address_that_is_no_longer_listed_is_forgotten_with_its_stream(network: Network) -> None:
    network.addresses[NAME] = [HERE]
    network.answers = {HERE: replica()}
    network.needed = {"a"}
    async with network.finding(names=(f"llm={NAME}",)):
        await network.find(("a", "1", HERE))
        network.stream()
        network.addresses[NAME] = []
        await eventually(lambda: not network.found().is_ready)
        network.end_stream()
        await network.find()


async def test_address_that_is_listed_again_gets_work_again(network: Network) -> None:
    network.addresses[NAME] = [HERE]
    network.answers = {HERE: replica()}
    network.needed = {"a"}
    async with network.finding(names=(f"llm={NAME}",)):
        await network.find(("a", "1", HERE))
        found = network.stream()
        network.addresses[NAME] = [THERE]
        await eventually(lambda: not found.is_ready)
        network.addresses[NAME] = [HERE]
        await eventually(lambda: found.is_ready)
        assert network.found() is found
        network.needed, network.addresses[NAME] = set(), []
        await network.find()
        network.addresses[NAME] = [HERE]
        await network.find(("a", "1", HERE))


async def test_address_that_is_dropped_while_it_is_asked_is_not_adopted(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.addresses[NAME] = [HERE]
    answering = asyncio.Event()

    async def slow(target: str) -> replica_pb2.Replica:
        network.asked[target] += 1
        await answering.wait()
        return replica()

    monkeypatch.setattr(network, "describe", slow)
    async with network.finding(names=(f"llm={NAME}",)):
        await eventually(lambda: network.asked[HERE])
        network.addresses[NAME] = []
        await network.round(NAME)
        answering.set()
        await eventually(lambda: not list(network.discovery._targets()))
        assert network.known() == []
        assert network.registry.revision == 0


async def test_name_that_is_not_resolved_keeps_what_was_known_and_is_logged_once(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    network.addresses[NAME] = socket.gaierror(-2, "Name or service not known")
    network.answers = {HERE: replica()}
    complaint = f"role llm: {NAME} is not resolved: [Errno -2] Name or service not known"
    async with network.finding(names=(f"llm={NAME}",)):
        await network.round(NAME)
        assert warnings(caplog) == [complaint]
        network.addresses[NAME] = [HERE]
        await network.find(("a", "1", HERE))
        network.addresses[NAME] = socket.gaierror(-2, "Name or service not known")
        await network.round(NAME, HERE)
        assert network.known() == [("a", "1", HERE)]
        assert network.found().is_ready
        assert warnings(caplog) == [complaint, complaint]


async def test_replica_goes_on_under_its_other_address_when_one_is_no_longer_listed(network: Network) -> None:
    sixth = "[fd00::1]:7800"
    network.addresses[NAME] = [HERE, sixth]
    network.answers = {HERE: replica(), sixth: replica()}
    network.needed = {"a"}
    async with network.finding(names=(f"llm={NAME}",)):
        await network.find(("a", "1", HERE))
        found = network.stream()
        network.addresses[NAME] = [sixth]
        await network.find(("a", "1", sixth))
        assert network.found() is found
        await eventually(lambda: len(list(network.discovery._targets())) == 1)
        assert (found.is_ready, found.has_stream) == (True, True)


async def test_address_in_both_settings_is_one_replica(network: Network) -> None:
    network.addresses[NAME] = [HERE]
    network.answers = {HERE: replica()}
    async with network.finding(f"llm={HERE}", names=(f"llm={NAME}",)):
        await network.round(HERE, NAME)
        assert network.known() == [("a", "1", HERE)]
        network.addresses[NAME] = []
        await network.round(HERE, NAME)
        assert network.known() == [("a", "1", HERE)], "it is configured"


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", ["127.0.0.1:7800"]), ("::1", ["[::1]:7800"])],
)
async def test_address_resolves_to_itself(host: str, expected: list[str]) -> None:
    assert await resolve(host, 7800) == expected


async def test_name_that_cannot_be_one_is_not_resolved() -> None:
    with pytest.raises(OSError, match="is no name of a host"):
        await resolve("x" * 64 + ".test", 7800)


async def test_target_without_a_role_server_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(OmniFlowError) as refused:
        await describe(f"unix:{tmp_path}/nobody.sock")
    assert refused.value.reason is Reason.CONNECTION_LOST
    async with ScriptedRole() as role:  # it speaks gRPC, and does not know the question
        with pytest.raises(OmniFlowError) as unknown:
            await describe(role.replica.endpoint)
        assert unknown.value.reason is Reason.UNIMPLEMENTED


# --- in a control plane ---------------------------------------------------------------------------------------------------


class DescribedRole(ScriptedRole):
    """A role server that says who it is, and registers nowhere."""

    async def DescribeRole(self, request: pb.DescribeRoleRequest, context: Any) -> pb.DescribeRoleResponse:
        return pb.DescribeRoleResponse(replica=self.replica)


REMOTE = single("remote", Exclaim, role="worker")


async def exclaim(work: Work) -> None:
    await work.give(0, text=str(work.input("text")) + "!")
    await work.complete(1)


async def test_found_replica_works_and_so_does_its_next_life(tmp_path: Path) -> None:
    entry = f"worker=unix:{tmp_path}/role.sock"
    async with (
        plane(Exclaim, graphs=(REMOTE,), replicas=(entry,), discovery_interval_s=SOON_S) as made,
        channel_to(made.target) as channel,
    ):
        lives = set()
        for text in ("hi", "again"):
            async with running(tmp_path, Exclaim(), role="worker", replica_id="worker-0") as role:
                answer = await GraphClient(channel).run("remote", inputs={"text": text})
                assert answer.outputs["text"].values[0].text == f"{text}!"
                lives.add(role.identity.incarnation_id)
        assert len(lives) == 2
        await eventually(lambda: made.registry.replicas() == [])


async def test_found_replica_that_dies_is_forgotten_at_once() -> None:
    async with DescribedRole("test.exclaim") as role:
        entry = f"worker={role.replica.endpoint}"
        async with plane(Exclaim, replicas=(entry,), discovery_interval_s=NEVER_S) as made:
            await eventually(lambda: made.dispatcher.connected_roles(["worker"]))
            await role.stop()
            await eventually(lambda: made.registry.replicas() == [])


async def test_found_replica_is_kept_through_a_snapshot_of_the_store() -> None:
    async with DescribedRole("test.exclaim") as role, ScriptedRole("test.exclaim", replica_id="worker-1") as other:
        role.replica.state = STARTING  # it has no stream yet, which would keep it anyway
        entry = f"worker={role.replica.endpoint}"
        async with cluster(replicas=(entry,), discovery_interval_s=NEVER_S) as (a, b):
            await eventually(lambda: all(member.plane.registry.find("worker", "worker-0") for member in (a, b)))
            await a.register(other)
            await eventually(lambda: b.plane.registry.find("worker", "worker-1"))
            found = [member.plane.registry.find("worker", "worker-0") for member in (a, b)]
            await other.stop()
            epochs = {a.epoch, b.epoch}
            store: MemoryStore = a.line.store
            store.wipe()
            await eventually(lambda: not epochs & {a.epoch, b.epoch})
            await eventually(lambda: b.plane.registry.find("worker", "worker-1") is None)
            assert [member.plane.registry.find("worker", "worker-0") for member in (a, b)] == found
            assert store._rows.replicas == {}, "nothing of it is in the store"


async def test_found_replica_is_drained_where_it_was_found() -> None:
    async with DescribedRole("test.exclaim") as role:
        entry = f"worker={role.replica.endpoint}"
        async with plane(Exclaim, replicas=(entry,), discovery_interval_s=NEVER_S) as made:
            await eventually(lambda: made.dispatcher.connected_roles(["worker"]))
            await made.directory.drain("worker", "worker-0", 7.0)
            assert not made.dispatcher.connected_roles(["worker"])


async def test_found_replica_that_is_no_longer_listed_ends_what_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: list[str] = []

    async def resolved(host: str, port: int) -> list[str]:
        return list(addresses)

    monkeypatch.setattr(compose, "Discovery", functools.partial(Discovery, resolve=resolved))
    names = ("worker=worker.svc:7800",)
    async with (
        DescribedRole("test.exclaim") as role,
        plane(Exclaim, graphs=(REMOTE,), dns_replicas=names, discovery_interval_s=SOON_S) as made,
        channel_to(made.target) as channel,
    ):
        addresses.append(role.replica.endpoint)
        stream = GraphClient(channel).stream("remote", inputs={"text": "hi"})
        (work,) = await role.next_work(1)
        addresses.clear()
        await eventually(lambda: not made.dispatcher.connected_roles(["worker"]))
        assert made.registry.find("worker", "worker-0") is not None
        await exclaim(work)
        events, error = await stream.rest()
        assert (events[-1].WhichOneof("event"), error) == ("finished", None)
        await eventually(lambda: made.registry.replicas() == [])


# --- real processes -------------------------------------------------------------------------------------------------------


def noop_role(folder: Path, port: int) -> Process:
    """A role process that listens everywhere and registers nowhere."""
    options = {"role": "noop", "replica-id": "noop-0", "interfaces": "noop.echo", "listen": f"0.0.0.0:{port}"}
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    return Process(
        "noop",
        [sys.executable, "-m", "omniflow_roles", "serve", *arguments],
        folder=folder,
        env={"OMNIFLOW_RUNTIME_DIR": str(folder / "run"), "PYTHONPATH": ":".join(filter(None, sys.path))},
    )


async def echoed(made: ControlPlane, text: str) -> str:
    graph = Graph("echo")
    echo = graph.node("echo", Echo, role="noop")
    graph.input("text", ValueType.TEXT) >> echo.inputs.field("text")
    echo.output("text") >> graph.output("text", ValueType.TEXT)
    await made.install(made.catalog.compile(graph.spec()))
    async with channel_to(made.target) as channel:
        answer = await GraphClient(channel).run("echo", inputs={"text": text})
        return answer.outputs["text"].values[0].text


@pytest.mark.integration
@pytest.mark.parametrize(("key", "entry"), [("replicas", "noop=127.0.0.1:{}"), ("dns_replicas", "noop=localhost:{}")])
async def test_real_role_process_is_found_and_forgotten(tmp_path: Path, key: str, entry: str) -> None:
    port = free_port()
    settings: dict[str, Any] = {
        key: (entry.format(port),),
        "listen": "127.0.0.1:0",
        "internal_listen": f"unix:{tmp_path}/control.sock",
        "interfaces": ("noop.echo",),
        "discovery_interval_s": 0.05,
    }
    with noop_role(tmp_path, port) as process:
        async with control_plane(ControlSettings(**settings)) as made:
            assert await echoed(made, "hi") == "hi"
            (found,) = made.registry.replicas()
            assert found.replica.process_id == process.pid
            assert found.replica.endpoint == f"127.0.0.1:{port}"
            process.kill()
            await eventually(lambda: made.registry.replicas() == [])
