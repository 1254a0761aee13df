"""Products of rows with int8 weights: one scale for each output channel, and three ways to multiply.

    route       weights                 rows of the input               when
    ROTATED     int8, rotated           int8, one scale each, rotated   CPUs with int8 dot products (VNNI)
    PACKED      int8                    bfloat16, up to 64 of them      other CPUs; beyond 64 rows as DEQUANTISED
    DEQUANTISED int8, made floats       as they come                    GPUs, and sizes the others cannot take

Measured on one core of a Xeon with AVX-512 VNNI and bfloat16 but no AMX, as times faster than bfloat16 weights, for weights
of 1536 × 576 and of 8192 × 2048 that come from memory:

    rows                        1           8           32          128         512
    ROTATED                     1.3, 1.5    1.8, 2.1    2.1, 3.7    1.9, 4.6    2.8, 4.7
    PACKED, bfloat16            1.3, 1.0    1.4, 1.0    1.0, 0.9    0.8, 0.7    0.8, 0.8
    PACKED, float32             0.3         0.05        0.04        0.03                    a scalar loop
    DEQUANTISED, float32        0.5, 0.1    0.7, 0.2    0.9, 0.4    1.4, 0.9    1.5, 1.4
    float32 weights             0.7, 0.6    0.8, 0.5    1.2, 1.2    1.5, 1.5    1.7, 1.8
    bfloat16 packed by oneDNN   1.0, 1.0    0.9, 1.0    1.0, 1.0    1.0, 1.0    1.0, 1.0

so on such a CPU one route is best for any number of rows, and elsewhere the number of rows decides. At one row of the larger
weights it reads 9.5 GB/s, where float32 weights are read at 13 GB/s.

A row in int8 with one scale would lose what lies beside its outliers: ten times the error of int8 weights alone (mean KL of
SmolLM2-135M's next token to float32: 0.047 to 0.0045). Both sides are therefore rotated by blocks of a Hadamard matrix
first, which leaves the product as it is and spreads an outlier over its block (Ashkboos et al., QuaRot, 2024): 0.0054.
Scaling the whole batch by its largest value, as dynamic quantisation in PyTorch does, gives 0.70, and lets one request's
values change another's.
"""

from __future__ import annotations

import enum
from functools import lru_cache

import torch
from torch.nn import functional

_LARGEST = 127
"""-128 is left out: scales are symmetric."""
_LARGEST_ROTATION = 64
"""Blocks of 64 and 192 are equally good, and 64 divides most sizes."""
_DIVISOR = 16
"""Of the sizes that are multiplied as int8: smaller blocks spread an outlier too little, and the packed product reads beyond
the end of rows that are no multiple of it."""
_MAX_INTEGER_FEATURES = (1 << 31) // (_LARGEST * _LARGEST)
"""Sums are int32."""
_MAX_PACKED_ROWS = 64
_QUANTISED_TOGETHER = 65_536
"""Elements whose temporary values stay in the cache, and below the size for which the allocator asks the kernel for fresh
pages each time: 2 to 3 times faster for 512 rows."""


class Route(enum.StrEnum):
    """How rows are multiplied. Fixed when weights are quantised: it decides what is stored."""

    ROTATED = "rotated"
    PACKED = "packed"
    DEQUANTISED = "dequantised"


def choose_route(device: torch.device, in_features: int) -> Route:
    """The fastest on this machine."""
    if device.type != "cpu" or in_features % _DIVISOR:
        return Route.DEQUANTISED
    is_rotated = torch.cpu._is_vnni_supported() and in_features <= _MAX_INTEGER_FEATURES
    return Route.ROTATED if is_rotated else Route.PACKED


def rotation_size(in_features: int) -> int:
    """Features that are rotated together: the largest power of two that divides, up to 64."""
    return min(in_features & -in_features, _LARGEST_ROTATION)


def quantise_weight(weight: torch.Tensor, route: Route) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 [out, in] and float32 scales [out] of float weights [out, in]."""
    exact = weight.detach().float()
    if route is Route.ROTATED:
        exact = _rotate(exact)
    scales = exact.abs().amax(-1).div_(_LARGEST)
    scales.masked_fill_(scales == 0, 1.0)
    return torch.round(exact / scales[:, None]).to(torch.int8), scales


def dequantise_weight(quantised: torch.Tensor, scales: torch.Tensor, route: Route) -> torch.Tensor:
    """The float32 weights [out, in] that the int8 ones stand for."""
    exact = quantised.float().mul_(scales[:, None])
    return _rotate(exact) if route is Route.ROTATED else exact  # the rotation is its own inverse


def multiply(rows: torch.Tensor, quantised: torch.Tensor, scales: torch.Tensor, route: Route) -> torch.Tensor:
    """rows [n, in] of any float dtype times weights [out, in] transposed: [n, out] of that dtype."""
    if route is Route.ROTATED:
        return _multiply_rotated(rows, quantised, scales)
    if route is Route.PACKED and len(rows) <= _MAX_PACKED_ROWS:
        packed = torch._weight_int8pack_mm(rows.bfloat16(), quantised, scales.bfloat16())
        return packed.to(rows.dtype)
    scales = scales.to(rows.dtype)
    weights = quantised.to(rows.dtype)
    if rows.dtype == torch.float16:  # in which the product can be too large without its scales
        return functional.linear(rows, weights.mul_(scales[:, None]))
    return functional.linear(rows, weights).mul_(scales)


def _multiply_rotated(rows: torch.Tensor, quantised: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    integers, steps = _quantise_rows(rows.float())
    return torch._int_mm(integers, quantised.t()).float().mul_(scales).mul_(steps).to(rows.dtype)


def _quantise_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 [n, in] of float32 rows, rotated, and what 1 stands for in each, [n, 1]."""
    count = max(1, _QUANTISED_TOGETHER // rows.shape[1])
    if len(rows) <= count:
        rotated = _rotate(rows)
        steps = rotated.abs().amax(-1, keepdim=True).div_(_LARGEST)
        # A row of zeros becomes NaN here and any integer next, which its step, 0, makes 0 again.
        return rotated.div_(steps).round_().to(torch.int8), steps
    parts = [_quantise_rows(part) for part in rows.split(count)]
    return torch.cat([integers for integers, _ in parts]), torch.cat([steps for _, steps in parts])


def _rotate(rows: torch.Tensor) -> torch.Tensor:
    size = rotation_size(rows.shape[1])
    return torch.mm(rows.reshape(-1, size), _hadamard(size)).view(rows.shape)


@lru_cache
def _hadamard(size: int) -> torch.Tensor:
    """Sylvester's matrix, scaled to be orthogonal; it is symmetric."""
    with torch.inference_mode(mode=False):
        matrix = torch.ones(1, 1)
        while len(matrix) < size:
            matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
        return matrix / size**0.5
