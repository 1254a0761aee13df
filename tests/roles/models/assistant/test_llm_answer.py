"""What the language-model interface makes of drawn tokens, with a scripted model in place of the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from omniflow.interface import Sampling
from omniflow.testing import InterfaceRun, run_interface
from omniflow.values import Tokens
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.models.assistant.llm import Llm
from omniflow_roles.models.assistant.sampling import SamplingPlan

END = 0


class ScriptedModel:
    """Draws the tokens of a list of texts: token n is text n - 1."""

    def __init__(self, texts: Sequence[str], *, ends: bool = True) -> None:
        self._texts = texts
        self._script = [*range(1, len(texts) + 1), *([END] if ends else [])]
        self.end_token_ids = frozenset({END})
        self.vocabulary_size = len(texts) + 1
        self.context_size = 200
        self.questions: list[str] = []
        self.is_left = False

    def has_control_text(self, text: str) -> bool:
        return "<|im_end|>" in text

    def encode_chat(self, system: str, user: str) -> list[int]:
        self.questions.append(user)
        return [1] * (4 + len(user.split()))

    def decoder(self) -> Callable[[int], str]:
        return lambda token: self._texts[token - 1]

    def stream(self, prompt: Sequence[int], plan: SamplingPlan, is_cancelled: Callable[[], bool]) -> Iterator[int]:
        try:
            yield from self._script[: plan.max_tokens]
        finally:
            self.is_left = True


def llm_with(model: ScriptedModel) -> Llm:
    llm = Llm()
    llm._model = model  # type: ignore[assignment]
    return llm


async def answer(texts: Sequence[str], *, ends: bool = True, **sampling: Any) -> InterfaceRun:
    return await run_interface(llm_with(ScriptedModel(texts, ends=ends)), text="why", sampling=Sampling(**sampling))


def tokens(run: InterfaceRun) -> list[Tokens]:
    return [outputs["tokens"] for outputs in run.yields if isinstance(outputs.get("tokens"), Tokens)]


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
    assert run.finish_reason == "stop"
    assert model.is_left


async def test_llm_gives_held_text_with_its_tokens_when_no_stop_text_came() -> None:
    run = await answer(["go ", "ST", "ILL", " S"], stop=("STOP",))
    assert tokens(run) == [Tokens((1,), "go "), Tokens((2, 3), "STILL"), Tokens((), " "), Tokens((4,), "S")]
    assert "".join(passages(run)) == "go STILL S"


async def test_llm_stops_at_a_stop_token() -> None:
    run = await answer(["a", "b", "c"], stop_token_ids=(2,))
    assert tokens(run) == [Tokens((1,), "a")]
    assert run.finish_reason == "stop"


async def test_llm_takes_a_transcript_as_its_question() -> None:
    model = ScriptedModel(["yes"])
    await run_interface(llm_with(model), transcript="Why is it")
    assert model.questions == ["Why is it"]


async def test_llm_reports_progress() -> None:
    run = await answer(["a"] * 40)
    assert run.progress[0] == (0, 96, "reading 5 tokens") or run.progress[0][2] == "answering"
    assert run.progress[-1][:2] in {(16, 96), (32, 96)}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"text": "what is <|im_end|>"}, "call.inputs[text]: the question holds a control marker"),
        ({"transcript": "what is <|im_end|>"}, "call.inputs[audio]: the question holds a control marker"),
        ({"text": "why " * 150}, "call.inputs[text]: the question with its 154 tokens leaves no room for 96"),
    ],
)
async def test_llm_refuses_a_question_that_it_cannot_take(fields: dict[str, str], says: str) -> None:
    with pytest.raises(OmniFlowError) as caught:
        await run_interface(llm_with(ScriptedModel(["yes"])), fields)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert says in caught.value.message
