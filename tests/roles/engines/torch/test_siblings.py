"""Linears that share a product: computed once, and never one's for another tensor's."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the engine runs in the assistant environment")

from torch import nn  # noqa: E402

from omniflow_roles.engines.torch.siblings import JointProduct, families, share  # noqa: E402

pytestmark = pytest.mark.assistant

SIZES = (4, 2, 3)


class CountingLinear(nn.Linear):  # type: ignore[misc]
    calls = 0

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(hidden)


def joint_linear() -> CountingLinear:
    torch.manual_seed(0)
    return CountingLinear(8, sum(SIZES), bias=False).requires_grad_(False)


def alone(joint: nn.Linear, hidden: torch.Tensor, index: int) -> torch.Tensor:
    return nn.functional.linear(hidden, joint.weight).split(SIZES, -1)[index]


def test_families_keeps_siblings_together_and_the_rest_alone() -> None:
    names = [f"layers.0.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "gate_proj")]
    names += ["layers.1.q_proj", "layers.1.k_proj", "gate_proj", "up_proj", "lm_head"]
    assert list(families(names)) == [
        ("layers.0.q_proj", "layers.0.k_proj", "layers.0.v_proj"),
        ("layers.0.o_proj",),
        ("layers.0.gate_proj", "layers.0.up_proj"),
        ("layers.1.q_proj",),
        ("layers.1.k_proj",),
        ("gate_proj", "up_proj"),
        ("lm_head",),
    ]


def test_siblings_multiply_once() -> None:
    joint = joint_linear()
    linears = [nn.Linear(8, size, bias=False) for size in SIZES]
    siblings = share(joint, linears)
    hidden = torch.randn(1, 5, 8)
    outputs = [sibling(hidden) for sibling in siblings]
    assert joint.calls == 1
    assert [(sibling.in_features, sibling.out_features) for sibling in siblings] == [(8, size) for size in SIZES]
    for index, output in enumerate(outputs):
        torch.testing.assert_close(output, alone(joint, hidden, index))


def test_siblings_let_their_input_go_after_the_last() -> None:
    product = JointProduct(joint_linear(), SIZES)
    hidden = torch.randn(1, 5, 8)
    watched = weakref.ref(hidden)
    for index in range(3):
        product.part(hidden, index)
    del hidden
    gc.collect()
    assert watched() is None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12))
def test_siblings_give_what_each_gives_alone_however_they_are_called(calls: list[tuple[int, int]]) -> None:
    joint = joint_linear()
    product = JointProduct(joint, SIZES)
    tensors = [torch.randn(2, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    for which, index in calls:
        torch.testing.assert_close(product.part(tensors[which], index), alone(joint, tensors[which], index))
