"""The language model: a question to a streamed answer, as tokens for the caller and as whole sentences for the voice.

The two outputs run at their own pace in one stream of yields:

    yield      0        1         2        3          4
    tokens     "It"     " is"     "."      " Dr"      ".."
    passage    -        -         -        "It is. "  -          complete when the blank after the full stop has come

A caller that shows text wants every token at once; a voice can only use what is certain to be complete. Splitting it further
down would need the state of the answer there (see `splitter`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import Tokens, Value, ValueType
from omniflow_core.errors import invalid_field
from omniflow_roles.models.assistant.parser import AUDIO_PATH, TEXT_PATH
from omniflow_roles.models.assistant.prompts import SYSTEM
from omniflow_roles.models.assistant.sampling import SamplingPlan, plan_sampling
from omniflow_roles.models.assistant.sentences import PassageBuffer
from omniflow_roles.models.assistant.stop_texts import StopTexts

if TYPE_CHECKING:
    from omniflow_roles.models.assistant.text_model import TextModel

_ENGINE_ENV = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
"""Read once, when the libraries are imported: nothing is downloaded, and a role's standard error is a log, no terminal."""

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

    def setup(self) -> None:
        """Load the model: 6 s, most of it the import of torch; half a minute more when the weights are converted."""
        for name, value in _ENGINE_ENV.items():
            os.environ.setdefault(name, value)
        from omniflow_roles.models.assistant.text_model import TextModel

        self._model: TextModel = TextModel.load()
        self._model.warm_up()

    def run(self, inputs: Inputs, context: Context) -> Iterator[Outputs]:
        plan = plan_sampling(context.sampling, vocabulary_size=self._model.vocabulary_size)
        prompt = self._encode(inputs, plan)
        context.usage.input_tokens += len(prompt)
        context.progress(0, plan.max_tokens, f"reading {len(prompt)} tokens")
        answer = _Answer(self._model, plan)
        for token in self._model.stream(prompt, plan, lambda: context.is_cancelled):
            context.usage.output_tokens += 1
            if not context.usage.output_tokens % _TOKENS_PER_REPORT:
                context.progress(context.usage.output_tokens, plan.max_tokens, "answering")
            if outputs := answer.take(token):
                yield outputs
            if answer.has_stopped:
                break
        if outputs := answer.finish():
            yield outputs
        context.finish_reason = "stop" if answer.has_stopped else "length"

    def _encode(self, inputs: Inputs, plan: SamplingPlan) -> list[int]:
        path, field = (TEXT_PATH, "text") if inputs.group == "typed" else (AUDIO_PATH, "transcript")
        question = str(inputs[field])
        if self._model.has_control_text(question):
            raise invalid_field(path, "the question holds a control marker of the model, such as <|im_end|>")
        prompt = self._model.encode_chat(SYSTEM, question)
        room = self._model.context_size - len(prompt)
        if room < plan.max_tokens:
            raise invalid_field(
                path,
                f"the question with its {len(prompt)} tokens leaves no room for {plan.max_tokens} of an answer: "
                f"the model holds {self._model.context_size}",
            )
        return prompt


class _Answer:
    """From drawn tokens to the outputs of yields."""

    def __init__(self, model: TextModel, plan: SamplingPlan) -> None:
        self._decode = model.decoder()
        self._ends = model.end_token_ids | frozenset(plan.stop_token_ids)
        self._stops = StopTexts(plan.stop)
        self._passages = PassageBuffer()
        self._held_ids: list[int] = []
        self.has_stopped = False
        """By an end token or a stop text, and not because there were enough tokens."""

    def take(self, token: int) -> Outputs:
        """Outputs that the token completes; none for an end token and while a stop text may be coming."""
        if token in self._ends:
            self.has_stopped = True
            return {}
        self._held_ids.append(token)
        text = self._stops.push(self._decode(token))
        self.has_stopped = self._stops.has_stopped
        if self.has_stopped:
            self._held_ids.clear()  # they spell the stop text
        ids = () if self._stops.is_holding else self._release_ids()
        return _outputs(ids, text, self._passages.push(text))

    def finish(self) -> Outputs:
        """Outputs of what is still held, when no more tokens come."""
        text = self._stops.flush()
        passage = self._passages.push(text) + self._passages.flush()
        return _outputs(self._release_ids(), text, passage)

    def _release_ids(self) -> tuple[int, ...]:
        ids, self._held_ids = tuple(self._held_ids), []
        return ids


def _outputs(ids: tuple[int, ...], text: str, passage: str) -> Outputs:
    """What there is of a yield; a declared output that is left out is skipped."""
    outputs: dict[str, Value] = {}
    if ids or text:
        outputs["tokens"] = Tokens(ids=ids, text=text)
    if passage:
        outputs["passage"] = passage
    return outputs
