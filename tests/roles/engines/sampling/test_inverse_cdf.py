"""Inverse-transform sampling over weights."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from omniflow_roles.engines.sampling.inverse_cdf import _first_beyond, invert, mass  # noqa: E402

pytestmark = pytest.mark.assistant
LAST = 1 - 2.0**-53
SIZES = [1, 2, 64, 127, 128, 129, 1000]


def random_weights(rows: int, size: int, *, seed: int = 0) -> torch.Tensor:
    """Some of them zero."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(rows, size, generator=generator) * (torch.rand(rows, size, generator=generator) < 0.6)
    weights[:, size // 2] += 0.1
    return weights


@pytest.mark.parametrize("size", SIZES)
def test_invert_is_the_first_token_beyond_in_the_order_of_the_vocabulary(size: int) -> None:
    weights = random_weights(500, size)
    uniforms = torch.rand(500, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ends = weights.double().cumsum(-1)
    expected = (ends <= uniforms[:, None] * ends[:, -1:]).sum(-1)
    assert invert(weights, uniforms).equal(expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("uniform", [0.0, 5e-324, LAST])
def test_invert_gives_the_ends_of_the_support_for_the_ends_of_the_range(size: int, uniform: float) -> None:
    weights = random_weights(200, size)
    tokens = invert(weights, torch.full((200,), uniform, dtype=torch.float64))
    places = [row.nonzero()[:, 0] for row in weights]
    assert tokens.tolist() == [int(row[-1] if uniform == LAST else row[0]) for row in places]


@settings(max_examples=200, deadline=None)
@given(
    weights=st.lists(st.floats(0, 2.0**100, width=32) | st.just(0.0), min_size=1, max_size=300).filter(any),
    uniform=st.floats(0, LAST),
)
def test_invert_never_gives_a_token_without_weight(weights: list[float], uniform: float) -> None:
    token = int(invert(torch.tensor([weights]), torch.tensor([uniform], dtype=torch.float64)))
    assert weights[token] > 0


def test_invert_gives_a_token_the_numbers_from_its_beginning_up_to_its_end() -> None:
    weights = torch.tensor([[0.25, 0.0, 0.25, 0.5]]).expand(6, 4)
    uniforms = torch.tensor([0.0, 0.2499, 0.25, 0.4999, 0.5, 0.9999], dtype=torch.float64)
    assert invert(weights, uniforms).tolist() == [0, 0, 2, 2, 3, 3]


def test_first_beyond_is_a_place_of_weight_also_where_sums_are_not_monotone() -> None:
    """As a parallel scan may leave them."""
    ends = torch.tensor([[1.0, 1.0000001, 1.5]], dtype=torch.float64)
    weights = torch.tensor([[1.0, 0.0, 0.5]])
    assert _first_beyond(ends, weights, torch.tensor([1.00000005], dtype=torch.float64)).tolist() == [2]


def test_invert_does_not_mind_the_scale() -> None:
    weights = random_weights(300, 500)
    uniforms = torch.rand(300, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert invert(weights * 2.0**-60, uniforms).equal(invert(weights, uniforms))


def test_invert_and_mass_of_a_row_depend_on_nothing_but_the_row() -> None:
    weights = random_weights(9, 49_152)
    uniforms = torch.rand(9, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    tokens, masses = invert(weights, uniforms), mass(weights)
    for row in range(9):
        assert invert(weights[row : row + 1], uniforms[row : row + 1]).equal(tokens[row : row + 1])
        assert mass(weights[row : row + 1]).equal(masses[row : row + 1])


def test_invert_of_no_rows_is_no_tokens() -> None:
    assert invert(torch.zeros(0, 300), torch.zeros(0, dtype=torch.float64)).shape == (0,)
