"""Adjusting, drawing and counting inside a captured CUDA graph: what it draws is what the CPU draws."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from omniflow_roles.engines.sampling.counts import TokenCounts  # noqa: E402
from omniflow_roles.engines.sampling.draw import Drawn, draw  # noqa: E402
from omniflow_roles.engines.sampling.parameters import RowParameters  # noqa: E402
from omniflow_roles.engines.sampling.plan import SamplingPlan  # noqa: E402

pytestmark = [
    pytest.mark.assistant,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

VOCABULARY = 5003
PLANS = [
    SamplingPlan(max_tokens=1),
    SamplingPlan(max_tokens=1, repetition_penalty=1.3, logit_bias={7: 2.0}),
    SamplingPlan(max_tokens=1, temperature=0.9, frequency_penalty=0.4),
    SamplingPlan(max_tokens=1, temperature=1.2, top_k=40),
    SamplingPlan(max_tokens=1, temperature=0.7, top_p=0.9),
    SamplingPlan(max_tokens=1, temperature=1.5, min_p=0.05, presence_penalty=0.5),
    SamplingPlan(max_tokens=1, temperature=3.0, top_k=2000, top_p=0.95, min_p=0.001, repetition_penalty=0.9),
    SamplingPlan(max_tokens=1, temperature=1.0, logit_bias={3: 4.0, 9: -100.0}),
]


def test_captured_graph_draws_what_the_cpu_draws() -> None:
    rows = len(PLANS)
    on_cpu, on_gpu = TokenCounts(rows, VOCABULARY, "cpu"), TokenCounts(rows, VOCABULARY, "cuda")
    slots = torch.tensor([on_cpu.hold(row, plan, [1, 2, 3], [4]) for row, plan in enumerate(PLANS)])
    assert [on_gpu.hold(row, plan, [1, 2, 3], [4]) for row, plan in enumerate(PLANS)] == slots.tolist()
    parameters = RowParameters.of(PLANS)
    generator = torch.Generator().manual_seed(1)
    steps = [
        (
            torch.randn(rows, VOCABULARY, generator=generator) * 3,
            torch.rand(rows, dtype=torch.float64, generator=generator),
        )
        for _ in range(20)
    ]
    logits = torch.zeros(rows, VOCABULARY, device="cuda")
    uniforms = torch.zeros(rows, dtype=torch.float64, device="cuda")
    graph_slots = torch.full((rows,), -1, device="cuda")
    graph_parameters = RowParameters(packed=RowParameters.of(PLANS, device="cuda").packed)

    def step() -> Drawn:
        adjusted = on_gpu.apply(logits, graph_slots)
        drawn = draw(adjusted, graph_parameters, uniforms, top_logprobs=3, raw_logits=logits)
        on_gpu.add(graph_slots, drawn.tokens)
        return drawn

    # A capture wants its kernels loaded, on a stream that is not the default one.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph_slots.copy_(slots)
    assert captured.logprobs is not None
    for step_logits, step_uniforms in steps:
        adjusted = on_cpu.apply(step_logits, slots)
        expected = draw(adjusted, parameters, step_uniforms, top_logprobs=3, raw_logits=step_logits)
        on_cpu.add(slots, expected.tokens)
        logits.copy_(step_logits)
        uniforms.copy_(step_uniforms)
        graph.replay()
        assert captured.tokens.cpu().equal(expected.tokens)
        assert expected.logprobs is not None
        assert torch.allclose(captured.logprobs.cpu(), expected.logprobs, atol=1e-5)
