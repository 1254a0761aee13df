"""M* with nodes that do nothing, on a CPU: its conductor in a process, a worker process for each node or one for all.

This process stands for its API server: it hands requests to M*'s data worker and takes what comes back, as
`APIServer._process_messages` does, but woken by messages instead of a sleep, which is in M*'s favour; HTTP is left out.
Values are tensors, so a reply is checked by bits: each node sets its own in what it was given, and the end has them all.

Options: `processes` is "each" or "one". Its processes import this file for the model.
"""

import functools
import json
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from mstar.api_server.data_worker import PreprocessWorker
from mstar.api_server.request_types import PreprocessInput
from mstar.communication.communicator import CommProtocol, make_communicator
from mstar.conductor.conductor import Conductor
from mstar.conductor.request_info import CurrentForwardConductorMetadata
from mstar.graph.base import GraphEdge, GraphNode, Parallel, Sequential
from mstar.graph.special_destinations import EMIT_TO_CLIENT
from mstar.model.base import ForwardPassArgs, Model
from mstar.model.submodule_base import NodeInputs, NodeSubmodule
from protocol import expect, main

START_TIMEOUT_S = 300.0
STUCK_AFTER_S = 30.0
STOP_TIMEOUT_S = 10.0
WALK = "walk"
TOPOLOGIES: dict[str, list[Any]] = {
    "chain3": ["a", "b", "c"],
    "diamond4": ["a", ("b", "c"), "j"],
    "fan5": ["pre", ("img", "aud"), "agg", "out"],
}
"""Nodes one after another, those in brackets side by side."""
EDGES = {
    "chain3": [("a", "b"), ("b", "c")],
    "diamond4": [("a", "b"), ("a", "c"), ("b", "j"), ("c", "j")],
    "fan5": [("pre", "img"), ("pre", "aud"), ("pre", "agg"), ("img", "agg"), ("aud", "agg"), ("agg", "out")],
}


class Node(NodeSubmodule):
    """Gives what it was given, all of it together, with its own bit."""

    disable_torch_compile = True

    def __init__(self, outputs: list[str], bit: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.bit = bit
        self.parameter = torch.nn.Parameter(torch.zeros(1))  # the engine asks a parameter for the device

    def prepare_inputs(self, graph_walk: str, fwd_info: Any, inputs: dict[str, Any], **kwargs: Any) -> NodeInputs:
        return NodeInputs(tensor_inputs={name: values[0] for name, values in inputs.items() if values})

    def forward(self, graph_walk: str, engine_inputs: Any, **kwargs: Any) -> dict[str, list[torch.Tensor]]:
        given = functools.reduce(torch.bitwise_or, kwargs.values()) | self.bit
        return {name: [given.clone()] for name in self.outputs}


class Noop(Model):
    """A model of one walk."""

    def __init__(self, topology: str) -> None:
        self.order = TOPOLOGIES[topology]
        self.edges = EDGES[topology]
        self.names = [name for step in self.order for name in (step if isinstance(step, tuple) else (step,))]

    def get_graph_walk_graphs(self) -> dict[str, Any]:
        steps = [
            Parallel(list(map(self._node, step))) if isinstance(step, tuple) else self._node(step)
            for step in self.order
        ]
        return {WALK: Sequential(steps)}

    def _node(self, name: str) -> GraphNode:
        inputs = [f"{source}_{name}" for source, target in self.edges if target == name]
        outputs = [
            GraphEdge(next_node=target, name=f"{name}_{target}") for source, target in self.edges if source == name
        ]
        if name == self.names[-1]:
            outputs = [GraphEdge(next_node=EMIT_TO_CLIENT, name="y", output_modality="text")]
        return GraphNode(name=name, input_names=inputs or ["x"], outputs=outputs)

    def get_submodule(self, node_name: str, device: str = "cpu", *args: Any, **kwargs: Any) -> Node:
        outputs = [f"{node_name}_{target}" for source, target in self.edges if source == node_name]
        return Node(outputs or ["y"], 1 << self.names.index(node_name))

    def get_initial_forward_pass_args(
        self,
        partition_name: str,
        input_modalities: list[str],
        output_modalities: list[str],
        input_signals: dict[str, Any],
        model_kwargs: dict[str, Any] | None = None,
    ) -> ForwardPassArgs:
        metadata = CurrentForwardConductorMetadata(
            graph_walk=WALK,
            is_prefill=False,
            input_modalities=input_modalities,
            output_modalities=output_modalities,
        )
        given = input_signals["x"]
        start = GraphEdge(next_node=self.names[0], name="x", tensor_info=given)
        return ForwardPassArgs(full_metadata=metadata, inputs=[start], unpersist_tensors=given)

    def get_partition_forward_pass_args(
        self, partition_name: str, partition_metadata: Any, persist_signals: dict[str, Any], *args: Any, **kwargs: Any
    ) -> ForwardPassArgs:
        given = persist_signals.get("x", [])
        return ForwardPassArgs(full_metadata=partition_metadata, inputs=[], unpersist_tensors=given, request_done=True)

    def process_prompt(self, prompt: str | None, *args: Any, **kwargs: Any) -> dict[str, list[torch.Tensor]]:
        return {"x": [torch.zeros(8, dtype=torch.int64)]}

    def postprocess(self, output: torch.Tensor, modality: str, request_kwargs: dict[str, Any] | None = None) -> bytes:
        given: bytes = output.numpy().tobytes()
        return given

    def get_node_resources(self) -> list[Any]:
        return []

    def get_autocast_dtype(self) -> None:
        return None


def conduct(topology: str, config: str, sockets: str) -> None:
    """The process of the conductor."""

    def end(*_: Any) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    logging.basicConfig(level=logging.ERROR)
    torch.set_num_threads(1)
    conductor = Conductor(
        Noop(topology), config, socket_path_prefix=sockets, log_level="ERROR", tensor_comm_protocol=CommProtocol.SHM
    )
    try:
        conductor.run()
    finally:
        conductor.shutdown()


class MStar:
    """One deployment."""

    system = f"mstar-ai {version('mstar-ai')}"
    control_pid = 0

    async def prepare(self, topology: str, options: dict[str, Any]) -> None:
        logging.basicConfig(level=logging.ERROR)
        torch.set_num_threads(1)
        model = Noop(topology)
        self._folder = tempfile.TemporaryDirectory(prefix="bench-mstar-")
        sockets = self._folder.name
        groups = [[name] for name in model.names] if options["processes"] == "each" else [model.names]
        config = Path(sockets) / "config.yaml"
        node_groups = [{"node_names": names, "ranks": [rank]} for rank, names in enumerate(groups)]
        config.write_text(json.dumps({"model": "noop", "max_seq_len": 128, "node_groups": node_groups}))
        self._api = make_communicator(my_id="api_server", push_ids=["conductor"], ipc_socket_path_prefix=sockets)
        self._data = PreprocessWorker(model=model, tensor_comm_protocol=CommProtocol.SHM, socket_path_prefix=sockets)
        self._conductor = multiprocessing.get_context("spawn").Process(
            target=conduct, args=(topology, str(config), sockets)
        )
        self._conductor.start()
        self._wait_ready()
        self.control_pid = self._conductor.pid or 0
        self._wanted = (1 << len(model.names)) - 1
        self._open: dict[str, float] = {}
        """When requests that have not ended were submitted."""
        self._complete: set[str] = set()
        self._chunks: dict[str, bytes] = {}
        self._count = 0

    def _wait_ready(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not any(message.message_type == "setup_done" for message in self._api.get_all_new_messages()):
            if not self._conductor.is_alive():
                raise RuntimeError("the conductor has ended")
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the workers were not ready within {START_TIMEOUT_S:g} s")
            time.sleep(0.02)

    async def run(self, count: int, concurrency: int) -> list[float]:
        latencies_ms: list[float] = []
        submitted = 0
        while len(latencies_ms) < count:
            while submitted < count and len(self._open) < concurrency:
                self._submit()
                submitted += 1
            self._take_messages()
            latencies_ms.extend(self._take_ended())
            if any(time.perf_counter() - began_s > STUCK_AFTER_S for began_s in self._open.values()):
                raise RuntimeError(f"a request has not ended within {STUCK_AFTER_S:g} s")
        return latencies_ms

    def _submit(self) -> None:
        self._count += 1
        request = f"r{self._count}"
        self._open[request] = time.perf_counter()
        self._data.new_request(
            PreprocessInput(
                request_id=request,
                text="x",
                file_paths=None,
                input_modalities=["text"],
                output_modalities=["text"],
                model_kwargs={},
            )
        )

    def _take_messages(self) -> None:
        self._api.poll_for_messages(1)
        for message in self._api.get_all_new_messages():
            if message.message_type == "result_tensors":
                self._data.new_result_tensors(message.body)
            elif message.message_type == "request_complete":
                self._complete.add(message.body.request_id)
            elif message.message_type == "request_failed":
                raise RuntimeError(message.body.error_message)
        for chunk in self._data.get_result_chunks():
            expect(chunk.modality, "text")
            self._chunks[chunk.request_id] = chunk.data

    def _take_ended(self) -> list[float]:
        """Milliseconds of requests whose completion and whose value are here."""
        ended = [request for request in self._open if request in self._complete and request in self._chunks]
        now_s = time.perf_counter()
        latencies_ms = [(now_s - self._open.pop(request)) * 1e3 for request in ended]
        for request in ended:
            self._complete.discard(request)
            expect(int.from_bytes(self._chunks.pop(request)[:8], "little"), self._wanted)
            self._data.finished_reading(request)
        return latencies_ms

    async def stop(self) -> None:
        self._data.shutdown()
        self._conductor.terminate()
        self._conductor.join(STOP_TIMEOUT_S)
        self._folder.cleanup()


if __name__ == "__main__":
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.getenv("PYTHONPATH"))))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(MStar)
