"""A Hugging Face causal model that gives tokens one by one: `generate()` in a thread, its streamer at this end.

    caller's thread                       thread "generate"
    for token in model.stream(...):   ◀── streamer.put ◀── generate() ── asks is_cancelled after every token

`generate()` can only push, an interface's generator is pulled, hence the thread; it ends with the iterator, by itself or
within one token. One generation runs at a time: torch's random state is the process's, and two would only share the core.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import torch
from tokenizers.decoders import DecodeStream  # type: ignore[import-not-found]
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from omniflow_roles.models.assistant import checkpoint
from omniflow_roles.models.assistant.penalties import OutputPenalties
from omniflow_roles.models.assistant.sampling import SamplingPlan

_THREADS = "1"
"""Two threads gain a third on an idle two-core machine (18 against 13 tokens/s) and lose four fifths when anything else
runs there (2 to 4 tokens/s): they wait for each other at every layer. The voice and the control plane always run."""


class TextModel:
    """Model and tokenizer. Methods may be called from any thread."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._one_at_a_time = threading.Lock()
        self._control_texts = frozenset(tokenizer.get_added_vocab())
        self.end_token_ids: frozenset[int] = frozenset({tokenizer.eos_token_id})
        self.vocabulary_size: int = model.config.vocab_size
        self.context_size: int = model.config.max_position_embeddings
        """Most tokens of prompt and answer together."""

    @classmethod
    def load(cls) -> TextModel:
        """The installed checkpoint; see `checkpoint`. Raises INVALID_CONFIG when there is none."""
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", _THREADS)))
        return cls(*checkpoint.load(checkpoint.gguf_file(), checkpoint.cache_root()))

    def has_control_text(self, text: str) -> bool:
        """Whether the text holds one of the markers that structure a prompt, such as <|im_end|>."""
        return any(marker in text for marker in self._control_texts)

    def encode_chat(self, system: str, user: str) -> list[int]:
        """Token ids of the model's chat template for one user turn."""
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        encoded = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
        return list(encoded["input_ids"])

    def decoder(self) -> Callable[[int], str]:
        """A function from the answer's tokens, in order, to their text; "" while a character is incomplete."""
        stream, backend = DecodeStream(skip_special_tokens=True), self._tokenizer.backend_tokenizer
        return lambda token: stream.step(backend, token) or ""

    def stream(self, prompt: Sequence[int], plan: SamplingPlan, is_cancelled: Callable[[], bool]) -> Iterator[int]:
        """Tokens of the answer as they are drawn, an end token included. Leaving the iterator ends the generation."""
        with self._one_at_a_time:
            run = _Generation(self._model, prompt, plan, self.end_token_ids, is_cancelled)
            thread = threading.Thread(target=run.main, name="generate", daemon=True)
            thread.start()
            try:
                yield from run
            finally:
                run.is_left = True
                thread.join()

    def warm_up(self) -> None:
        """Draw one token, so that the first caller does not wait for what is made on first use."""
        for _ in self.stream(self.encode_chat("", "Hello"), SamplingPlan(max_tokens=1), lambda: False):
            pass


class _Generation:
    """One run of `generate()`: the thread's main function, and the iterator over what it draws."""

    def __init__(
        self,
        model: Any,
        prompt: Sequence[int],
        plan: SamplingPlan,
        end_token_ids: frozenset[int],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._model = model
        self._prompt = torch.tensor([list(prompt)])
        self._plan = plan
        self._end_token_ids = end_token_ids
        self._is_cancelled = is_cancelled
        self.is_left = False
        # Not bounded by itself but by max_tokens: a few bytes a token, and a reader that leaves blocks nobody.
        self._drawn: SimpleQueue[int | None] = SimpleQueue()
        self._error: BaseException | None = None

    def __iter__(self) -> Iterator[int]:
        while (token := self._drawn.get()) is not None:
            yield token
        if self._error is not None:
            raise self._error

    def main(self) -> None:
        """Runs in the thread; `None` is its last word."""
        try:
            self._seed()
            self._model.generate(
                self._prompt,
                attention_mask=torch.ones_like(self._prompt),
                generation_config=self._config(),
                logits_processor=LogitsProcessorList(self._processors()),
                stopping_criteria=StoppingCriteriaList([_Stop(self)]),
                streamer=_Streamer(self._drawn),
            )
        except BaseException as error:  # raised again where it can be reported
            self._error = error
        finally:
            self._drawn.put(None)

    @property
    def is_unwanted(self) -> bool:
        return self.is_left or self._is_cancelled()

    def _seed(self) -> None:
        if self._plan.is_greedy:
            return
        if self._plan.seed is None:
            torch.seed()
        else:
            torch.manual_seed(self._plan.seed)

    def _config(self) -> GenerationConfig:
        plan = self._plan
        draw = (
            {}
            if plan.is_greedy
            else {
                "temperature": plan.temperature,
                "top_p": plan.top_p,
                "top_k": plan.top_k,
                "min_p": plan.min_p,
            }
        )
        ends = sorted(self._end_token_ids)
        return GenerationConfig(
            max_new_tokens=plan.max_tokens,
            do_sample=not plan.is_greedy,
            repetition_penalty=plan.repetition_penalty,
            eos_token_id=ends + [token for token in plan.stop_token_ids if token not in self._end_token_ids],
            pad_token_id=ends[0],
            **draw,
        )

    def _processors(self) -> list[Any]:
        plan = self._plan
        if not (plan.frequency_penalty or plan.presence_penalty or plan.logit_bias):
            return []
        return [
            OutputPenalties(
                prompt_size=self._prompt.shape[1],
                frequency=plan.frequency_penalty,
                presence=plan.presence_penalty,
                bias=plan.logit_bias,
            )
        ]


class _Streamer(BaseStreamer):  # type: ignore[misc]
    """Puts every drawn token into a queue. The first thing that `generate` streams is the prompt."""

    def __init__(self, drawn: SimpleQueue[int | None]) -> None:
        self._drawn = drawn
        self._has_seen_prompt = False

    def put(self, value: torch.Tensor) -> None:
        if self._has_seen_prompt:
            for token in value.flatten().tolist():
                self._drawn.put(token)
        self._has_seen_prompt = True

    def end(self) -> None:
        """`main` says when it has ended, also when it failed."""


class _Stop(StoppingCriteria):  # type: ignore[misc]
    """Asked after every token."""

    def __init__(self, generation: _Generation) -> None:
        self._generation = generation

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.full((input_ids.shape[0],), self._generation.is_unwanted)
