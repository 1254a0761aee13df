"""The decoders of the decoding bench, and the models that they decode. Imports torch.

    EngineDecoder      our engine, in this process
    GenerateDecoder    `generate()` of transformers, in this process
    LlamaDecoder       llama.cpp, in a process of its own: `floors/llama_decode.py`

Models of one dtype share their weights: where the kernel puts them makes some per cent of their speed.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import sys
import tempfile
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import tokenizers  # type: ignore[import-not-found]
import torch
import transformers

from omniflow_roles.engines.requests import GenerationRequest
from omniflow_roles.engines.sampling.plan import SamplingPlan
from omniflow_roles.engines.torch.compose import EngineSettings, make_engine
from omniflow_roles.engines.torch.linears import quantise_linears
from omniflow_roles.models.assistant import checkpoint
from tests.bench.answers import (
    ENGINE_BFLOAT16,
    ENGINE_FLOAT32,
    ENGINE_INT8,
    GENERATE_BFLOAT16,
    GENERATE_FLOAT32,
    LLAMA,
    LLAMA_ENVIRONMENT,
    Answers,
    Decoder,
    Place,
    Prompt,
)

_LLAMA_PROGRAM = Path(__file__).parent / "floors" / "llama_decode.py"
_NO_LLAMA = (
    f"llama.cpp is left out: install llama-cpp-python into an environment of its own (pip compiles it for a quarter of an "
    f"hour), and name that environment's interpreter in {LLAMA_ENVIRONMENT}"
)
_POOL_TOKENS = 16_384
"""Several engines share the memory."""
_LONG_TOKENS = 1_500
"""Of completions that run until the bench ends them."""
_SAMPLE = "Explain in a few sentences why the sky is blue and why sunsets are red."
_ANSWER_BYTES = 1 << 20
_READINGS = 5
_CPU_READ_BYTES = 1 << 30
"""Several times the last cache."""
_GPU_READ_BYTES = 1 << 33
_GPU_SIZES: Mapping[str, Any] = {
    "vocab_size": 32_000,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 2048,
    "bos_token_id": None,
    "eos_token_id": None,
}


class EngineDecoder:
    """Our engine. Prompts must be new each time: its prefix cache would answer for it."""

    processes: Mapping[str, int] = {}

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.step_bytes = _step_bytes(model)
        self._engine = make_engine(model, tokenizer, EngineSettings(pool_tokens=_POOL_TOKENS))

    def __enter__(self) -> Self:
        self._engine.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._engine.close()

    @property
    def drawn_count(self) -> int:
        """Tokens so far."""
        return self._engine.load().drawn_tokens

    async def decode(self, prompts: Sequence[Prompt], tokens: int) -> Answers:
        """All prompts are there when its first step is planned."""
        gate = threading.Event()

        def hold() -> None:
            gate.wait()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._engine.between_steps(hold))
            reads = [tasks.create_task(self._read(prompt, tokens)) for prompt in prompts]
            try:
                await asyncio.sleep(0)  # each has sent its request, and waits
            finally:
                started_s = time.perf_counter()
                gate.set()
        found = [read.result() for read in reads]
        return Answers(
            ids=[ids for ids, _ in found],
            times_s=[[time_s - started_s for time_s in times_s] for _, times_s in found],
        )

    async def first_s(self, prompt: Prompt) -> float:
        """Time to the first token of a request for one."""
        started_s = time.perf_counter()
        _, (time_s,) = await self._read(prompt, 1)
        return time_s - started_s

    @contextlib.asynccontextmanager
    async def decoding(self, prompts: Sequence[Prompt]) -> AsyncIterator[None]:
        """Long completions of the prompts are being decoded inside."""
        firsts = [asyncio.Event() for _ in prompts]
        async with asyncio.TaskGroup() as tasks:
            reads = [
                tasks.create_task(self._read(prompt, _LONG_TOKENS, first))
                for prompt, first in zip(prompts, firsts, strict=True)
            ]
            for first in firsts:
                await first.wait()
            yield
            assert not any(read.done() for read in reads), "a completion was not long enough"
            for read in reads:
                read.cancel()

    async def _read(
        self, prompt: Prompt, tokens: int, first: asyncio.Event | None = None
    ) -> tuple[list[int], list[float]]:
        """Ids of a completion, and when each came."""
        ids: list[int] = []
        times_s: list[float] = []
        request = GenerationRequest(prompt=tuple(prompt), plan=SamplingPlan(max_tokens=tokens))
        async for piece in self._engine.generate(request):
            ids.extend(piece.ids)
            times_s.extend([time.perf_counter()] * len(piece.ids))
            if first is not None:
                first.set()
        return ids, times_s


class GenerateDecoder:
    """`generate()` as it comes. Make it before an engine of the same model family: on a GPU an engine fuses functions of
    the family's module, which are put back while this one works."""

    processes: Mapping[str, int] = {}

    def __init__(self, model: Any) -> None:
        self.step_bytes = _step_bytes(model)
        self._model = model
        self._home: Any = sys.modules[type(model).__module__]
        self._rotate = self._home.apply_rotary_pos_emb

    async def decode(self, prompts: Sequence[Prompt], tokens: int) -> Answers:
        clock = _StepClock()
        ids = torch.tensor([list(prompt) for prompt in prompts], device=self._model.device)
        with self._as_it_comes(), torch.inference_mode():
            started_s = time.perf_counter()
            found = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=tokens,
                pad_token_id=0,
                streamer=clock,
            )
        times_s = [time_s - started_s for time_s in clock.times_s]
        return Answers(ids=found[:, ids.shape[1] :].tolist(), times_s=[times_s] * len(prompts))

    @contextlib.contextmanager
    def _as_it_comes(self) -> Iterator[None]:
        fused, self._home.apply_rotary_pos_emb = self._home.apply_rotary_pos_emb, self._rotate
        try:
            yield
        finally:
            self._home.apply_rotary_pos_emb = fused


class _StepClock(transformers.generation.BaseStreamer):  # type: ignore[misc]
    """Notes when `generate()` gives the tokens of a step; it gives the prompts first."""

    def __init__(self) -> None:
        self._has_prompts = False
        self.times_s: list[float] = []

    def put(self, value: object) -> None:
        if self._has_prompts:
            self.times_s.append(time.perf_counter())
        self._has_prompts = True

    def end(self) -> None:
        pass


class LlamaDecoder:
    """llama.cpp in another interpreter."""

    def __init__(self, process: Process, about: Mapping[str, Any]) -> None:
        self.processes: Mapping[str, int] = {"llama.cpp": process.pid}
        self.about = f"llama-cpp-python {about['version']}, 1 thread: {about['system']}"
        """Its version, and what it was compiled for."""
        self.step_bytes = int(about["step_bytes"])
        self._process = process

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, interpreter: str) -> AsyncIterator[LlamaDecoder]:
        """Quantises the assistant's model, which takes seconds."""
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            process = await asyncio.create_subprocess_exec(
                interpreter,
                str(_LLAMA_PROGRAM),
                str(checkpoint.gguf_file()),
                f"{folder}/q8_0.gguf",
                stdin=PIPE,
                stdout=PIPE,
                limit=_ANSWER_BYTES,
            )
            try:
                yield cls(process, await _read_line(process))
            finally:
                assert process.stdin is not None
                process.stdin.close()
                await process.wait()

    async def decode(self, prompts: Sequence[Prompt], tokens: int) -> Answers:
        assert self._process.stdin is not None
        request = {"prompts": [list(prompt) for prompt in prompts], "tokens": tokens}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        found = await _read_line(self._process)
        return Answers(ids=found["ids"], times_s=[found["times_s"]] * len(prompts))


async def _read_line(process: Process) -> Mapping[str, Any]:
    """Raises RuntimeError when the process has ended; it has said why on standard error."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("llama.cpp has ended, see above")
    found: Mapping[str, Any] = json.loads(line)
    return found


@contextlib.asynccontextmanager
async def cpu_place(llama_interpreter: str | None, tokens: Mapping[int, int]) -> AsyncIterator[Place]:
    """The assistant's model on one thread of the CPU. Raises INVALID_CONFIG where its weights are not installed."""
    torch.set_num_threads(1)
    model, tokenizer = checkpoint.load(checkpoint.gguf_file(), checkpoint.cache_root())
    assert tokenizer is not None
    sample = tuple(tokenizer(_SAMPLE)["input_ids"])
    special = max(tokenizer.all_special_ids)
    _never_end(model, tokenizer)
    half = copy.deepcopy(model).to(torch.bfloat16)
    quantised = copy.deepcopy(model)
    quantise_linears(quantised)
    decoders: dict[str, Decoder] = {
        GENERATE_FLOAT32: GenerateDecoder(model),
        GENERATE_BFLOAT16: GenerateDecoder(half),
    }
    models = {ENGINE_FLOAT32: _twin(model), ENGINE_BFLOAT16: _twin(half), ENGINE_INT8: quantised}
    with contextlib.ExitStack() as stack:
        engines = {name: stack.enter_context(EngineDecoder(twin, tokenizer)) for name, twin in models.items()}
        decoders |= engines
        async with _llama(llama_interpreter) as llama:
            if llama is not None:
                decoders[LLAMA] = llama
            yield Place(
                label="",
                decoders=decoders,
                baseline=GENERATE_FLOAT32,
                servers={name: engines[name] for name in (ENGINE_FLOAT32, ENGINE_INT8)},
                read=_Reading(_CPU_READ_BYTES, torch.device("cpu")),
                tokens=tokens,
                vocabulary=range(special + 1, model.config.vocab_size),
                sample=sample,
                notes=[_NO_LLAMA if llama is None else llama.about],
            )


@contextlib.asynccontextmanager
async def gpu_place(tokens: Mapping[int, int]) -> AsyncIterator[Place]:
    """A Llama of 1.2 thousand million random weights on the GPU."""
    device = torch.device("cuda")
    config = transformers.LlamaConfig(**_GPU_SIZES)
    with device:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    generate = GenerateDecoder(model)
    with EngineDecoder(_twin(model), _plain_tokenizer(config.vocab_size)) as engine:
        yield Place(
            label="GPU ",
            decoders={GENERATE_BFLOAT16: generate, ENGINE_BFLOAT16: engine},
            baseline=GENERATE_BFLOAT16,
            servers={},
            read=_Reading(_GPU_READ_BYTES, device),
            tokens=tokens,
            vocabulary=range(config.vocab_size),
        )


@contextlib.asynccontextmanager
async def _llama(interpreter: str | None) -> AsyncIterator[LlamaDecoder | None]:
    if not interpreter:
        yield None
        return
    async with LlamaDecoder.start(interpreter) as llama:
        yield llama


class _Reading:
    """Sums a tensor that no cache holds, several times; gives its bytes, and the seconds of the fastest time."""

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        self._tensor = torch.ones(size_bytes // 4, dtype=torch.float32, device=device)

    def __call__(self) -> tuple[int, float]:
        return self._tensor.nbytes, min(self._sum_s() for _ in range(_READINGS))

    def _sum_s(self) -> float:
        started_s = time.perf_counter()
        self._tensor.sum().item()
        return time.perf_counter() - started_s


def _twin(model: Any) -> Any:
    """A model of its own with the same weights: an engine takes another attention."""
    return copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})


def _never_end(model: Any, tokenizer: Any) -> None:
    """Neither ends an answer before its length."""
    model.generation_config.eos_token_id = None
    tokenizer.eos_token = None


def _plain_tokenizer(size: int) -> Any:
    """Token i is the text "<i>"."""
    vocabulary = {f"<{index}>": index for index in range(size)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<0>"))
    inner.decoder = tokenizers.decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner)


def _step_bytes(model: Any) -> int:
    """Of all weights but those of embeddings, of which a step reads a few rows; a tied head is read."""
    modules = [module for module in model.modules() if not isinstance(module, torch.nn.Embedding)]
    tensors = {
        tensor.data_ptr(): tensor.nbytes
        for module in modules
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))
    }
    return sum(tensors.values())


def versions() -> Mapping[str, str]:
    """What the figures depend on beside the machine."""
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "CPU": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
    } | ({"GPU": torch.cuda.get_device_name()} if torch.cuda.is_available() else {})


has_gpu = torch.cuda.is_available
