"""What a stage of a pipeline starts on the next replica for its yields."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from google.protobuf import timestamp_pb2

from omniflow.graph.v1 import sampling_pb2
from omniflow.large_values import remote_of
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.control.failures import partial_yield
from omniflow_core.errors import Reason
from omniflow_core.graph.routing import Delivery
from tests.roles.harness.pipeline_fakes import BIG, fake_stage, giving_on, leaving, next_stage, numbered, to_exit
from tests.roles.running import eventually


async def test_yield_starts_an_activation_of_the_next_stage_with_all_that_its_own_start_had() -> None:
    async with fake_stage() as stage:
        rest = next_stage(node="last")
        given_start: dict[str, Any] = {
            "start_tenant": "t",
            "start_session": "s",
            "start_session_fence": 3,
            "start_traceparent": "00-1-2-3",
            "start_priority": -4,
            "start_byte_credit": 777,
            "start_sampling": sampling_pb2.SamplingParameters(top_k=5),
            "start_deadline": timestamp_pb2.Timestamp(seconds=4_000_000_000),
        }
        pipeline: dict[str, Any] = {
            "stages": [next_stage(), rest],
            "exit": to_exit(),
            "stage": 3,
            "origin_path": [300, 0],
        }
        stage.start(1, "x", **pipeline, **given_start)
        stage.script.give("x", "skipped?", "one")
        await stage.settle()
        child = stage.peers.children[1].start
        expected = messages.StartActivation(
            activation=messages.ActivationRef(call_id="call", node="z", interface="test.z", attempt=1),
            tenant="t",
            session="s",
            session_fence=3,
            traceparent="00-1-2-3",
            priority=-4,
            byte_credit=777,
            yield_window=9,
            sampling=sampling_pb2.SamplingParameters(top_k=5),
            deadline=timestamp_pb2.Timestamp(seconds=4_000_000_000),
            pipeline=messages.Pipeline(
                stages=[rest], exit=to_exit(), entry_activation_id=5, origin_path=[300, 0, 1], stage=4
            ),
        )
        field = expected.facets.add(input_group="main").fields["text"].values.add(origin_path=[300, 0, 1])
        field.value.text = "one"
        expected.activation.activation_id = child.activation.activation_id
        assert child == expected


async def test_activations_that_are_started_have_identifiers_of_their_own() -> None:
    async with fake_stage() as stage:
        for handle, number in enumerate((0, 1, 1, 300), 1):
            stage.start(handle, f"{handle}", **giving_on(exit_handle=handle), stage=number, entry_activation_id=handle)
            stage.script.give(f"{handle}", "x", "y", "z")
        await stage.settle()
        ids = [child.start.activation.activation_id for child in stage.peers.children]
        assert len({*ids}) == 12
        assert min(ids) > 1 << 32
        stages = [(number >> 56, number >> 32 & 0xFFFFFF) for number in sorted(ids)[::3]]
        assert stages == [(1, 1), (2, 2), (2, 3), (301 & 0xFF, 4)]


async def test_identifiers_go_on_when_the_run_was_forgotten_in_between() -> None:
    async with fake_stage() as stage:
        for handle in (1, 2):
            stage.start(handle, "x", interface="test.shout", **giving_on(), stage=1)
            await stage.settle()
            stage.peers.children[-1].complete()
            await stage.is_over()
            assert len(stage.pipelines) == 0
        first, second = (child.start.activation.activation_id for child in stage.peers.children)
        assert first != second


async def test_several_routes_to_one_input_append_in_their_order() -> None:
    async with fake_stage() as stage:
        routes = (("more", "text"), ("text", "text"), ("text", "also"))
        stage.start(1, "x", **giving_on(*routes))
        stage.script.give("x", {"text": "T", "more": "M"}, {"text": "t"})
        await stage.settle()
        fields = [child.start.facets[0].fields for child in stage.peers.children]
        assert [[v.value.text for v in of["text"].values] for of in fields] == [["M", "T"], ["t"]]
        assert [[v.value.text for v in of["also"].values] for of in fields] == [["T"], ["t"]]


async def test_yield_with_nothing_for_the_next_stage_is_skipped_and_delivered() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **giving_on(), start_yield_window=1)
        stage.script.give("x", {}, {"more": "m"}, {}, "one")
        stage.script.end("x")
        await stage.settle()
        assert [(child.path, child.text) for child in stage.peers.children] == [((7, 3), "one")]


async def test_yield_without_a_required_input_fails_as_the_core_says_it() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **giving_on(("text", "text"), ("more", "also"), required_fields=["text", "also", "never"]))
        stage.script.give("x", {"more": "m"})
        await eventually(lambda: stage.error(1))

        @dataclasses.dataclass
        class Node:
            name: str

        @dataclasses.dataclass
        class Receiver:
            node: Node
            group: str

        receiver: Delivery = Receiver(Node("z"), "main")  # type: ignore[assignment]
        assert stage.error(1) == (partial_yield(receiver, frozenset(["text", "never"]), (7, 0)), False)
        await stage.is_over()


async def test_yield_without_a_required_input_is_skipped_where_that_is_no_failure() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **giving_on(("text", "text"), ("more", "also"), fails_when_partial=False))
        stage.script.give("x", {"more": "m"}, {"text": "t"})
        stage.script.end("x")
        await stage.settle()
        assert [child.path for child in stage.peers.children] == [(7, 1)]


async def test_payload_is_kept_until_the_activation_that_it_was_for_has_ended() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **giving_on(("text", "text"), ("blob", "blob"), activation_window=1))
        stage.script.give("x", *numbered(3))
        stage.script.end("x")
        await stage.settle()
        value = stage.peers.children[0].start.facets[0].fields["blob"].values[0].value
        reference = remote_of(value)
        assert reference is not None
        assert bytes(stage.store.open(reference)) == BIG
        assert stage.store.used_bytes == 3 * len(BIG)
        stage.peers.children[0].complete()
        assert stage.store.used_bytes == 2 * len(BIG)
        stage.peers.children[1].fail()  # the third waits for its place
        assert stage.store.used_bytes == 0
        stage.store.check_integrity()
        await stage.is_over()


async def test_payload_that_leaves_is_kept_for_the_control_plane() -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **leaving(fields=["blob"]))
        stage.script.give("x", {"text": "not wanted", "blob": BIG})
        stage.script.end("x")
        await stage.is_over()
        assert stage.control.retained_calls == ["call"]
        assert stage.store.used_bytes == len(BIG)


async def test_yield_that_would_make_too_large_a_start_fails_its_activation() -> None:
    async with fake_stage() as stage:
        stage.start(
            1, "x", **giving_on(("blob", "blob"), *[("text", f"text{n}") for n in range(9)], required_fields=[])
        )
        stage.script.give("x", {"text": "a" * (1 << 20), "blob": BIG})
        await eventually(lambda: stage.error(1))
        error = stage.error(1)
        assert error is not None
        assert error[0].reason is Reason.INVALID_OUTPUT
        assert (stage.peers.texts, stage.store.used_bytes) == ([], 0)


@pytest.mark.parametrize("pipeline", [giving_on(), leaving()])
async def test_text_that_no_message_may_carry_fails_its_activation(pipeline: dict[str, Any]) -> None:
    async with fake_stage() as stage:
        stage.start(1, "x", **pipeline)
        stage.script.give("x", "a" * (1 << 20) + "b")
        await eventually(lambda: stage.error(1))
        error = stage.error(1)
        assert error is not None
        assert error[0].reason is Reason.INVALID_OUTPUT
        await stage.is_over()
