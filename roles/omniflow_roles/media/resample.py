"""Sample-rate conversion by a windowed sinc, one short filter per output phase.

For a ratio up/down in lowest terms, output n sits at input time n*down/up. Its fractional part takes only `up` values,
so there are `up` filters of `taps` coefficients each, and one output is one dot product:

    22050 -> 16000:  up 320, down 441      out[n] = filters[n*441 % 320] . x[n*441 // 320 - half + 1 : ... + half]

The kernel is a sinc at 95 % of the lower Nyquist frequency under a Kaiser window (beta 9: about -90 dB in the stop band)
with 32 zero crossings to either side. Output 0 is input 0: the delay is compensated. Linear interpolation would fold the
fricatives above 8 kHz back into the band that a recogniser listens to; scipy's resample_poly would do as well as this, and
is a large dependency for one function.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from omniflow_roles.media.pcm import Samples

_ZERO_CROSSINGS = 32
_PASS_BAND = 0.95
_KAISER_BETA = 9.0
_BLOCK_FRAMES = 8192
"""Outputs computed at once: bounds the gathered windows to a few MiB whatever the input's length."""


def resample(samples: Samples, from_hz: int, to_hz: int) -> Samples:
    """[frames] float32 at `from_hz` -> [ceil(frames * to_hz / from_hz)] float32 at `to_hz`."""
    if from_hz == to_hz or not len(samples):
        return samples
    divisor = math.gcd(from_hz, to_hz)
    up, down = to_hz // divisor, from_hz // divisor
    filters = _filters(up, down)
    half = filters.shape[1] // 2
    windows = sliding_window_view(np.pad(samples, (half - 1, half)), 2 * half)
    count = -(-len(samples) * up // down)
    out = np.empty(count, dtype=np.float32)
    for start in range(0, count, _BLOCK_FRAMES):
        time = np.arange(start, min(start + _BLOCK_FRAMES, count), dtype=np.int64) * down
        out[start : start + len(time)] = np.einsum("nt,nt->n", windows[time // up], filters[time % up])
    return out


def _filters(up: int, down: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """[up, taps] coefficients; row p is the kernel for outputs p/up of a sample after an input sample."""
    cutoff = _PASS_BAND * min(1.0, up / down)
    half = math.ceil(_ZERO_CROSSINGS / cutoff)
    distance = np.arange(1 - half, half + 1)[None, :] - np.arange(up)[:, None] / up
    window = np.i0(_KAISER_BETA * np.sqrt(np.clip(1 - (distance / half) ** 2, 0, None))) / np.i0(_KAISER_BETA)
    kernel = cutoff * np.sinc(cutoff * distance) * window
    # Each phase passes a constant unchanged: without it the phases' gains differ by 1e-4 and a tone gets side bands.
    filters: np.ndarray[tuple[int, int], np.dtype[np.float32]] = np.asarray(
        kernel / kernel.sum(axis=1, keepdims=True), dtype=np.float32
    )
    return filters
