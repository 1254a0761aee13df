"""llama.cpp decodes token ids greedily on one thread, with 8-bit weights: a floor of the decoding bench.

    python tests/bench/floors/llama_decode.py SOURCE.gguf TARGET.gguf

Makes TARGET of SOURCE by llama.cpp's own quantisation to Q8_0, writes a line about the model, and answers each line of its
standard input with another. It ends with its input. The interpreter needs llama-cpp-python and nothing of this project.

    <- {"prompts": [[1, 2], [3, 4]], "tokens": 2}                     prompts of one length
    -> {"ids": [[5, 6], [7, 8]], "times_s": [0.01, 0.02]}             one time a step, from when the prompts were given
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import llama_cpp  # type: ignore[import-not-found]
import numpy as np

_THREADS = 1
_SEQUENCE_SIZE = 1024
"""Most tokens of a prompt and its answer."""
_PART_SIZE = 512
"""Most tokens that are computed at once, llama.cpp's default."""


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _ignore(level: int, text: bytes, data: ctypes.c_void_p) -> None:
    """Its log is long, and goes to standard error."""


def quantise(source: str, target: str) -> None:
    """Raises RuntimeError."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread = _THREADS
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    params.allow_requantize = True
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)):
        raise RuntimeError(f"llama.cpp cannot quantise {source}")


class Model:
    """A model, with a context for each batch size that it was asked for."""

    def __init__(self, path: str) -> None:
        self.handle = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.handle:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._vocabulary_size: int = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.handle))
        self._context = lru_cache(self._make_context)

    def answer(self, prompts: Sequence[Sequence[int]], tokens: int) -> dict[str, Any]:
        """What the module says."""
        context = self._context(len(prompts))
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        size = len(prompts[0])
        prompt, step = _batch(len(prompts) * size), _batch(len(prompts))
        for index in range(len(prompts) * size):
            sequence, position = divmod(index, size)
            _put(prompt, index, prompts[sequence][position], position, sequence, is_last=position == size - 1)
        ids: list[list[int]] = [[] for _ in prompts]
        times_s: list[float] = []
        started_s = time.perf_counter()
        drawn = self._decode(context, prompt, [size * (sequence + 1) - 1 for sequence in range(len(prompts))])
        while True:
            times_s.append(time.perf_counter() - started_s)
            for sequence, token in enumerate(drawn):
                ids[sequence].append(token)
            if len(times_s) == tokens:
                break
            for sequence, token in enumerate(drawn):
                _put(step, sequence, token, size + len(times_s) - 1, sequence, is_last=True)
            drawn = self._decode(context, step, range(len(prompts)))
        for batch in (prompt, step):
            llama_cpp.llama_batch_free(batch)
        return {"ids": ids, "times_s": times_s}

    def _decode(self, context: Any, batch: Any, rows: Sequence[int]) -> list[int]:
        """The likeliest token after each of the rows."""
        if status := llama_cpp.llama_decode(context, batch):
            raise RuntimeError(f"llama_decode gave {status}")
        logits = (llama_cpp.llama_get_logits_ith(context, row) for row in rows)
        return [int(np.ctypeslib.as_array(row, (self._vocabulary_size,)).argmax()) for row in logits]

    def _make_context(self, sequences: int) -> Any:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = sequences * _SEQUENCE_SIZE
        params.n_ubatch = _PART_SIZE
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = _THREADS
        context = llama_cpp.llama_init_from_model(self.handle, params)
        if not context:
            raise RuntimeError(f"llama.cpp makes no context for {sequences} sequences")
        return context


def _batch(tokens: int) -> Any:
    batch = llama_cpp.llama_batch_init(tokens, 0, 1)
    batch.n_tokens = tokens
    return batch


def _put(batch: Any, index: int, token: int, position: int, sequence: int, *, is_last: bool) -> None:
    batch.token[index] = token
    batch.pos[index] = position
    batch.n_seq_id[index] = 1
    batch.seq_id[index][0] = sequence
    batch.logits[index] = is_last


def main(source: str, target: str) -> None:
    llama_cpp.llama_log_set(_ignore, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    quantise(source, target)
    model = Model(target)
    about = {
        "version": llama_cpp.__version__,
        "system": llama_cpp.llama_print_system_info().decode(),
        "step_bytes": llama_cpp.llama_model_size(model.handle),
    }
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(model.answer(request["prompts"], request["tokens"])), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
