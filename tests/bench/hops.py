"""Latency of a no-op hop, against an echo over a bidirectional grpc.aio stream between two processes.

    echo         this process ⇄ server                      a round trip of one frame
    bare k       this process ⇄ forwarder ⇄ echo 1 .. k     hops over grpc.aio without a platform: bytes handed on
    chain k      client ⇄ control plane ⇄ role 1 .. k       a hop is (chain 3 - chain 1) / 2
    fan          client ⇄ control plane ⇄ role ⇄ 3 roles    two hops deep, four activations
    inline k     client ⇄ control plane                     the nodes run in the control plane

The calls go one after another over a long-lived ConverseCall stream of the generated stub; some contestants use a new RPC
per call (RunCall, StreamCall) or the Python client. Echoes and hops go over unix sockets, clients over TCP.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

import omniflow
from omniflow.graph.v1 import graph_service_pb2, graph_service_pb2_grpc
from omniflow.role.v1 import role_execution_service_pb2
from tests.bench import graphs
from tests.bench.floors import grpc_echo, grpc_forward
from tests.bench.harness.contest import Contestant, Results, Work, compete
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Report, cpu_text
from tests.bench.harness.statistics import median, paired_ratios, percentile
from tests.bench.setting import floor, serving

CALLS = 300
"""Of one round, after `WARM_CALLS` that are not timed."""
WARM_CALLS = 20
TEXT = "hello"
AIM = 2.0
"""A hop against an echo; the fast lane of one host is to bring it there."""

_Call = Callable[[], Awaitable[None]]
_ENDS = ("finished", "failed")


async def run(options: Options) -> Report:
    """The bench."""
    every = [graphs.chain(1), graphs.chain(3), graphs.fan(), *(graphs.chain(k, is_inline=True) for k in (1, 3))]
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        echoes = [await enter(floor("grpc_echo", is_unix=True)) for _ in range(3)]
        targets = [echo.target for echo in echoes]
        bare = {k: await enter(floor("grpc_forward", *targets[:k])) for k in (1, 3)}
        system = await enter(serving(every, graphs.echo_roles(4)))
        talk = Conversation(graph_service_pb2_grpc.GraphServiceStub(await _channel(enter, system.target)))
        stub = graph_service_pb2_grpc.GraphServiceStub(await _channel(enter, system.target))
        client = await enter(system.connect())
        conversation = await enter(client.converse())

        control = {"control": system.control.pid}
        calls: dict[str, tuple[_Call, dict[str, int]]] = {
            "echo": (Echo(await _channel(enter, targets[0])).call, {"server": echoes[0].process.pid}),
            **{
                f"bare{k}": (Forward(await _channel(enter, at.target)).call, {"forwarder": at.process.pid})
                for k, at in bare.items()
            },
            **{graph.name: (functools.partial(talk.call, f"graphs/{graph.name}"), control) for graph in every},
            "chain1, RunCall": (functools.partial(_run_call, stub, "graphs/chain1"), control),
            "inline1, RunCall": (functools.partial(_run_call, stub, "graphs/inline1"), control),
            "chain1, StreamCall": (functools.partial(_stream_call, stub, "graphs/chain1"), control),
            "chain1, client converse": (functools.partial(_converse, conversation, "chain1"), control),
            "chain1, client run": (functools.partial(_client_run, client, "chain1"), control),
        }
        contestants = [
            Contestant(name=name, run=functools.partial(_timed, call, options.scaled(CALLS)), processes=processes)
            for name, (call, processes) in calls.items()
        ]
        results = await compete(contestants, options)
    return _report(results, list(calls))


async def _channel(enter: Callable[[Any], Awaitable[Any]], target: str) -> grpc.aio.Channel:
    """A connection of its own."""
    channel: grpc.aio.Channel = await enter(
        grpc.aio.insecure_channel(target, options=(("grpc.use_local_subchannel_pool", 1),))
    )
    return channel


class Echo:
    """One stream to an echo, with a message built and looked into at this end."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        method: Any = channel.stream_stream(
            grpc_echo.METHOD,
            role_execution_service_pb2.ExecuteResponse.SerializeToString,
            role_execution_service_pb2.ExecuteResponse.FromString,
        )
        self._stream = method()

    async def call(self) -> None:
        """A round trip."""
        await self._stream.write(_frame())
        response: Any = await self._stream.read()
        assert response.results[0].handle == 1


class Forward:
    """One stream to a forwarder."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        method: Any = channel.stream_stream(grpc_forward.METHOD)
        self._stream = method()

    async def call(self) -> None:
        """A round trip through all of its echoes."""
        await self._stream.write(_frame().SerializeToString())
        response = role_execution_service_pb2.ExecuteResponse.FromString(await self._stream.read())
        assert response.results[0].handle == 1


def _frame() -> role_execution_service_pb2.ExecuteResponse:
    frame = role_execution_service_pb2.ExecuteResponse()
    given = getattr(frame.results.add(handle=1), "yield")
    given.fields["text"].text = TEXT
    return frame


class Conversation:
    """One ConverseCall stream of the generated stub; calls one after another."""

    def __init__(self, stub: graph_service_pb2_grpc.GraphServiceStub) -> None:
        self._stream: Any = stub.ConverseCall()
        self._next_key = 0

    async def call(self, graph: str) -> None:
        """Until the terminal event."""
        self._next_key += 1
        request = graph_service_pb2.ConverseCallRequest()
        message = request.messages.add(call_key=str(self._next_key))
        message.start.graph = graph
        message.start.call.inputs["text"].text = TEXT
        await self._stream.write(request)
        while True:
            response = await self._stream.read()
            end = response.events[-1].WhichOneof("event")
            if end in _ENDS:
                assert end == "finished", response
                return


async def _run_call(stub: graph_service_pb2_grpc.GraphServiceStub, graph: str) -> None:
    request = graph_service_pb2.RunCallRequest(graph=graph)
    request.call.inputs["text"].text = TEXT
    response = await stub.RunCall(request)
    assert response.outputs["text"].values[0].text == TEXT


async def _stream_call(stub: graph_service_pb2_grpc.GraphServiceStub, graph: str) -> None:
    request = graph_service_pb2.StreamCallRequest(graph=graph)
    request.call.inputs["text"].text = TEXT
    end = ""
    async for response in stub.StreamCall(request):
        end = response.events[-1].WhichOneof("event") or ""
    assert end == "finished"


async def _converse(conversation: omniflow.Conversation, graph: str) -> None:
    call = await conversation.start(graph, text=TEXT)
    assert (await call.result()).text("text") == TEXT


async def _client_run(client: omniflow.Client, graph: str) -> None:
    assert (await client.run(graph, text=TEXT)).text("text") == TEXT


async def _timed(call: _Call, count: int) -> Work:
    for _ in range(WARM_CALLS):
        await call()
    latencies_s = []
    started_s = last_s = time.perf_counter()
    for _ in range(count):
        await call()
        now_s = time.perf_counter()
        latencies_s.append(now_s - last_s)
        last_s = now_s
    # CPU covers the warm calls too, a few per cent; latencies and rate do not.
    return Work(count=count, latencies_s=latencies_s, figures={"wall_s": last_s - started_s})


def _report(results: Results, names: list[str]) -> Report:
    echoes_s = results.round_latencies_s("echo")
    hops_s, bare_s = _hops_s(results, "chain"), _hops_s(results, "bare")
    rows = [
        [
            name,
            *(f"{percentile(results.latencies_s(name), share) * 1e3:.3f}" for share in (0.5, 0.9, 0.99)),
            f"{median(results.rates(name)):.0f}",
            cpu_text(results.cpu_us(name)),
        ]
        for name in names
    ]
    for kind, hop_s in (("bare", bare_s), ("chain", hops_s)):
        rows.append([f"hop = ({kind}3 - {kind}1) / 2", f"{median(hop_s) * 1e3:.3f}", "", "", "", ""])
    return Report(
        name="hops",
        title="hops: one call at a time, milliseconds",
        columns=["contestant", "p50", "p90", "p99", "calls/s", "CPU us/call"],
        rows=rows,
        checks=[
            Check(
                what="a no-op hop against a bidi echo", value=_ratio(hops_s, echoes_s), at_most=AIM, is_promised=False
            ),
            Check(what="a no-op hop against a bare hop", value=_ratio(hops_s, bare_s), at_most=AIM, is_promised=False),
        ],
        looks=results.looks,
        details={
            **results.as_json(),
            "hop_ms": [hop_s * 1e3 for hop_s in hops_s],
            "bare_hop_ms": [hop_s * 1e3 for hop_s in bare_s],
        },
        notes=[f"a bare hop against a bidi echo: {_ratio(bare_s, echoes_s):.2f} x, what grpc.aio itself makes of it"],
    )


def _hops_s(results: Results, kind: str) -> list[float]:
    """The median hop of each round."""
    ones, threes = results.round_latencies_s(f"{kind}1"), results.round_latencies_s(f"{kind}3")
    return [(three - one) / 2 for one, three in zip(ones, threes, strict=True)]


def _ratio(hops_s: list[float], floor_s: list[float]) -> float:
    return median(paired_ratios(hops_s, floor_s))
