"""The assistant's language model, loaded: its chat template, and the engine that answers.

encode_chat(system, user) -> prompt ids          generate(request) -> pieces of the answer
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any, Self

import torch

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.requests import GenerationRequest, Piece
from omniflow_roles.engines.sampling.plan import SamplingPlan
from omniflow_roles.engines.torch.compose import EngineSettings, make_engine
from omniflow_roles.engines.torch.engine import Engine
from omniflow_roles.engines.torch.linears import quantise_linears
from omniflow_roles.models.assistant import checkpoint

_THREADS = "1"
"""Two threads gain a third on an idle two-core machine and lose four fifths when anything else runs there: they wait for
each other at every layer. The voice and the control plane always run."""


WEIGHTS_VARIABLE = "OMNIFLOW_ASSISTANT_WEIGHTS"
_WEIGHTS = ("float32", "int8")
"""The first is the default: greedy answers then do not depend on what else is computed or kept. int8 takes 38 ms a token on
one core against 62, and rounds its activations: a difference in the last bit of a sum can turn a token."""


class ChatModel:
    """Tokenizer and engine of one model. `start` and `close` from one thread, the rest from any."""

    def __init__(self, model: Any, tokenizer: Any, settings: EngineSettings | None = None) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.engine: Engine = make_engine(model, tokenizer, settings)
        self._control_texts = frozenset(tokenizer.get_added_vocab())
        self.vocabulary_size: int = model.config.vocab_size
        self.context_size: int = model.config.max_position_embeddings
        """Most tokens of prompt and answer together."""

    @classmethod
    def load(cls) -> Self:
        """The installed checkpoint; see `checkpoint`. Raises INVALID_CONFIG when there is none, or for unknown weights."""
        weights = os.environ.get(WEIGHTS_VARIABLE) or _WEIGHTS[0]
        if weights not in _WEIGHTS:
            raise OmniFlowError(
                Reason.INVALID_CONFIG, f"{WEIGHTS_VARIABLE} is {weights!r}; it is one of {', '.join(_WEIGHTS)}"
            )
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", _THREADS)))
        model, tokenizer = checkpoint.load(checkpoint.gguf_file(), checkpoint.cache_root())
        if weights == "int8":
            quantise_linears(model)
        return cls(model, tokenizer)

    def start(self) -> None:
        self.engine.start()

    def close(self) -> None:
        self.engine.close()

    def has_control_text(self, text: str) -> bool:
        """Whether the text holds one of the markers that structure a prompt, such as <|im_end|>."""
        return any(marker in text for marker in self._control_texts)

    def encode_chat(self, system: str, user: str) -> tuple[int, ...]:
        """Token ids of the model's chat template for one user turn."""
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        encoded = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
        return tuple(encoded["input_ids"])

    def generate(self, request: GenerationRequest) -> AsyncIterator[Piece]:
        """Pieces of the answer; see `Engine.generate`."""
        return self.engine.generate(request)

    async def warm_up(self) -> None:
        """Draws one token, so that the first caller does not wait for what is made on first use."""
        request = GenerationRequest(prompt=self.encode_chat("", "Hello"), plan=SamplingPlan(max_tokens=1))
        async for _ in self.generate(request):
            pass
