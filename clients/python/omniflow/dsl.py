"""The graph DSL: nodes from interfaces, edges with `>>`, and a `GraphSpec` at the end. Guide: docs/graphs.md.

    graph = Graph("shout")
    text = graph.input("text", ValueType.TEXT)
    upper = graph.node("upper", Upper, inline=True)
    text >> upper.text
    upper.text >> graph.output("text", ValueType.TEXT)
    spec = graph.spec()

The DSL checks what it can see at the line where it is written (unknown fields, types that differ) and leaves the rest to
the planner, which sees every graph, also those that other languages build. `Graph.location_of` leads from what the planner
finds back to the user's line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omniflow.dsl_draft import Draft, check_name, fields_message
from omniflow.dsl_nodes import InputPort, Node, NodeInputs
from omniflow.dsl_options import (
    Balance,
    OnFailure,
    OnImpossible,
    Replay,
    set_cost,
    set_count_join,
    set_global_parameters,
    set_limits,
    set_words,
)
from omniflow.dsl_ports import Drain, Port
from omniflow.graph_errors import GraphError, Location
from omniflow.interface import Interface
from omniflow.interface_checks import problem_of
from omniflow.values import ValueType
from omniflow.workflow.v1 import graph_spec_pb2

__all__ = [
    "Balance",
    "Drain",
    "GlobalParameter",
    "Graph",
    "GraphError",
    "InputPort",
    "Location",
    "Node",
    "NodeInputs",
    "OnFailure",
    "OnImpossible",
    "Port",
    "Replay",
]


@dataclass(frozen=True, slots=True)
class GlobalParameter:
    """A tensor family that nodes share through the data plane. Made by `Graph.global_parameter`."""

    name: str


class Graph:
    """A graph under construction."""

    def __init__(self, name: str, *, description: str = "") -> None:
        self._draft = Draft(name, description)
        self._nodes: dict[str, Node] = {}
        self.name = name

    def input(self, name: str, type: ValueType, *, optional: bool = False, streaming: bool = False) -> Port:
        """A graph-call input. `streaming` inputs take any number of values while the call runs."""
        end = self._draft.add_input(name, type, is_optional=optional, is_streaming=streaming)
        called = f"input {name}"
        return Port(
            self._draft, called, source=end, target=f"{called} belongs to the graph: it gives values, and takes none"
        )

    def output(self, name: str, type: ValueType, *, unordered: bool = False) -> Port:
        """A graph output. Ordered outputs keep the order of the call's tree; unordered ones only that of one activation."""
        end = self._draft.add_output(name, type, is_unordered=unordered)
        called = f"output {name}"
        return Port(
            self._draft, called, source=f"{called} belongs to the graph: it takes values, and gives none", target=end
        )

    def global_parameter(self, name: str, *, layout: str = "", history_field: str = "") -> GlobalParameter:
        """A paged tensor family of the session, such as a KV cache.

        layout: a registered layout, or the hash of one. history_field: the field whose history it materialises.
        """
        self._draft.add_global_parameter(name, layout=layout, history_field=history_field)
        return GlobalParameter(name)

    def node(
        self,
        name: str,
        interface: type[Interface],
        *,
        role: str = "",
        inline: bool = False,
        activate_by_count: Mapping[str, str | int] | None = None,
        session_ordered: bool = False,
        loop_bound: int = 0,
        on_impossible: OnImpossible = "fail",
        on_failure: OnFailure = "fail_call",
        replay: Replay = "none",
        deterministic: bool = False,
        spread: bool = False,
        balance: Balance = "least_loaded",
        cost: str = "",
        global_parameters: Sequence[GlobalParameter | str] = (),
        yield_window: int = 0,
        timeout_s: float | None = None,
    ) -> Node:
        """A node: `role` names who serves it, or `inline=True` runs it in the control plane.

        activate_by_count: makes it a count join, which runs once per call when each of these fields has so many values;
            a text names the JSON field that gives the number.
        session_ordered: activations of a session run one at a time, in the order of what caused them.
        loop_bound: most activations in a call, for a node that a cycle returns to.
        on_impossible: "skip" runs nothing when a join lacks a required field, instead of failing the call.
        on_failure: "skip" keeps what a failed activation gave and goes on without the rest.
        replay: what becomes of an activation whose replica is lost; "continue" hands `Context.delivered` to a new one.
        deterministic: the yields depend on the inputs alone, so that "restart" may run again after the first yield.
        spread: choose a replica for each activation instead of once for a call; `balance` says how it is chosen.
        cost: for "cost_aware", the input field that tells what an activation costs beside others of the node: a JSON
            number, or the length of anything else.
        yield_window: yields that may be undelivered; 0 is the server's default. timeout_s: longest time to run.

        Raises GraphError for what cannot be.
        """
        if name in self._nodes:
            raise GraphError(f"graph {self.name!r} has a node {name!r} already")
        if inline == bool(role):
            raise GraphError(f"node {name!r} needs either role=... or inline=True")
        check_name("node", name)
        if problem := problem_of(interface):
            raise GraphError(f"node {name!r}: {problem}")
        message = _node_message(name, interface)
        message.role = role
        message.is_inline = inline
        message.is_session_ordered = session_ordered
        message.is_deterministic = deterministic
        message.is_spread = spread
        set_words(message, balance=balance, on_impossible=on_impossible, on_failure=on_failure, replay=replay)
        set_cost(message, interface, cost)
        set_limits(message, yield_window=yield_window, loop_bound=loop_bound, timeout_s=timeout_s)
        set_count_join(message, interface, activate_by_count or {})
        set_global_parameters(message, _names(global_parameters), self._draft.global_parameters)
        self._draft.add_node(message)
        self._nodes[name] = Node(self._draft, name, interface)
        return self._nodes[name]

    @property
    def interfaces(self) -> dict[str, type[Interface]]:
        """The interfaces of the nodes, by registered name."""
        return {node.interface.name: node.interface for node in self._nodes.values()}

    def spec(self) -> graph_spec_pb2.GraphSpec:
        """The definition as a message; a copy."""
        copy = graph_spec_pb2.GraphSpec()
        copy.CopyFrom(self._draft.message)
        return copy

    def location_of(self, field_path: str) -> Location | None:
        """The line that wrote the part of the definition that a path such as `edges[3].target_field` lies in.

        A node's name stands for the line of its node. None for paths of no part.
        """
        return self._draft.location_of(field_path)


def _node_message(name: str, interface: type[Interface]) -> graph_spec_pb2.Node:
    message = graph_spec_pb2.Node(name=name, interface=interface.name, is_streaming=interface.is_streaming())
    for group, fields in interface.inputs.items():
        check_name("input group", group)
        message.input_groups.add(name=group, fields=fields_message(fields))
    message.outputs.extend(fields_message(interface.outputs))
    return message


def _names(parameters: Sequence[GlobalParameter | str]) -> Sequence[str]:
    if isinstance(parameters, str):
        return parameters
    return [parameter.name if isinstance(parameter, GlobalParameter) else parameter for parameter in parameters]
