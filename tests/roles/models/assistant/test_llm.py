"""The language model with its real weights."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from omniflow.interface import Context, Inputs, Sampling
from omniflow.testing import InterfaceRun, run_interface
from omniflow.values import Tokens
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.models.assistant.llm import Llm
from omniflow_roles.models.assistant.prompts import SPOKEN_QUESTION, SYSTEM, TYPED_QUESTION

if TYPE_CHECKING:
    from omniflow_roles.engines.torch.engine import EngineLoad

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(300)]

ODD_QUESTION = "Repeat exactly: 你好 🙂 naïve café"


class PlainModel:
    """The same weights in `generate()`. The engine replaces the attention of its own copy."""

    def __init__(self) -> None:
        from omniflow_roles.models.assistant import checkpoint

        self._model, tokenizer = checkpoint.load(checkpoint.gguf_file(), checkpoint.cache_root())
        self._tokenizer: Any = tokenizer

    def answer(self, question: str, max_tokens: int) -> tuple[list[int], str]:
        """Ids and text of the greedy answer, without an end token."""
        prompt = self._encode(question)
        generated = self._model.generate(**prompt, do_sample=False, max_new_tokens=max_tokens)
        drawn = generated[0, prompt["input_ids"].shape[1] :].tolist()
        found = [token for token in drawn if token != self._tokenizer.eos_token_id]
        return found, self._tokenizer.decode(found)

    def logprobs(self, question: str, ids: Sequence[int]) -> list[list[float]]:
        """For each token of an answer the log-probabilities of the whole vocabulary at its place."""
        import torch

        prompt = self._encode(question)["input_ids"]
        with torch.inference_mode():
            logits = self._model(torch.cat([prompt, torch.tensor([list(ids)])], dim=1)).logits[0]
        found: list[list[float]] = logits[prompt.shape[1] - 1 : -1].log_softmax(dim=-1).tolist()
        return found

    def _encode(self, question: str) -> Any:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        return self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )


@pytest.fixture(scope="module")
def plain() -> PlainModel:
    return PlainModel()


def all_tokens(run: InterfaceRun) -> list[Tokens]:
    return [found for outputs in run.yields if isinstance(found := outputs.get("tokens"), Tokens)]


def ids(run: InterfaceRun) -> list[int]:
    return [token for tokens in all_tokens(run) for token in tokens.ids]


def text(run: InterfaceRun) -> str:
    return "".join(tokens.text for tokens in all_tokens(run))


async def ask(llm: Llm, question: str = TYPED_QUESTION, **sampling: Any) -> InterfaceRun:
    return await run_interface(llm, text=question, sampling=Sampling(**sampling))


def running(llm: Llm) -> Any:
    """A long answer that has not been begun."""
    context = Context(call_id="c", activation_id=1, node="llm", sampling=Sampling(max_tokens=2_000))
    return llm.run(Inputs("typed", {"text": (TYPED_QUESTION,)}), context)


async def load_between_steps(llm: Llm) -> EngineLoad:
    """What the engine has to do, as its thread sees it when everything that was sent to it has been taken in."""
    engine, found = llm._model.engine, []
    await engine.between_steps(lambda: found.append(engine.load()))
    return found[0]


async def test_llm_greedy_tokens_are_those_of_a_plain_generate(llm: Llm, plain: PlainModel) -> None:
    run = await ask(llm, temperature=0.0, max_tokens=64)
    expected_ids, expected_text = plain.answer(TYPED_QUESTION, 64)
    assert ids(run) == expected_ids
    assert text(run) == expected_text
    assert run.text("passage") == expected_text
    assert run.finish_reason == "stop"
    assert run.usage.output_tokens == len(expected_ids) + 1


async def test_llm_text_is_whole_where_characters_span_tokens(llm: Llm, plain: PlainModel) -> None:
    run = await ask(llm, ODD_QUESTION, max_tokens=24)
    assert (ids(run), text(run)) == plain.answer(ODD_QUESTION, 24)


async def test_llm_several_calls_at_once_give_the_answers_that_they_give_one_by_one(llm: Llm) -> None:
    questions = (TYPED_QUESTION, SPOKEN_QUESTION, ODD_QUESTION, "Why is the sky blue?", TYPED_QUESTION)
    alone = [ids(await ask(llm, question, max_tokens=20)) for question in questions]
    together = await asyncio.gather(*(ask(llm, question, max_tokens=20) for question in questions))
    assert [ids(run) for run in together] == alone


async def test_llm_asked_again_finds_its_prompt_computed(llm: Llm) -> None:
    first, second = [await ask(llm, "What is a very old tree?", max_tokens=4) for _ in range(2)]
    assert first.usage.cached_input_tokens < second.usage.cached_input_tokens < second.usage.input_tokens
    assert ids(first) == ids(second)


async def test_llm_stops_at_max_tokens(llm: Llm) -> None:
    run = await ask(llm, max_tokens=5)
    assert (len(ids(run)), run.usage.output_tokens, run.finish_reason) == (5, 5, "length")


async def test_llm_stop_text_ends_the_greedy_answer_early(llm: Llm) -> None:
    run = await ask(llm, max_tokens=64, stop=("creative",))
    assert text(run) == "Music is a form of "
    assert run.finish_reason == "stop"


async def test_llm_same_seed_draws_the_same(llm: Llm) -> None:
    first, second, other = [await ask(llm, temperature=1.0, seed=seed, max_tokens=16) for seed in (7, 7, 8)]
    assert ids(first) == ids(second) != ids(other)


async def test_llm_top_k_of_one_is_greedy(llm: Llm) -> None:
    drawn, greedy = await ask(llm, temperature=1.0, top_k=1, max_tokens=8), await ask(llm, max_tokens=8)
    assert ids(drawn) == ids(greedy)


@pytest.mark.parametrize("narrow", [{"top_p": 1e-6}, {"min_p": 1.0}])
async def test_llm_narrow_draws_are_greedy(llm: Llm, narrow: dict[str, Any]) -> None:
    assert ids(await ask(llm, temperature=1.5, max_tokens=8, **narrow)) == ids(await ask(llm, max_tokens=8))


async def test_llm_bias_keeps_a_token_out(llm: Llm) -> None:
    banned = ids(await ask(llm, max_tokens=8))[0]
    assert banned not in ids(await ask(llm, max_tokens=8, logit_bias={banned: -100.0}))


async def test_llm_completions_are_told_apart_and_the_voice_reads_the_first(llm: Llm) -> None:
    run = await ask(llm, temperature=1.0, seed=7, max_tokens=16, completions=3)
    by_completion: defaultdict[int, list[int]] = defaultdict(list)
    for tokens in all_tokens(run):
        by_completion[tokens.completion].extend(tokens.ids)
    assert sorted(by_completion) == [0, 1, 2]
    assert len({tuple(found) for found in by_completion.values()}) == 3
    assert by_completion[0] == ids(await ask(llm, temperature=1.0, seed=7, max_tokens=16))
    assert run.text("passage") == "".join(tokens.text for tokens in all_tokens(run) if tokens.completion == 0)


async def test_llm_log_probabilities_are_those_of_the_plain_model(llm: Llm, plain: PlainModel) -> None:
    run = await ask(llm, max_tokens=8, top_logprobs=3)
    places = plain.logprobs(TYPED_QUESTION, ids(run))
    for tokens, expected in zip(all_tokens(run), places, strict=True):
        (token,), (logprob,), (top,) = tokens.ids, tokens.logprobs, tokens.alternatives
        likeliest = sorted(range(len(expected)), key=expected.__getitem__, reverse=True)[:3]
        assert logprob == pytest.approx(expected[token], abs=1e-3)
        assert [alternative for alternative, _ in top] == likeliest
        assert [value for _, value in top] == pytest.approx([expected[index] for index in likeliest], abs=1e-3)


async def test_llm_answer_follows_a_json_schema(llm: Llm) -> None:
    colours = ["red", "green", "blue"]
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": colours}, "is_warm": {"type": "boolean"}},
        "required": ["colour", "is_warm"],
        "additionalProperties": False,
    }
    run = await ask(llm, "Which colour has the sky?", max_tokens=64, json_schema=json.dumps(schema))
    found = json.loads(text(run))
    assert found.keys() == {"colour", "is_warm"}
    assert found["colour"] in colours
    assert isinstance(found["is_warm"], bool)
    assert run.finish_reason == "stop"


async def test_llm_refuses_a_schema_that_it_cannot_follow(llm: Llm) -> None:
    with pytest.raises(OmniFlowError) as caught:
        await ask(llm, json_schema='{"type": "no type"}')
    assert caught.value.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in caught.value.violations] == ["call.sampling.json_schema"]


async def test_llm_cancelled_stops_within_one_step(llm: Llm) -> None:
    has_begun = asyncio.Event()

    async def read() -> None:
        async for _ in running(llm):
            has_begun.set()

    reading = asyncio.create_task(read())
    await has_begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    steps = llm._model.engine.load().steps
    load = await load_between_steps(llm)
    assert load.steps <= steps + 1
    assert (load.running, load.waiting) == (0, 0)


async def test_llm_left_iterator_ends_its_work(llm: Llm) -> None:
    answer = running(llm)
    await anext(answer)
    assert (await load_between_steps(llm)).running == 1
    await answer.aclose()
    load = await load_between_steps(llm)
    assert (load.running, load.waiting) == (0, 0)
    assert ids(await ask(llm, max_tokens=3))


async def test_llm_engine_errors_are_not_swallowed(llm: Llm, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of order")

    before = ids(await ask(llm, max_tokens=3))
    with monkeypatch.context() as patched:
        patched.setattr(llm._model.engine._executor._runner, "forward", fail)  # type: ignore[attr-defined]
        with pytest.raises(OmniFlowError) as caught:
            await ask(llm, max_tokens=3)
    assert caught.value.reason is Reason.INTERNAL
    assert "out of order" not in caught.value.message
    assert ids(await ask(llm, max_tokens=3)) == before
