"""The graphs that benches run, without a model. Role `echo0`, `echo1` ... host noop.echo, role `burst` noop.burst."""

from __future__ import annotations

from omniflow.dsl import Graph
from omniflow.flow import RolePlan
from omniflow.values import ValueType
from omniflow_roles.noop import Burst, Echo

BURST_ROLE = RolePlan(name="burst", interfaces=("noop.burst",))


def echo_roles(count: int) -> tuple[RolePlan, ...]:
    """A process each."""
    return tuple(RolePlan(name=f"echo{index}", interfaces=("noop.echo",)) for index in range(count))


def burst() -> Graph:
    """parameters -> burst -> tokens"""
    graph = Graph("burst")
    node = graph.node("burst", Burst, role="burst")
    graph.input("parameters", ValueType.JSON) >> node.inputs.field("parameters")
    node.tokens >> graph.output("tokens", ValueType.TOKENS)
    return graph


def chain(length: int, *, is_inline: bool = False) -> Graph:
    """text -> echo0 -> echo1 -> ... -> text, each in its own role process, or all of them inline"""
    graph = Graph(f"{'inline' if is_inline else 'chain'}{length}")
    last = graph.input("text", ValueType.TEXT)
    for index in range(length):
        role = "" if is_inline else f"echo{index}"
        node = graph.node(f"node{index}", Echo, role=role, inline=is_inline)
        last >> node.inputs.field("text")
        last = node.text
    last >> graph.output("text", ValueType.TEXT)
    return graph


def fan() -> Graph:
    """text -> echo0 -> {echo1, echo2, echo3} -> a, b, c: two hops deep, four activations"""
    graph = Graph("fan")
    first = graph.node("first", Echo, role="echo0")
    graph.input("text", ValueType.TEXT) >> first.inputs.field("text")
    for index, name in enumerate("abc", start=1):
        node = graph.node(name, Echo, role=f"echo{index}")
        first.text >> node.inputs.field("text")
        node.text >> graph.output(name, ValueType.TEXT)
    return graph
