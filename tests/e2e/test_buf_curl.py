"""A tool that knows nothing of us: it finds the services by reflection and streams a call."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.system import System, running_system

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

FLOW = """
from omniflow import Flow, Graph, RolePlan, ValueType
from omniflow_roles.noop.text import Echo

graph = Graph("echo")
echo = graph.node("echo", Echo, role="noop")
graph.input("text", ValueType.TEXT) >> echo.inputs.text
echo.text >> graph.output("text", ValueType.TEXT)
flow = Flow(name="echo", graph=graph, roles=(RolePlan(name="noop", interfaces=("noop.echo",)),))
"""


async def curl(system: System, cache: Path, *words: str, status: int = 0) -> str:
    """Runs `buf curl` against the server; the schema comes from reflection."""
    buf = Path(sys.executable).parent / "buf"
    result = await asyncio.to_thread(
        subprocess.run,
        [str(buf), "curl", "--http2-prior-knowledge", "--protocol", "grpc", *words],
        env={**os.environ, "BUF_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode == 0) == (status == 0), result.stderr
    return result.stdout if status == 0 else result.stderr


async def test_buf_curl_lists_services_and_streams_a_call(tmp_path: Path) -> None:
    async with running_system(FLOW) as system:
        listed = await curl(system, tmp_path, "--list-services", f"http://{system.target}")
        assert {
            "omniflow.graph.v1.GraphService",
            "omniflow.workflow.v1.WorkflowService",
            "grpc.health.v1.Health",
            "grpc.channelz.v1.Channelz",
        } <= set(listed.split())
        method = f"http://{system.target}/omniflow.graph.v1.GraphService/StreamCall"
        request = {"graph": "graphs/echo", "call": {"inputs": {"text": {"text": "hello"}}}}
        answer = await curl(system, tmp_path, "-d", json.dumps(request), method)
        assert '"text": "hello"' in answer
        assert '"reason": "FINISH_REASON_STOP"' in answer
        request["graph"] = "graphs/ekko"
        refused = await curl(system, tmp_path, "-d", json.dumps(request), method, status=1)
        assert "did you mean graphs/echo?" in refused
        assert "google.rpc.ErrorInfo" in refused
