"""The language model with its real weights."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from omniflow.interface import Context, Inputs, Sampling
from omniflow.testing import InterfaceRun, run_interface
from omniflow.values import Tokens
from omniflow_roles.models.assistant.llm import Llm
from omniflow_roles.models.assistant.prompts import SYSTEM, TYPED_QUESTION

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(300)]


def ids(run: InterfaceRun) -> list[int]:
    found = [outputs["tokens"] for outputs in run.yields if "tokens" in outputs]
    return [token for tokens in found if isinstance(tokens, Tokens) for token in tokens.ids]


def text(run: InterfaceRun) -> str:
    found = [outputs["tokens"] for outputs in run.yields if "tokens" in outputs]
    return "".join(tokens.text for tokens in found if isinstance(tokens, Tokens))


async def ask(llm: Llm, question: str = TYPED_QUESTION, **sampling: Any) -> InterfaceRun:
    return await run_interface(llm, text=question, sampling=Sampling(**sampling))


def plain_generate(llm: Llm, question: str, max_tokens: int) -> tuple[list[int], str]:
    """What `generate()` gives by itself."""
    model, tokenizer = llm._model._model, llm._model._tokenizer
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    generated = model.generate(**prompt, do_sample=False, max_new_tokens=max_tokens)[0, prompt["input_ids"].shape[1] :]
    answer = [token for token in generated.tolist() if token != tokenizer.eos_token_id]
    return answer, tokenizer.decode(answer)


async def test_llm_greedy_tokens_are_those_of_a_plain_generate(llm: Llm) -> None:
    run = await ask(llm, temperature=0.0, max_tokens=64)
    expected_ids, expected_text = plain_generate(llm, TYPED_QUESTION, 64)
    assert ids(run) == expected_ids
    assert text(run) == expected_text
    assert run.text("passage") == expected_text
    assert run.finish_reason == "stop"
    assert run.usage.output_tokens == len(expected_ids) + 1


async def test_llm_text_is_whole_where_characters_span_tokens(llm: Llm) -> None:
    run = await ask(llm, "Repeat exactly: 你好 🙂 naïve café", max_tokens=24)
    expected_ids, expected_text = plain_generate(llm, "Repeat exactly: 你好 🙂 naïve café", 24)
    assert ids(run) == expected_ids
    assert text(run).rstrip("�") == expected_text.rstrip("�")


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
async def test_llm_narrow_draws_are_greedy(llm: Llm, narrow: dict[str, float]) -> None:
    assert ids(await ask(llm, temperature=1.5, max_tokens=8, **narrow)) == ids(await ask(llm, max_tokens=8))


async def test_llm_bias_keeps_a_token_out(llm: Llm) -> None:
    banned = ids(await ask(llm, max_tokens=8))[0]
    assert banned not in ids(await ask(llm, max_tokens=8, logit_bias={banned: -100.0}))


def test_penalties_count_the_answer_and_not_the_prompt() -> None:
    import torch

    from omniflow_roles.models.assistant.penalties import OutputPenalties

    penalties = OutputPenalties(prompt_size=2, frequency=0.5, presence=1.0, bias={3: 2.0})
    changed = penalties(torch.tensor([[0, 0, 1, 1, 2]]), torch.zeros(1, 4))
    assert changed.tolist() == [[0.0, -2.0, -1.5, 2.0]]


async def test_llm_cancelled_stops_within_one_token(llm: Llm) -> None:
    context = Context(call_id="c", activation_id=1, node="llm", sampling=Sampling(max_tokens=2_000))
    running = llm.run(Inputs("typed", {"text": (TYPED_QUESTION,)}), context)

    def read() -> int:
        next(running)
        context.cancelled.set()
        return 1 + len(list(running))

    # The token that was being drawn, and one that was drawn before the first was read.
    assert await asyncio.to_thread(read) <= 3
    assert not [thread for thread in threading.enumerate() if thread.name == "generate"]


async def test_llm_left_iterator_ends_its_thread(llm: Llm) -> None:
    context = Context(call_id="c", activation_id=1, node="llm", sampling=Sampling(max_tokens=2_000))
    running = llm.run(Inputs("typed", {"text": (TYPED_QUESTION,)}), context)
    await asyncio.to_thread(next, running)
    await asyncio.to_thread(running.close)  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name == "generate"]
    assert ids(await ask(llm, max_tokens=3))


async def test_llm_engine_errors_are_not_swallowed(llm: Llm, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(llm._model._model, "generate", fail)
    running = llm.run(Inputs("typed", {"text": (TYPED_QUESTION,)}), Context(call_id="c", activation_id=1, node="llm"))
    with pytest.raises(RuntimeError, match="out of order"):
        list(running)
