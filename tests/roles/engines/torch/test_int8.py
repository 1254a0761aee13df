"""Products with int8 weights: what they approximate, how closely, and what they must not let rows do to each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the engine runs in the assistant environment")

from omniflow_roles.engines.torch import int8  # noqa: E402
from omniflow_roles.engines.torch.int8 import Route, choose_route, dequantise_weight, multiply, quantise_weight  # noqa: E402

pytestmark = pytest.mark.assistant

CPU = torch.device("cpu")
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
TOLERANCE = {Route.ROTATED: 0.01, Route.PACKED: 0.004, Route.DEQUANTISED: 0.004}
"""Of the magnitudes that are added up. Rows are int8 in the first, and weights as exact as bfloat16 in the others."""


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("route", Route)
@pytest.mark.parametrize(("outputs", "inputs"), [(7, 64), (300, 96), (1, 16), (5, 1040)])
def test_multiply_is_the_product_with_the_dequantised_weights(
    route: Route, outputs: int, inputs: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    quantised, scales = quantise_weight(torch.randn(outputs, inputs), route)
    exact = dequantise_weight(quantised, scales, route)
    for count in (1, 3, 40, 130):
        rows = torch.randn(count, inputs).to(dtype)
        product = multiply(rows, quantised, scales, route)
        assert (product.dtype, product.shape) == (dtype, (count, outputs))
        error = (product.float() - rows.float() @ exact.T).norm()
        assert error < TOLERANCE[route] * (rows.float().abs() @ exact.abs().T).norm()


@pytest.mark.parametrize("route", Route)
def test_multiply_no_rows(route: Route) -> None:
    quantised, scales = quantise_weight(torch.randn(8, 32), route)
    assert multiply(torch.empty(0, 32), quantised, scales, route).shape == (0, 8)


def test_multiply_float32_rows_with_dequantised_weights_is_exact() -> None:
    quantised, scales = quantise_weight(torch.randn(24, 40), Route.DEQUANTISED)
    rows = torch.randn(5, 40)
    expected = rows @ dequantise_weight(quantised, scales, Route.DEQUANTISED).T
    torch.testing.assert_close(multiply(rows, quantised, scales, Route.DEQUANTISED), expected)


def test_multiply_float16_does_not_overflow_before_it_is_scaled() -> None:
    """Sums of 127 times 1 over 1,024 features are above 65,504."""
    quantised, scales = quantise_weight(torch.full((4, 1024), 1e-2), Route.DEQUANTISED)
    product = multiply(torch.ones(2, 1024, dtype=torch.float16), quantised, scales, Route.DEQUANTISED)
    assert product.float().allclose(torch.tensor(10.24), rtol=0.01)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 1000), st.floats(1e-6, 1e6))
def test_quantised_weights_are_within_half_a_step(outputs: int, blocks: int, seed: int, size: float) -> None:
    weight = torch.randn(outputs, 16 * blocks, generator=torch.Generator().manual_seed(seed)) * size
    quantised, scales = quantise_weight(weight, Route.PACKED)
    assert quantised.abs().max() == 127
    step = scales[:, None] * (0.5 + 1e-4)
    assert bool(((dequantise_weight(quantised, scales, Route.PACKED) - weight).abs() <= step).all())


@pytest.mark.parametrize("route", Route)
def test_weights_of_a_dead_channel_stay_zero(route: Route) -> None:
    weight = torch.randn(3, 64)
    weight[1] = 0
    quantised, scales = quantise_weight(weight, route)
    product = multiply(torch.randn(2, 64), quantised, scales, route)
    assert product[:, 1].eq(0).all()
    assert product[:, [0, 2]].ne(0).all()


def test_rotated_rows_keep_what_is_beside_an_outlier() -> None:
    torch.manual_seed(0)
    weight, rows = torch.randn(64, 512), torch.randn(16, 512)
    weight[:, 7] = 0  # so that all of the product comes from the other features
    rows[:, 7] = 300
    expected = rows @ weight.T
    plain_steps = rows.abs().amax(-1, keepdim=True) / 127
    plain = (torch.round(rows / plain_steps) * plain_steps) @ weight.T
    product = multiply(rows, *quantise_weight(weight, Route.ROTATED), Route.ROTATED)
    assert relative_error(product, expected) < relative_error(plain, expected) / 4


def test_rotated_rows_do_not_depend_on_each_other() -> None:
    torch.manual_seed(0)
    quantised, scales = quantise_weight(torch.randn(48, 64), Route.ROTATED)
    rows = torch.randn(6, 64)
    loud = torch.cat((rows, torch.randn(6, 64) * 1e4))
    alone = multiply(rows, quantised, scales, Route.ROTATED)
    assert relative_error(multiply(loud, quantised, scales, Route.ROTATED)[:6], alone) < 1e-3


def test_rotated_many_rows_are_quantised_as_few_are() -> None:
    torch.manual_seed(0)
    quantised, scales = quantise_weight(torch.randn(16, 1024), Route.ROTATED)
    rows = torch.randn(200, 1024)
    whole = multiply(rows, quantised, scales, Route.ROTATED)
    parts = torch.cat([multiply(part, quantised, scales, Route.ROTATED) for part in rows.split(3)])
    assert relative_error(whole, parts) < 1e-3


def test_rotated_rows_of_zeros_and_of_nan_stay_what_they_are() -> None:
    quantised, scales = quantise_weight(torch.randn(8, 64), Route.ROTATED)
    rows = torch.zeros(3, 64)
    rows[1, 5] = torch.nan
    rows[2, 5] = 1.0
    product = multiply(rows, quantised, scales, Route.ROTATED)
    assert product[0].eq(0).all()
    assert product[1].isnan().all()
    assert product[2].isfinite().all()
    assert product[2].ne(0).any()


@pytest.mark.parametrize("has_vnni", [True, False])
def test_choose_route_by_the_processor(monkeypatch: pytest.MonkeyPatch, has_vnni: bool) -> None:
    monkeypatch.setattr("torch.cpu._is_vnni_supported", lambda: has_vnni)
    fast = Route.ROTATED if has_vnni else Route.PACKED
    assert choose_route(CPU, 576) is fast
    assert choose_route(CPU, 16) is fast
    assert choose_route(CPU, 24) is Route.DEQUANTISED
    assert choose_route(torch.device("cuda"), 576) is Route.DEQUANTISED


def test_choose_route_keeps_integer_sums_within_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cpu._is_vnni_supported", lambda: True)
    assert choose_route(CPU, 1 << 17) is Route.ROTATED
    assert 127 * 127 * (1 << 17) < 1 << 31
    assert choose_route(CPU, (1 << 17) + (1 << 12)) is Route.PACKED


def test_rotation_size_divides_the_features() -> None:
    assert [int8.rotation_size(features) for features in (576, 896, 4864, 96, 16, 1, 100)] == [64, 64, 64, 32, 16, 1, 4]
