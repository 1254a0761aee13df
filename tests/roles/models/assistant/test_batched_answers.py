"""SmolLM2 in float32: fifty prompts of mixed length, batched together, against `generate()` one by one."""

from __future__ import annotations

import asyncio
import random

import pytest

from omniflow_roles.models.assistant.llm import Llm

torch = pytest.importorskip("torch", reason="the model runs in the assistant environment")

from omniflow_roles.engines.requests import GenerationRequest  # noqa: E402
from omniflow_roles.engines.sampling.plan import SamplingPlan  # noqa: E402
from omniflow_roles.engines.torch.engine import collect  # noqa: E402
from omniflow_roles.models.assistant import checkpoint  # noqa: E402

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(400)]

TEXT = (
    "The harbour lay quiet in the early light, and the fishermen were already mending their nets along the stone wall. "
    "Nobody spoke much; the gulls did it for them. A boy of about twelve carried coffee from boat to boat, spilling a "
    "little at every gangway, and was thanked for it in four languages. Far out, beyond the breakwater, a white ship "
    "waited for the pilot, as it did every Tuesday, with its flags hanging down and its crew asleep. "
)
MAX_TOKENS = 10


async def test_fifty_prompts_in_one_batch_are_answered_as_one_by_one(llm: Llm) -> None:
    plain, tokenizer = checkpoint.load(checkpoint.gguf_file(), checkpoint.cache_root())
    ids = tokenizer(TEXT)["input_ids"]
    rng = random.Random(3)
    prompts = []
    for _ in range(50):
        start, size = rng.randrange(len(ids) - 2), rng.randint(1, 90)
        prompts.append(tuple(ids[start : start + size]))
    expected = []
    with torch.inference_mode():
        for prompt in prompts:
            out = plain.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                do_sample=False,
                max_new_tokens=MAX_TOKENS,
            )
            expected.append([token for token in out[0, len(prompt) :].tolist() if token != tokenizer.eos_token_id])
    plan = SamplingPlan(max_tokens=MAX_TOKENS, temperature=0.0)
    engine = llm._model.engine
    found = await asyncio.gather(*(collect(engine, GenerationRequest(prompt=prompt, plan=plan)) for prompt in prompts))
    assert [completions[0] for completions in found] == expected
