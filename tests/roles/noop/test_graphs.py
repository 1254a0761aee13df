"""The noop graphs as flows: found, served and planned."""

from __future__ import annotations

import pytest

from omniflow import discovery
from omniflow.codec.workflow import graph_spec_from_proto
from omniflow.flow import Flow
from omniflow.flow_loading import load_flow
from omniflow_core.graph.plan import find_faults
from omniflow_roles.noop.graphs import FLOWS

every_flow = pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)


@every_flow
def test_flow_is_found_by_the_name_of_its_graph(flow: Flow) -> None:
    assert load_flow(flow.name) is flow
    assert flow.graph.spec().name == f"graphs/{flow.name}"


@every_flow
def test_planner_finds_no_fault(flow: Flow) -> None:
    assert list(find_faults(graph_spec_from_proto(flow.graph.spec()))) == []


@every_flow
def test_each_node_has_a_role_of_its_own_that_serves_it(flow: Flow) -> None:
    served = {role.name: role.interfaces for role in flow.roles}
    wanted = {node.role: (node.interface,) for node in flow.graph.spec().nodes}
    assert served == wanted
    assert len(wanted) == len(flow.graph.spec().nodes)


@every_flow
def test_interfaces_are_registered_as_they_are_used(flow: Flow) -> None:
    known = discovery.registered()
    for name, interface in flow.graph.interfaces.items():
        assert known[name].load() is interface
