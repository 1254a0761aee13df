"""LangGraph with nodes that do nothing: a process of its own, requests by `ainvoke`."""

import operator
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

sys.path.insert(0, str(Path(__file__).parent))

from langgraph.graph import END, START, StateGraph
from protocol import expect, main, run_calls

EDGES: dict[str, list[tuple[Any, str]]] = {
    "chain3": [("a", "b"), ("b", "c")],
    "diamond4": [("a", "b"), ("a", "c"), (["b", "c"], "j")],
    "fan5": [("pre", "img"), ("pre", "aud"), (["pre", "img", "aud"], "agg"), ("agg", "out")],
}
"""Sources and target; several sources are waited for."""
ENDS = {"chain3": ("a", "c"), "diamond4": ("a", "j"), "fan5": ("pre", "out")}
JOINS = {"chain3": ("c", ["a", "b"]), "diamond4": ("j", ["a", "b", "c"]), "fan5": ("agg", ["aud", "img", "pre"])}
"""A node, and what has run before it."""


class State(TypedDict):
    """Of one request."""

    x: int
    seen: Annotated[list[str], operator.add]
    joined: list[str]


class LangGraph:
    """One compiled graph."""

    system = f"langgraph {version('langgraph')}"
    control_pid = os.getpid()

    async def prepare(self, topology: str, options: dict[str, Any]) -> None:
        graph = StateGraph(State)
        edges, (first, last), (join, self._wanted) = EDGES[topology], ENDS[topology], JOINS[topology]
        for name in sorted({first, *(target for _, target in edges)}):
            graph.add_node(name, _joining(name) if name == join else _passing(name))
        for source, target in edges:
            graph.add_edge(source, target)
        graph.add_edge(START, first)
        graph.add_edge(last, END)
        self._graph = graph.compile()

    async def run(self, count: int, concurrency: int) -> list[float]:
        return await run_calls(self._call, count, concurrency)

    async def _call(self) -> None:
        reply = await self._graph.ainvoke({"x": 1, "seen": [], "joined": []})
        expect(reply["joined"], self._wanted)

    async def stop(self) -> None:
        pass


def _passing(name: str) -> Any:
    async def node(state: State) -> dict[str, Any]:
        return {"seen": [name]}

    return node


def _joining(name: str) -> Any:
    async def node(state: State) -> dict[str, Any]:
        return {"seen": [name], "joined": sorted(state["seen"])}

    return node


if __name__ == "__main__":
    main(LangGraph)
