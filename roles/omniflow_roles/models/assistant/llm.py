"""The language model: a question to a streamed answer, as tokens for the caller and as whole sentences for the voice.

The two outputs run at their own pace in one stream of yields:

    yield      0        1         2        3          4
    tokens     "It"     " is"     "."      " Dr"      ".."
    passage    -        -         -        "It is. "  -          complete when the blank after the full stop has come

A caller that shows text wants every token at once; a voice can only use what is certain to be complete. Splitting it further
down would need the state of the answer there (see `splitter`). Of several completions the voice reads the first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import Value, ValueType
from omniflow_core.errors import invalid_field
from omniflow_roles.engines.requests import GenerationRequest, Piece
from omniflow_roles.engines.sampling.plan import SamplingPlan, plan_sampling
from omniflow_roles.engines.tokens import tokens_of
from omniflow_roles.models.assistant.parser import AUDIO_PATH, TEXT_PATH
from omniflow_roles.models.assistant.prompts import SYSTEM
from omniflow_roles.models.assistant.sentences import PassageBuffer

if TYPE_CHECKING:
    from omniflow_roles.models.assistant.chat_model import ChatModel

DEFAULTS = SamplingPlan(max_tokens=96)
"""Greedy; half a minute of speech."""

_ENGINE_ENV = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
"""Read once, when the libraries are imported: nothing is downloaded, and a role's standard error is a log, no terminal."""

_LONG_QUESTION = 4096
"""Characters that take 5 ms to encode. The loop serves every call of the process; a thread for each question would make
all of them wait a little for their first token."""

_TOKENS_PER_REPORT = 16
"""Progress about once a second."""


class Llm(Interface):
    """Question -> `tokens`, one yield each, and `passage`, with the yield that completes it.

    Passages are whole sentences with their white space; joined, they are the answer. Usage counts the prompt and every drawn
    token, the end token included. Raises INVALID_FIELD for a question that does not fit the model, or sampling parameters
    that it cannot follow.
    """

    name = "assistant.llm"
    inputs = groups(
        ("typed", {"text": Field(ValueType.TEXT)}),
        ("spoken", {"transcript": Field(ValueType.TEXT)}),
    )
    outputs = {"tokens": Field(ValueType.TOKENS), "passage": Field(ValueType.TEXT)}
    max_concurrency = 256
    """They are batched; those that do not fit wait in the engine, which knows best whose turn it is."""

    async def setup(self) -> None:
        """Load the model: 6 s, most of it the import of torch; half a minute more when the weights are converted."""
        for name, value in _ENGINE_ENV.items():
            os.environ.setdefault(name, value)
        self._model: ChatModel = await asyncio.to_thread(_load)
        self._model.start()
        await self._model.warm_up()

    async def teardown(self) -> None:
        await asyncio.to_thread(self._model.close)

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        plan = plan_sampling(context.sampling, vocabulary_size=self._model.vocabulary_size, defaults=DEFAULTS)
        prompt = await self._encode(inputs, plan)
        request = GenerationRequest(prompt=prompt, plan=plan, tenant=context.tenant, priority=context.priority)
        context.usage.input_tokens += len(prompt)
        context.progress(0, plan.max_tokens, f"reading {len(prompt)} tokens")
        passages = PassageBuffer()
        drawn = [0] * plan.completions
        reasons = [""] * plan.completions
        async with aclosing(self._model.generate(request)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                _count(piece, drawn, plan, context)
                reasons[piece.completion] = piece.finish_reason
                if outputs := _outputs(piece, passages):
                    yield outputs
        context.finish_reason = "length" if "length" in reasons else "stop"

    async def _encode(self, inputs: Inputs, plan: SamplingPlan) -> tuple[int, ...]:
        path, field = (TEXT_PATH, "text") if inputs.group == "typed" else (AUDIO_PATH, "transcript")
        question = str(inputs[field])
        if self._model.has_control_text(question):
            raise invalid_field(path, "the question holds a control marker of the model, such as <|im_end|>")
        if len(question) > _LONG_QUESTION:
            prompt = await asyncio.to_thread(self._model.encode_chat, SYSTEM, question)
        else:
            prompt = self._model.encode_chat(SYSTEM, question)
        room = self._model.context_size - len(prompt)
        if room < plan.max_tokens:
            raise invalid_field(
                path,
                f"the question with its {len(prompt)} tokens leaves no room for {plan.max_tokens} of an answer: "
                f"the model holds {self._model.context_size}",
            )
        return prompt


def _load() -> ChatModel:
    from omniflow_roles.models.assistant.chat_model import ChatModel

    return ChatModel.load()


def _count(piece: Piece, drawn: list[int], plan: SamplingPlan, context: Context) -> None:
    """Usage, and progress of the completion that is furthest."""
    furthest = max(drawn)
    context.usage.output_tokens += piece.drawn_count - drawn[piece.completion]
    drawn[piece.completion] = piece.drawn_count
    if piece.completion == 0:  # the others find the prompt that this one has computed
        context.usage.cached_input_tokens += piece.cached_count
    if max(drawn) // _TOKENS_PER_REPORT > furthest // _TOKENS_PER_REPORT:
        context.progress(max(drawn), plan.max_tokens, "answering")


def _outputs(piece: Piece, passages: PassageBuffer) -> Outputs:
    """What there is of a yield; a declared output that is left out is skipped."""
    outputs: dict[str, Value] = {}
    if piece.ids or piece.text:
        outputs["tokens"] = tokens_of(piece)
    if piece.completion == 0:
        passage = passages.push(piece.text)
        if piece.finish_reason:
            passage += passages.flush()
        if passage:
            outputs["passage"] = passage
    return outputs
