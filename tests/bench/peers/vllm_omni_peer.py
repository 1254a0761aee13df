"""vLLM-Omni's orchestrator and stage pools, with stages in this process that answer at once.

No engine, no process of a stage and no API server: what is measured is the loop that hands requests from stage to stage,
a lower bound of its control flow. It knows chains only. The stages are of its LLM kind, which it waits for; those of its
diffusion kind it polls.

Options: `is_event_driven` sets its switch VLLM_OMNI_EVENT_DRIVEN_ORCH.
"""

import asyncio
import itertools
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from protocol import expect, main, run_calls

STAGES = {"chain3": 3}
MAX_MODEL_LEN = 4096
STOP_TIMEOUT_S = 5.0


class Stage:
    """A stage as its pool sees it: one token for each request."""

    stage_type = "llm"
    model_stage = "noop"
    replica_id = 0
    prompt_transform_func = prompt_expand_func = custom_process_input_func = None
    requires_multimodal_data = is_comprehension = False

    def __init__(self, stage_id: int, is_last: bool) -> None:
        from vllm_omni.inputs.data import OmniDiffusionSamplingParams

        self.stage_id = stage_id
        self.final_output = is_last
        self.final_output_type = "text" if is_last else None
        self.default_sampling_params = OmniDiffusionSamplingParams()
        self.engine_input_source = [stage_id - 1] if stage_id else []
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.count = 0

    async def add_request_async(self, request: Any, **kwargs: Any) -> None:
        from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason

        self.count += 1
        output = EngineCoreOutput(request_id=request.request_id, new_token_ids=[1], finish_reason=FinishReason.STOP)
        self.answers.put_nowait(EngineCoreOutputs(outputs=[output], timestamp=time.time()))

    async def get_output_async(self) -> Any:
        return await self.answers.get()

    def process_engine_inputs(self, *args: Any, **kwargs: Any) -> list[dict[str, list[int]]]:
        return [{"prompt_token_ids": [1]}]

    def set_engine_outputs(self, *args: Any) -> None: ...

    def get_kv_sender_info(self, **kwargs: Any) -> None: ...

    def get_payload_sender_info(self) -> None: ...

    async def abort_requests_async(self, ids: Any) -> None: ...

    async def collective_rpc_async(self, *args: Any, **kwargs: Any) -> None: ...

    def check_health(self) -> None: ...

    def shutdown(self) -> None: ...


class PassThrough:
    """An output processor without a tokenizer."""

    tokenizer = None

    def add_request(self, **kwargs: Any) -> None: ...

    def remove_request(self, *args: Any) -> None: ...

    def abort_requests(self, *args: Any, **kwargs: Any) -> list[Any]:
        return []

    def update_scheduler_stats(self, *args: Any) -> None: ...

    def process_outputs(self, outputs: Any, timestamp: float, iteration_stats: Any = None) -> SimpleNamespace:
        return SimpleNamespace(request_outputs=[_request_output(output) for output in outputs], reqs_to_abort=[])


def _request_output(output: Any) -> Any:
    from vllm.outputs import CompletionOutput, RequestOutput

    completion = CompletionOutput(
        index=0, text="x", token_ids=[1], cumulative_logprob=None, logprobs=None, finish_reason="stop"
    )
    return RequestOutput(
        request_id=output.request_id,
        prompt=None,
        prompt_token_ids=[1],
        prompt_logprobs=None,
        finished=True,
        outputs=[completion],
    )


class Orchestrator:
    """One orchestrator with its stages."""

    system = f"vllm-omni {version('vllm-omni')}"
    control_pid = os.getpid()

    async def prepare(self, topology: str, options: dict[str, Any]) -> None:
        # The switch is read when the packages are imported, so they are imported here and where they are used.
        os.environ["VLLM_OMNI_EVENT_DRIVEN_ORCH"] = str(int(options["is_event_driven"]))
        import janus
        from vllm.sampling_params import SamplingParams
        from vllm_omni.engine import orchestrator
        from vllm_omni.engine.stage_pool import StagePool

        count = STAGES[topology]
        config = SimpleNamespace(
            model_config=SimpleNamespace(max_model_len=MAX_MODEL_LEN, model_stage="noop", stage_connector_config=None)
        )
        self._stages = [Stage(index, index == count - 1) for index in range(count)]
        pools = [
            StagePool(index, stage, output_processor=PassThrough(), stage_vllm_config=config)
            for index, stage in enumerate(self._stages)
        ]
        self._sampling = [SamplingParams(max_tokens=4) for _ in pools]
        self._requests, self._outputs, rpc = janus.Queue(), janus.Queue(), janus.Queue()
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        running = orchestrator.Orchestrator(self._requests.async_q, self._outputs.async_q, rpc.async_q, pools)
        self._running = asyncio.create_task(running.run())
        self._taking = asyncio.create_task(self._take_outputs())

    async def _take_outputs(self) -> None:
        while True:
            message = await self._outputs.async_q.get()
            waiting = self._waiting.get(getattr(message, "request_id", ""))
            if waiting is None or waiting.done():
                continue
            if getattr(message, "type", "") == "error":
                waiting.set_exception(RuntimeError(message.error))
            elif getattr(message, "finished", False):
                waiting.set_result(None)

    async def run(self, count: int, concurrency: int) -> list[float]:
        before = [stage.count for stage in self._stages]
        latencies_ms = await run_calls(self._call, count, concurrency)
        expect([stage.count - past for stage, past in zip(self._stages, before, strict=True)], [count] * len(before))
        return latencies_ms

    async def _call(self) -> None:
        from vllm_omni.engine.messages import StageSubmissionMessage
        from vllm_omni.engine.orchestrator import build_engine_core_request_from_tokens

        request = f"r{next(self._numbers)}"
        self._waiting[request] = done = asyncio.get_running_loop().create_future()
        prompt = build_engine_core_request_from_tokens(request, {"prompt_token_ids": [1]}, self._sampling[0])
        message = StageSubmissionMessage(
            type="add_request",
            request_id=request,
            prompt=prompt,
            original_prompt={"prompt": "x"},
            output_prompt_text=None,
            sampling_params_list=self._sampling,
            final_stage_id=len(self._stages) - 1,
            preprocess_ms=0.0,
            request_timestamp=time.time(),
            enqueue_ts=0.0,
        )
        await self._requests.async_q.put(message)
        await done
        del self._waiting[request]

    async def stop(self) -> None:
        from vllm_omni.engine.messages import ShutdownRequestMessage

        await self._requests.async_q.put(ShutdownRequestMessage())
        await asyncio.wait([self._running], timeout=STOP_TIMEOUT_S)
        self._taking.cancel()


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    main(Orchestrator)
