"""The engine against `generate()`: the same greedy tokens in float32, however the work is cut up and laid out."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import random
import threading
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.requests import EmbeddedSpan, GenerationRequest, Piece
from omniflow_roles.engines.sampling.plan import SamplingPlan

torch = pytest.importorskip("torch", reason="the engine runs in the assistant environment")

from omniflow_roles.engines.torch.compose import EngineSettings, make_engine  # noqa: E402
from omniflow_roles.engines.torch.engine import Engine, collect  # noqa: E402
from tests.roles.engines.torch import tiny  # noqa: E402
from tests.roles.engines.torch.tiny import answers, engine_of, generated, greedy, prompts, tiny_model  # noqa: E402

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(60)]

LAYOUTS: dict[str, dict[str, Any]] = {
    "pages of one": {"page_size": 1, "pool_tokens": 4096},
    "shuffled pages": {"page_size": 4, "pool_tokens": 4096, "page_order_seed": 7},
    "chunked prefill": {"page_size": 8, "pool_tokens": 4096, "max_step_tokens": 13},
    "preemption": {"page_size": 4, "pool_tokens": 160, "growth_tokens": 4, "page_order_seed": 3},
    "overlapped": {"page_size": 16, "pool_tokens": 4096, "is_overlapped": True},
    "overlapped preemption": {"page_size": 4, "pool_tokens": 160, "growth_tokens": 4, "is_overlapped": True},
    "few rows": {"page_size": 16, "pool_tokens": 4096, "max_rows": 3, "is_overlapped": True},
    "speculation": {"page_size": 8, "pool_tokens": 4096, "speculated_tokens": 4},
}


@functools.cache
def fifty_answers(kind: str) -> list[list[int]]:
    model = tiny_model(kind)
    return [generated(model, prompt, 24) for prompt in prompts(50)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["llama", "qwen3_moe", "deepseek_v2"])
async def test_greedy_tokens_are_those_of_generate(kind: str, layout: str) -> None:
    async with engine_of(tiny_model(kind), **LAYOUTS[layout]) as engine:
        found = await answers(engine, [greedy(prompt, 24) for prompt in prompts(50)])
        assert found == fifty_answers(kind)
        if "preemption" in layout:
            assert engine.load().preemptions > 0


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "mistral", "gemma2"])
async def test_greedy_tokens_of_more_families(kind: str) -> None:
    """Sliding windows shorter than the prompts, caps on scores and logits, norms of queries and keys."""
    given = prompts(12)
    model = tiny_model(kind)
    expected = [generated(model, prompt, 24) for prompt in given]
    async with engine_of(model, page_size=4, pool_tokens=2048, max_step_tokens=17) as engine:
        assert await answers(engine, [greedy(prompt, 24) for prompt in given]) == expected


async def test_prefix_that_was_computed_before_is_not_computed_again() -> None:
    model = tiny_model("llama")
    prefix = prompts(1, longest=60, seed=5)[0] * 3
    given = [prefix[:48] + tail for tail in prompts(6, longest=9, seed=6)]
    expected = [generated(model, prompt, 12) for prompt in given]
    async with engine_of(model, page_size=8, pool_tokens=2048) as engine:
        first = await answers(engine, [greedy(given[0], 12)])
        pieces = [await all_pieces(engine, greedy(prompt, 12)) for prompt in given[1:]]
    assert first == expected[:1]
    assert [ids_of(found) for found in pieces] == expected[1:]
    assert all(found[-1].cached_count == 48 for found in pieces)


async def test_prefix_of_another_tenant_is_computed_again() -> None:
    prompt = prompts(1, seed=8)[0] * 4
    async with engine_of(tiny_model("llama"), page_size=4, pool_tokens=2048) as engine:
        await collect(engine, greedy(prompt, 4, tenant="a"))
        other = await all_pieces(engine, greedy(prompt, 4, tenant="b"))
        same = await all_pieces(engine, greedy(prompt, 4, tenant="a"))
    assert other[-1].cached_count == 0
    assert same[-1].cached_count > 0
    assert ids_of(other) == ids_of(same)


async def test_completions_of_one_prompt_share_its_pages() -> None:
    """Forks: each draws by a seed of its own from the pages of one prompt, and as it would alone."""
    model = tiny_model("llama")
    prompt = prompts(1, seed=9)[0] * 5
    plan = SamplingPlan(max_tokens=16, temperature=1.0, seed=11, completions=4)
    async with engine_of(model, page_size=4, pool_tokens=2048) as engine:
        found = await collect(engine, GenerationRequest(prompt=prompt, plan=plan))
        pieces = await all_pieces(engine, GenerationRequest(prompt=(*prompt[:-1], 7), plan=plan))
    async with engine_of(model, page_size=16, pool_tokens=4096, is_overlapped=True) as engine:
        again = await collect(engine, GenerationRequest(prompt=prompt, plan=plan))
    assert found == again
    assert len({tuple(ids) for ids in found}) == 4
    lasts = {piece.completion: piece for piece in pieces if piece.finish_reason}
    assert all(lasts[index].cached_count >= len(prompt) // 4 * 4 - 4 for index in (1, 2, 3))


async def test_seed_gives_the_same_text_whatever_else_is_in_the_batch() -> None:
    model = tiny_model("qwen3")
    given = prompts(8, seed=12)
    asked = [
        GenerationRequest(prompt=prompt, plan=SamplingPlan(max_tokens=20, temperature=0.9, top_p=0.95, seed=index))
        for index, prompt in enumerate(given)
    ]
    async with engine_of(model, page_size=4, pool_tokens=2048) as engine:
        together = await answers(engine, asked)
    async with engine_of(model, page_size=16, pool_tokens=2048, max_step_tokens=11, is_overlapped=True) as engine:
        alone = [(await answers(engine, [request]))[0] for request in asked]
    assert together == alone


async def test_request_that_stopped_yields_nothing_after_its_stop() -> None:
    model = tiny_model("llama")
    prompt = prompts(1, seed=13)[0]
    whole = generated(model, prompt, 30)
    stop_at = next(index for index in range(5, 30) if whole.index(whole[index]) == index)
    plan = SamplingPlan(max_tokens=30, temperature=0.0, stop_token_ids=(whole[stop_at],))
    async with engine_of(model, page_size=4, pool_tokens=2048, is_overlapped=True) as engine:
        pieces = await all_pieces(engine, GenerationRequest(prompt=prompt, plan=plan))
    assert ids_of(pieces) == whole[:stop_at]
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["stop"]
    assert pieces[-1].drawn_count == stop_at + 1


@pytest.mark.parametrize("is_overlapped", [False, True])
async def test_stop_text_over_several_tokens_is_not_given(is_overlapped: bool) -> None:
    model = tiny_model("llama")
    prompt = prompts(1, seed=14)[0]
    whole = generated(model, prompt, 20)
    stop = f"<{whole[8]}><{whole[9]}>"[1:-1]
    plan = SamplingPlan(max_tokens=20, temperature=0.0, stop=(stop,))
    async with engine_of(model, page_size=4, pool_tokens=2048, is_overlapped=is_overlapped) as engine:
        pieces = await all_pieces(engine, GenerationRequest(prompt=prompt, plan=plan))
    expected = "".join(f"<{token}>" for token in whole)
    assert "".join(piece.text for piece in pieces) == expected[: expected.index(stop)]
    assert pieces[-1].finish_reason == "stop"


async def test_embeddings_stand_in_for_tokens() -> None:
    """The embeddings of a prompt's own tokens, given from outside, lead to the same answer."""
    model = tiny_model("qwen2")
    prompt = prompts(1, longest=40, seed=15)[0] * 2
    expected = generated(model, prompt, 12)
    embeddings = model.get_input_embeddings()(torch.tensor(prompt[3:9])).detach()
    blank = prompt[:3] + (0,) * 6 + prompt[9:]
    spans = (EmbeddedSpan(start=3, embeddings=embeddings, content=tuple(range(100, 106))),)
    async with engine_of(model, page_size=4, pool_tokens=2048, max_step_tokens=7) as engine:
        found = await answers(engine, [greedy(blank, 12, spans=spans), greedy(prompt, 12)])
        again = await all_pieces(engine, greedy(blank, 12, spans=spans))
        unnamed = await all_pieces(engine, greedy(blank, 12, spans=(EmbeddedSpan(start=3, embeddings=embeddings),)))
    assert found == [expected] * 2
    assert again[-1].cached_count >= len(prompt) // 4 * 4 - 4
    assert unnamed[-1].cached_count == 0


async def test_shared_prefix_never_lets_in_more_than_can_decode() -> None:
    """32 requests over a cached prefix of 59 pages in a pool of 96, 200 tokens each: all finish."""
    model = tiny_model("llama")
    rng = random.Random(16)
    prefix = tuple(rng.randrange(tiny.VOCABULARY - 1) for _ in range(59))
    plan = SamplingPlan(max_tokens=200, temperature=1.0, seed=1, logit_bias={tiny.END: -100.0})
    async with engine_of(model, page_size=1, pool_tokens=96, max_rows=32) as engine:
        await collect(engine, GenerationRequest(prompt=(*prefix, 1), plan=SamplingPlan(max_tokens=1)))
        with pytest.raises(OmniFlowError) as refused:
            await collect(engine, GenerationRequest(prompt=(*prefix, 1), plan=plan))
        assert refused.value.reason is Reason.POOL_EXHAUSTED
    async with engine_of(model, page_size=16, pool_tokens=96 * 16, context_size=1536, max_rows=32) as engine:
        long = tuple(rng.randrange(tiny.VOCABULARY - 1) for _ in range(59 * 16))
        await collect(engine, GenerationRequest(prompt=(*long, 1), plan=SamplingPlan(max_tokens=1)))
        asked = [GenerationRequest(prompt=(*long, index), plan=plan) for index in range(32)]
        found = await answers(engine, asked)
        assert [len(ids) for ids in found] == [200] * 32


async def test_cancelled_requests_leak_nothing_and_leave_others_alone() -> None:
    """500 requests of random lengths, every third one left at a random moment."""
    model = tiny_model("llama")
    rng = random.Random(17)
    given = prompts(500, longest=40, seed=18)
    sizes = [rng.randint(1, 24) for _ in given]
    left_after = {index: rng.randint(0, 10) for index in range(0, 500, 3)}
    expected = {index: generated(model, given[index], sizes[index]) for index in range(1, 500, 25)}
    async with engine_of(
        model, page_size=8, pool_tokens=800, max_rows=16, is_overlapped=True, growth_tokens=16
    ) as engine:

        async def one(index: int) -> list[int]:
            found: list[int] = []
            async with aclosing(engine.generate(greedy(given[index], sizes[index]))) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    found.extend(piece.ids)
                    if len(found) > left_after.get(index, 1000):
                        break
            return found

        found = await asyncio.gather(*(one(index) for index in range(500)))
    checked = [index for index in expected if index not in left_after]
    assert len(checked) > 10
    assert {index: found[index] for index in checked} == {index: expected[index] for index in checked}


async def test_cancels_cost_the_others_no_step_and_no_memory() -> None:
    """The same requests with and without others that are left early; then again and again, and memory stays where it was."""
    given = prompts(200, longest=40, seed=22)

    async def steps_of(engine: Engine, *, leaves_early: bool) -> int:
        before = engine.load().steps

        async def one(index: int) -> None:
            async with aclosing(engine.generate(greedy(given[index], 16, tenant=str(before)))) as pieces:  # type: ignore[type-var]
                async for _ in pieces:
                    if leaves_early and index % 3 == 0:
                        break

        await asyncio.gather(*(one(index) for index in range(200)))
        await tiny.settled(engine)
        return engine.load().steps - before

    async with engine_of(tiny_model("llama"), page_size=8, pool_tokens=2400, max_rows=16, is_overlapped=True) as engine:
        undisturbed = await steps_of(engine, leaves_early=False)
        assert await steps_of(engine, leaves_early=True) <= undisturbed
        resident = resident_bytes()
        for _ in range(3):
            await steps_of(engine, leaves_early=True)
        assert resident_bytes() - resident < 8 * 2**20


def resident_bytes() -> int:
    """Of this process, after what nobody refers to has been collected."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_failing_step_fails_its_requests_alone() -> None:
    model = tiny_model("llama")
    prompt = prompts(1, seed=19)[0]
    expected = generated(model, prompt, 4)
    async with engine_of(model, page_size=4, pool_tokens=512) as engine:
        runner, forward = engine._executor._runner, engine._executor._runner.forward

        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("a secret")

        runner.forward = fail  # type: ignore[method-assign]
        with pytest.raises(OmniFlowError) as caught:
            await collect(engine, greedy(prompt, 4))
        runner.forward = forward  # type: ignore[method-assign]
        assert caught.value.reason is Reason.INTERNAL
        assert "secret" not in caught.value.message
        assert await answers(engine, [greedy(prompt, 4)]) == [expected]


async def test_closing_ends_requests_under_way() -> None:
    engine = make_engine(tiny_model("llama"), tiny.tiny_tokenizer(), EngineSettings(page_size=4, pool_tokens=512))
    engine.start()
    pieces = engine.generate(greedy(prompts(1)[0], 400))
    await anext(pieces)
    engine.close()
    with pytest.raises(OmniFlowError) as caught:
        async for _ in pieces:
            pass
    assert caught.value.reason is Reason.DRAINING
    with pytest.raises(OmniFlowError) as refused:
        await collect(engine, greedy((1,), 1))
    assert refused.value.reason is Reason.DRAINING
    assert engine._scheduler.pages.available == engine._scheduler.pages.page_count


async def test_fault_of_the_engine_itself_ends_every_request_and_takes_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine(tiny_model("llama"), tiny.tiny_tokenizer(), EngineSettings(page_size=4, pool_tokens=512))

    sent_late = threading.Event()

    def fail(*_: Any) -> None:
        engine._send(sent_late.set)  # as another thread may, when the end is not known yet
        raise RuntimeError("a secret")

    monkeypatch.setattr(engine._builder, "build", fail)
    engine.start()
    for _ in range(2):
        with pytest.raises(OmniFlowError) as caught:
            await collect(engine, greedy((1,), 1))
        assert caught.value.reason is Reason.INTERNAL
        assert "secret" not in caught.value.message
    with pytest.raises(OmniFlowError):
        await engine.between_steps(lambda: None)
    engine.close()
    assert sent_late.is_set(), "whoever sent it would wait for ever"
    assert "a secret" in caplog.text


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"prompt": ()}, "prompt"),
        ({"prompt": (1, tiny.VOCABULARY)}, "prompt"),
        ({"prompt": (1, -1)}, "prompt"),
        ({"prompt": (1,) * 510}, "call.sampling.max_tokens"),
        ({"prompt": (1, 2), "spans": [(1, (2, 64), 0)]}, "spans[0].start"),
        ({"prompt": (1, 2), "spans": [(0, (2, 8), 0)]}, "spans[0].embeddings"),
        ({"prompt": (1, 2), "spans": [(0, (2, 64), 3)]}, "spans[0].content"),
        ({"prompt": (1, 2), "spans": [(0, (2, 64), 0), (1, (1, 64), 0)]}, "spans"),
    ],
)
async def test_requests_that_can_never_run_are_refused_with_their_field(request_: dict[str, Any], field: str) -> None:
    spans = tuple(
        EmbeddedSpan(start=start, embeddings=torch.zeros(shape), content=tuple(range(named)))
        for start, shape, named in request_.pop("spans", ())
    )
    async with engine_of(tiny_model("llama"), page_size=4, pool_tokens=4096) as engine:
        with pytest.raises(OmniFlowError) as caught:
            await collect(engine, greedy(max_tokens=8, spans=spans, **request_))
        assert caught.value.reason is Reason.INVALID_FIELD
        assert caught.value.violations[0].field == field
        assert engine.load().steps == 0, "nothing was computed for it"


async def test_ids_within_embedded_spans_are_not_looked_at() -> None:
    spans = (EmbeddedSpan(start=1, embeddings=torch.zeros(2, 64)),)
    async with engine_of(tiny_model("llama"), page_size=4, pool_tokens=4096) as engine:
        assert await collect(engine, greedy((1, 9, 9, 2), 2, spans=spans))


async def all_pieces(engine: Engine, request: GenerationRequest) -> list[Piece]:
    return [piece async for piece in engine.generate(request)]


def ids_of(pieces: Sequence[Piece]) -> list[int]:
    return [token for piece in pieces for token in piece.ids]


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2"])
async def test_log_probabilities_in_bfloat16_are_those_of_the_model_within_its_precision(kind: str) -> None:
    model = tiny_model(kind, dtype=torch.bfloat16)
    plain = tiny_model(kind, dtype=torch.bfloat16)
    plan = SamplingPlan(max_tokens=16, temperature=0.0, top_logprobs=3)
    given = prompts(8, seed=21)
    async with engine_of(model, page_size=4, pool_tokens=2048, max_step_tokens=19) as engine:
        found = [await all_pieces(engine, GenerationRequest(prompt=prompt, plan=plan)) for prompt in given]
    for prompt, pieces in zip(given, found, strict=True):
        drawn = ids_of(pieces)
        with torch.inference_mode():
            logits = plain(torch.tensor([[*prompt, *drawn]])).logits[0, len(prompt) - 1 : -1].float()
        expected = torch.log_softmax(logits, -1)
        logprobs = [entry for piece in pieces for entry in piece.logprobs]
        assert [entry.token for entry in logprobs] == drawn
        for place, entry in enumerate(logprobs):
            assert entry.logprob == pytest.approx(expected[place, entry.token].item(), abs=0.1)
            assert [logprob for _, logprob in entry.top] == pytest.approx(
                expected[place].topk(3).values.tolist(), abs=0.1
            )
