"""The noop graphs as flows: found, served and planned."""

from __future__ import annotations

import pytest

from omniflow import discovery
from omniflow.codec.workflow import graph_spec_from_proto
from omniflow.flow import Flow
from omniflow.flow_loading import load_flow
from omniflow_core.graph.plan import find_faults, plan_graph
from omniflow_roles.noop.graphs import FLOWS, denoise

every_flow = pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)


@every_flow
def test_flow_is_found_by_the_name_of_its_graph(flow: Flow) -> None:
    assert load_flow(flow.name) is flow
    assert flow.graph.spec().name == f"graphs/{flow.name}"


@every_flow
def test_planner_finds_no_fault(flow: Flow) -> None:
    assert list(find_faults(graph_spec_from_proto(flow.graph.spec()))) == []


@every_flow
def test_each_node_has_a_role_that_serves_it(flow: Flow) -> None:
    served = {role.name: set(role.interfaces) for role in flow.roles}
    wanted: dict[str, set[str]] = {}
    for node in flow.graph.spec().nodes:
        wanted.setdefault(node.role, set()).add(node.interface)
    assert served == wanted


@pytest.mark.parametrize("flow", [flow for flow in FLOWS if flow is not denoise], ids=lambda flow: flow.name)
def test_no_two_nodes_of_a_shape_share_a_role(flow: Flow) -> None:
    roles = [node.role for node in flow.graph.spec().nodes]
    assert len({*roles}) == len(roles)


def test_denoising_loop_is_one_segment_that_only_its_result_leaves() -> None:
    (segment,) = plan_graph(graph_spec_from_proto(denoise.graph.spec())).segments
    assert segment.entry == "prepare"
    assert {node.name for node in segment.nodes} == {"prepare", "begin", "cond", "uncond", "image", "guide"}
    assert segment.exits == {"guide": ("result",)}


@every_flow
def test_interfaces_are_registered_as_they_are_used(flow: Flow) -> None:
    known = discovery.registered()
    for name, interface in flow.graph.interfaces.items():
        assert known[name].load() is interface
