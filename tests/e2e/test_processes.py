"""Real processes that die: what the caller sees, and what is left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest

import omniflow
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.graph.v1 import graph_service_pb2_grpc as pb_grpc
from omniflow.values import Json
from omniflow_core.errors import OmniFlowError, Reason
from tests.support.processes import wait_until
from tests.support.system import System, running_system

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

GRACE_S = 1.0

FLOW = """
from omniflow import Flow, Graph, RolePlan, ValueType
from omniflow_roles.noop.streaming import Burst

graph = Graph("burst")
burst = graph.node("burst", Burst, role="noop")
graph.input("parameters", ValueType.JSON) >> burst.inputs.parameters
burst.tokens >> graph.output("tokens", ValueType.TOKENS)
flow = Flow(name="burst", graph=graph, roles=(RolePlan(name="noop", interfaces=("noop.burst",), replicas=2),))
"""

CLIENT = """
import asyncio, sys
import omniflow
async def main():
    async with omniflow.connect(sys.argv[1]) as client:
        async for event in client.stream("burst", parameters={"count": 100000, "delay_s": 0.01}):
            if isinstance(event, omniflow.Accepted):
                print(event.call_id, event.resume_token, flush=True)
            if isinstance(event, omniflow.Output):
                print("output", event.sequence, flush=True)
asyncio.run(main())
"""


@pytest.fixture
async def system() -> AsyncIterator[System]:
    async with running_system(FLOW, settings={"detach_grace_s": GRACE_S}) as made:
        yield made


def start_client(system: System) -> tuple[subprocess.Popen[str], str, str]:
    """A client process that streams; returns it with the call's identifier and resume token."""
    process = subprocess.Popen([sys.executable, "-c", CLIENT, system.target], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    call_id, token = process.stdout.readline().split()
    while "output" not in process.stdout.readline():
        pass
    return process, call_id, token


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def test_killed_client_ends_its_call_within_the_grace(system: System) -> None:
    process, call_id, _ = await asyncio.to_thread(start_client, system)
    killed_s = time.monotonic()
    kill(process)
    async with system.connect() as client:

        async def has_ended() -> bool:
            return (await client.get_call(call_id)).state is omniflow.CallState.FAILED

        await wait_until(has_ended, GRACE_S + 5, what="the end of the call")
        assert GRACE_S * 0.9 < time.monotonic() - killed_s < GRACE_S + 1.0
        status = await client.get_call(call_id)
        assert status.active_activations == 0


async def test_client_that_reconnects_in_time_resumes_exactly(system: System) -> None:
    process, _, token = await asyncio.to_thread(start_client, system)
    kill(process)
    async with system.connect() as client:
        sequences: list[int] = []
        ids: list[int] = []
        async for event in client.resume(token, after_sequence=0):
            sequences.append(event.sequence)
            if isinstance(event, omniflow.Output):
                assert isinstance(event.value, omniflow.Tokens)
                ids.extend(event.value.ids)
            if len(ids) >= 300:
                break
    assert sequences == list(range(1, len(sequences) + 1))
    assert ids == list(range(ids[0], ids[0] + len(ids)))


async def test_killed_replica_fails_only_its_own_calls(system: System) -> None:
    """20 calls over two replicas; one is killed: its calls fail naming node and replica, the others run to their end."""
    async with system.connect() as client:
        started = asyncio.Semaphore(0)
        for replica in system.roles:  # one of them is enough for the graph to be ready
            await wait_until(lambda name=replica: f"connected to noop/{name}" in system.control.log(), 20.0)  # type: ignore[misc]

        async def run() -> str:
            try:
                async for event in client.stream("burst", parameters=Json({"count": 300, "delay_s": 0.01})):
                    if isinstance(event, omniflow.Output) and event.value == omniflow.Tokens((0,), "xxxx"):
                        started.release()
            except OmniFlowError as error:
                assert error.reason is Reason.REPLICA_LOST
                assert "'burst'" in error.message
                return str(error.info.metadata["replica"])
            return "finished"

        calls = [asyncio.create_task(run()) for _ in range(20)]
        for _ in calls:
            await started.acquire()
        killed_s = time.monotonic()
        system.role("noop-0").kill()
        done, _ = await asyncio.wait(calls, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result() for task in done} == {"noop/noop-0"}
        assert time.monotonic() - killed_s < 1.0
        outcomes = await asyncio.gather(*calls)
        assert sorted(set(outcomes)) == ["finished", "noop/noop-0"]
        assert outcomes.count("noop/noop-0") == 10
        assert (await client.run("burst", parameters=Json({"count": 3}))).finished is not None


async def test_stopped_replica_is_found_out_by_its_silence(system: System) -> None:
    """SIGSTOP keeps every socket open; only heartbeats tell."""
    async with system.connect() as client:
        stream = client.stream("burst", parameters={"count": 100_000, "delay_s": 0.01})
        async with stream as events:
            with pytest.raises(OmniFlowError) as caught:
                async for event in events:
                    if isinstance(event, omniflow.Output) and event.sequence < 20:
                        for replica in system.roles.values():
                            replica.pause()
        assert caught.value.reason is Reason.REPLICA_LOST
        for replica in system.roles.values():
            replica.resume()


async def test_paused_control_plane_loses_no_work(system: System) -> None:
    """SIGSTOP for longer than leases and heartbeats last, as a suspended machine does: calls go on where they were."""
    async with system.connect() as client:
        numbers: list[int] = []
        async for event in client.stream("burst", parameters={"count": 600, "delay_s": 0.01}):
            if isinstance(event, omniflow.Output):
                assert isinstance(event.value, omniflow.Tokens)
                numbers.extend(event.value.ids)
                if event.value.ids[-1] == 20:
                    system.control.pause()
                    await asyncio.sleep(4.0)
                    system.control.resume()
        assert numbers == list(range(600))
    assert "silent" not in system.control.log()


async def test_cancel_is_acknowledged_while_a_role_sleeps(system: System) -> None:
    """The acknowledgement does not wait for cleanup, and the next call not for the cancelled one."""
    async with system.connect() as client:
        stream = client.stream("burst", parameters={"count": 2, "delay_s": 30.0})
        iterator = aiter(stream)
        accepted = await anext(iterator)
        assert isinstance(accepted, omniflow.Accepted)
        start_s = time.monotonic()
        assert await client.cancel(accepted.call_id)
        assert time.monotonic() - start_s < 0.1
        with pytest.raises(OmniFlowError) as caught:
            async for _ in iterator:
                pass
        assert caught.value.reason is Reason.CALL_CANCELLED
        assert not await client.cancel(accepted.call_id), "a second cancel changes nothing"
        await client.run("burst", parameters=Json({"count": 1}))
        assert time.monotonic() - start_s < 5.0


async def test_resume_of_a_call_of_a_process_that_is_gone_is_owner_lost(system: System) -> None:
    """The token of another process's life; a shared key would answer OWNER_LOST, a drawn one does not know the token."""
    import grpc

    process, _, token = await asyncio.to_thread(start_client, system)
    kill(process)
    system.control.restart()
    await system.wait_ready()
    async with grpc.aio.insecure_channel(system.target) as channel:
        stub = pb_grpc.GraphServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stub.ResumeCall(pb.ResumeCallRequest(resume_token=token)):
                pass
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
