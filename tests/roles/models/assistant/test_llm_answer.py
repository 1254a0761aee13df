"""What the language-model interface makes of an engine's pieces, with a scripted model in place of the real one."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from omniflow.interface import Context, Inputs, Sampling
from omniflow.testing import InterfaceRun, run_interface
from omniflow.values import Tokens
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.requests import GenerationRequest, Piece, TokenLogprob
from omniflow_roles.engines.torch.completion import Completion
from omniflow_roles.models.assistant.llm import Llm

END = 0
TOP = ((7, -0.25), (8, -1.5), (9, -2.0))
"""The likeliest tokens, wherever they are asked for."""


class ScriptedModel:
    """Draws the tokens of a list of texts: token n is text n - 1. Every completion draws the same, in turns."""

    def __init__(self, texts: Sequence[str], *, ends: bool = True, cached: Mapping[int, int] | None = None) -> None:
        self._texts = texts
        self._script = [*range(1, len(texts) + 1), *([END] if ends else [])]
        self._cached = cached or {}
        """Tokens of the prompt, by completion."""
        self.vocabulary_size = len(texts) + 1
        self.context_size = 200
        self.questions: list[str] = []
        self.encoded_in: list[threading.Thread] = []
        self.requests: list[GenerationRequest] = []
        self.is_left = False

    def has_control_text(self, text: str) -> bool:
        return "<|im_end|>" in text

    def encode_chat(self, system: str, user: str) -> tuple[int, ...]:
        self.questions.append(user)
        self.encoded_in.append(threading.current_thread())
        return (1,) * (4 + len(user.split()))

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Piece]:
        self.requests.append(request)
        completions = [self._completion(request, index) for index in range(request.plan.completions)]
        try:
            for token in self._script:
                for completion in completions:
                    if not completion.has_ended and (piece := completion.take(token, _logprob(token, request))):
                        cached_count = self._cached.get(piece.completion, 0) if piece.finish_reason else 0
                        yield dataclasses.replace(piece, cached_count=cached_count)
        finally:
            self.is_left = True

    def _completion(self, request: GenerationRequest, index: int) -> Completion:
        return Completion(
            sequence_id=index + 1,
            index=index,
            request=request,
            draw_key=0,
            decode=lambda token: self._texts[token - 1],
            flush=lambda: "",
            end_token_ids=frozenset({END}),
            constraint=None,
        )


def _logprob(token: int, request: GenerationRequest) -> TokenLogprob | None:
    count = request.plan.top_logprobs
    return None if count is None else TokenLogprob(token=token, logprob=-token / 8, top=TOP[:count])


def llm_with(model: ScriptedModel) -> Llm:
    llm = Llm()
    llm._model = model  # type: ignore[assignment]
    return llm


async def answer(texts: Sequence[str], *, ends: bool = True, **sampling: Any) -> InterfaceRun:
    return await run_interface(llm_with(ScriptedModel(texts, ends=ends)), text="why", sampling=Sampling(**sampling))


def tokens(run: InterfaceRun) -> list[Tokens]:
    return [found for outputs in run.yields if isinstance(found := outputs.get("tokens"), Tokens)]


def passages(run: InterfaceRun) -> list[str]:
    return [str(outputs["passage"]) for outputs in run.yields if "passage" in outputs]


async def test_llm_yields_every_token_and_passages_when_they_are_complete() -> None:
    run = await answer(["It", " is", ".", " So", " be"])
    assert run.yields == (
        {"tokens": Tokens((1,), "It")},
        {"tokens": Tokens((2,), " is")},
        {"tokens": Tokens((3,), ".")},
        {"tokens": Tokens((4,), " So"), "passage": "It is. "},
        {"tokens": Tokens((5,), " be")},
        {"passage": "So be"},
    )
    assert (run.finish_reason, run.usage.input_tokens, run.usage.output_tokens) == ("stop", 5, 6)


async def test_llm_yields_a_token_without_text_inside_a_character() -> None:
    run = await answer(["", "é"])
    assert tokens(run) == [Tokens((1,), ""), Tokens((2,), "é")]


async def test_llm_without_sampling_parameters_is_greedy_and_has_a_default_length() -> None:
    model = ScriptedModel(["yes"])
    await run_interface(llm_with(model), text="why")
    (request,) = model.requests
    assert request.plan.is_greedy
    assert (request.plan.max_tokens, request.plan.completions, request.plan.top_logprobs) == (96, 1, None)


async def test_llm_asks_the_engine_for_the_calls_tenant_with_its_priority() -> None:
    model = ScriptedModel(["yes"])
    context = Context(call_id="c", activation_id=1, node="llm", tenant="acme", priority=3)
    async with aclosing(llm_with(model).run(Inputs("typed", {"text": ("why",)}), context)) as running:  # type: ignore[type-var]
        assert [outputs async for outputs in running]
    (request,) = model.requests
    assert (request.tenant, request.priority, request.prompt) == ("acme", 3, (1,) * 5)


async def test_llm_that_is_given_enough_tokens_ends_for_length() -> None:
    run = await answer(["a", "b", "c"], max_tokens=2)
    assert run.finish_reason == "length"
    assert [token.text for token in tokens(run)] == ["a", "b"]
    assert passages(run) == ["ab"]


async def test_llm_stops_at_a_stop_text_and_keeps_it_out_of_both_outputs() -> None:
    model = ScriptedModel(["It", " is", " ST", "OP", " more"])
    run = await run_interface(llm_with(model), text="why", sampling=Sampling(stop=("STOP",)))
    assert tokens(run) == [Tokens((1,), "It"), Tokens((2,), " is"), Tokens((), " ")]
    assert passages(run) == ["It is "]
    assert (run.finish_reason, run.usage.output_tokens) == ("stop", 4)
    assert model.is_left


async def test_llm_gives_held_text_with_its_tokens_when_no_stop_text_came() -> None:
    run = await answer(["go ", "ST", "ILL", " S"], stop=("STOP",))
    assert tokens(run) == [Tokens((1,), "go "), Tokens((2, 3), "STILL"), Tokens((), " "), Tokens((4,), "S")]
    assert "".join(passages(run)) == "go STILL S"


async def test_llm_stops_at_a_stop_token() -> None:
    run = await answer(["a", "b", "c"], stop_token_ids=(2,))
    assert tokens(run) == [Tokens((1,), "a")]
    assert run.finish_reason == "stop"


async def test_llm_gives_several_completions_and_the_voice_reads_the_first() -> None:
    run = await answer(["It", " is"], completions=2, max_tokens=2)
    assert run.yields == (
        {"tokens": Tokens((1,), "It")},
        {"tokens": Tokens((1,), "It", completion=1)},
        {"tokens": Tokens((2,), " is"), "passage": "It is"},
        {"tokens": Tokens((2,), " is", completion=1)},
    )
    assert (run.finish_reason, run.usage.input_tokens, run.usage.output_tokens) == ("length", 5, 4)


async def test_llm_counts_as_cached_what_the_first_completion_found() -> None:
    """The others find the prompt that the first one has computed."""
    model = ScriptedModel(["yes"], cached={0: 2, 1: 4})
    run = await run_interface(llm_with(model), text="why", sampling=Sampling(completions=2))
    assert run.usage.cached_input_tokens == 2


async def test_llm_gives_log_probabilities_and_alternatives_as_asked() -> None:
    plain, alone, several = [await answer(["a", "b"], top_logprobs=count) for count in (None, 0, 2)]
    assert tokens(plain) == [Tokens((1,), "a"), Tokens((2,), "b")]
    assert tokens(alone) == [Tokens((1,), "a", (-0.125,)), Tokens((2,), "b", (-0.25,))]
    assert tokens(several) == [
        Tokens((1,), "a", (-0.125,), alternatives=(TOP[:2],)),
        Tokens((2,), "b", (-0.25,), alternatives=(TOP[:2],)),
    ]


async def test_llm_takes_a_transcript_as_its_question() -> None:
    model = ScriptedModel(["yes"])
    await run_interface(llm_with(model), transcript="Why is it")
    assert model.questions == ["Why is it"]


async def test_llm_encodes_a_long_question_off_the_loop() -> None:
    model = ScriptedModel(["yes"])
    for question in ("why", "why" * 2000):
        await run_interface(llm_with(model), text=question)
    assert [thread is threading.current_thread() for thread in model.encoded_in] == [True, False]


async def test_llm_reports_progress() -> None:
    run = await answer(["a"] * 40)
    assert run.progress == ((0, 96, "reading 5 tokens"), (16, 96, "answering"), (32, 96, "answering"))


async def test_llm_reports_the_progress_of_the_completion_that_is_furthest() -> None:
    run = await answer(["a"] * 40, completions=3, max_tokens=33)
    assert run.progress == ((0, 33, "reading 5 tokens"), (16, 33, "answering"), (32, 33, "answering"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"text": "what is <|im_end|>"}, "call.inputs[text]: the question holds a control marker"),
        ({"transcript": "what is <|im_end|>"}, "call.inputs[audio]: the question holds a control marker"),
        ({"text": "why " * 150}, "call.inputs[text]: the question with its 154 tokens leaves no room for 96"),
        ({"text": "why " * 1500}, "call.inputs[text]: the question with its 1504 tokens leaves no room for 96"),
    ],
)
async def test_llm_refuses_a_question_that_it_cannot_take(fields: dict[str, str], says: str) -> None:
    with pytest.raises(OmniFlowError) as caught:
        await run_interface(llm_with(ScriptedModel(["yes"])), fields)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert says in caught.value.message


async def test_llm_refuses_sampling_parameters_that_it_cannot_follow() -> None:
    with pytest.raises(OmniFlowError) as caught:
        await answer(["yes"], logit_bias={2: 1.0})
    assert [violation.field for violation in caught.value.violations] == ["call.sampling.logit_bias"]


async def test_llm_that_is_left_leaves_the_engine() -> None:
    model = ScriptedModel(["a", "b", "c"])
    context = Context(call_id="c", activation_id=1, node="llm")
    async with aclosing(llm_with(model).run(Inputs("typed", {"text": ("why",)}), context)) as running:  # type: ignore[type-var]
        await anext(running)
        assert not model.is_left
    assert model.is_left
