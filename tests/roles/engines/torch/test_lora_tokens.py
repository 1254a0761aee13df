"""Which rows an adapter adds to, and that both ways of adding give the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the engine runs in the assistant environment")

from omniflow_roles.engines.torch.lora_tokens import (  # noqa: E402
    NO_ADAPTER,
    GroupedTokens,
    LoraStacks,
    StackedTokens,
)

pytestmark = pytest.mark.assistant

PLACES, RANK, INPUTS, OUTPUTS = 3, 4, 6, 5


def stacks(ranks: list[int], seed: int = 0) -> LoraStacks:
    generator = torch.Generator().manual_seed(seed)
    found = LoraStacks.zeros(PLACES, RANK, INPUTS, OUTPUTS, dtype=torch.float32, device=torch.device("cpu"))
    for place, rank in enumerate(ranks):
        found.down[place, :rank] = torch.randn(rank, INPUTS, generator=generator)
        found.up[place, :, :rank] = torch.randn(OUTPUTS, rank, generator=generator)
        found.ranks[place] = rank
    return found


def test_grouped_rows_together_are_a_slice_and_others_indices() -> None:
    tokens = GroupedTokens.of([3, 2, 1, 4], [1, 0, NO_ADAPTER, 0])
    assert tokens is not None
    assert tokens.count == 10
    [(first, together), (second, apart)] = tokens.groups
    assert (first, together) == (1, slice(0, 3))
    assert second == 0
    assert apart.tolist() == [3, 4, 6, 7, 8, 9]
    adjacent = GroupedTokens.of([1, 1, 2], [2, 2, 2])
    assert adjacent is not None
    assert adjacent.groups == ((2, slice(0, 4)),)


def test_grouped_is_nothing_where_no_token_has_an_adapter() -> None:
    assert GroupedTokens.of([3, 2], [NO_ADAPTER, NO_ADAPTER]) is None
    assert GroupedTokens.of([3, 0], [NO_ADAPTER, 1]) is None


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-1, PLACES - 1)), min_size=1, max_size=8),
    st.lists(st.integers(0, RANK), min_size=PLACES, max_size=PLACES),
    st.integers(0, 99),
)
def test_grouped_and_stacked_add_what_each_token_gets_alone(
    sequences: list[tuple[int, int]], ranks: list[int], seed: int
) -> None:
    own = stacks(ranks, seed)
    adapters = [adapter for count, adapter in sequences for _ in range(count)]
    hidden = torch.randn(len(adapters), INPUTS, generator=torch.Generator().manual_seed(seed))
    before = torch.randn(len(adapters), OUTPUTS)
    expected = before.clone()
    for row, adapter in enumerate(adapters):
        if adapter != NO_ADAPTER:
            expected[row] += own.up[adapter] @ (own.down[adapter] @ hidden[row])

    output = before.clone()
    grouped = GroupedTokens.of([count for count, _ in sequences], [adapter for _, adapter in sequences])
    if grouped is not None:
        grouped.add_to(output, hidden, own)
    torch.testing.assert_close(output, expected)

    output = before.clone()
    places = torch.tensor([PLACES if adapter == NO_ADAPTER else adapter for adapter in adapters], dtype=torch.int64)
    StackedTokens(places=places).add_to(output, hidden, own)
    torch.testing.assert_close(output, expected)


def test_grouped_and_stacked_keep_a_broken_adapter_to_its_own_tokens() -> None:
    own = stacks([4, 4, 4])
    own.down[1] = torch.nan
    hidden = torch.randn(4, INPUTS)
    grouped = GroupedTokens.of([1, 1, 1, 1], [0, 1, NO_ADAPTER, 2])
    assert grouped is not None
    for tokens in (grouped, StackedTokens(places=torch.tensor([0, 1, PLACES, 2]))):
        output = torch.zeros(4, OUTPUTS)
        tokens.add_to(output, hidden, own)
        assert output.isnan().any(-1).tolist() == [False, True, False, False]


def test_grouped_adds_into_a_part_of_a_wider_tensor() -> None:
    own = stacks([4, 4, 4])
    hidden = torch.randn(3, INPUTS)
    tokens = GroupedTokens.of([1, 1, 1], [0, 1, 0])
    assert tokens is not None
    wide = torch.zeros(3, 9)
    tokens.add_to(wide[:, 2:7], hidden, own)
    alone = torch.zeros(3, OUTPUTS)
    tokens.add_to(alone, hidden, own)
    torch.testing.assert_close(wide[:, 2:7], alone)
    assert wide[:, :2].eq(0).all()
    assert wide[:, 7:].eq(0).all()
