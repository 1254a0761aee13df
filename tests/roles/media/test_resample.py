"""Sample-rate conversion, judged by what comes out for tones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from omniflow_roles.media.resample import resample

Samples = np.ndarray[Any, np.dtype[np.float32]]


def tone(frequency_hz: float, rate_hz: int, duration_s: float = 0.5) -> Samples:
    time_s = np.arange(round(rate_hz * duration_s)) / rate_hz
    return np.sin(2 * np.pi * frequency_hz * time_s).astype(np.float32)


def inner(samples: Samples) -> Samples:
    """Without the ends, where the tone begins and stops."""
    return samples[len(samples) // 8 : -len(samples) // 8]


def level_db(samples: Samples) -> float:
    return float(20 * np.log10(np.sqrt(np.mean(inner(samples) ** 2)) + 1e-12))


@pytest.mark.parametrize(
    ("from_hz", "to_hz"), [(22_050, 16_000), (8_000, 16_000), (44_100, 16_000), (48_000, 16_000), (16_000, 22_050)]
)
def test_resample_keeps_a_tone_in_place(from_hz: int, to_hz: int) -> None:
    converted = resample(tone(1_000, from_hz), from_hz, to_hz)
    assert abs(len(converted) - to_hz // 2) <= 1
    error = inner(converted) - inner(tone(1_000, to_hz)[: len(converted)])
    assert np.max(np.abs(error)) < 1e-3


@pytest.mark.parametrize("frequency_hz", [9_000, 10_000, 10_900])
def test_resample_removes_what_would_fold_back(frequency_hz: float) -> None:
    assert level_db(resample(tone(frequency_hz, 22_050), 22_050, 16_000)) < -70


@pytest.mark.parametrize("frequency_hz", [100, 3_000, 7_000])
def test_resample_passes_the_band_of_speech(frequency_hz: float) -> None:
    assert (
        abs(level_db(resample(tone(frequency_hz, 22_050), 22_050, 16_000)) - level_db(tone(frequency_hz, 16_000))) < 0.1
    )


def test_resample_keeps_a_constant_exactly_level() -> None:
    converted = inner(resample(np.full(4_000, 0.5, dtype=np.float32), 22_050, 16_000))
    assert np.max(np.abs(converted - 0.5)) < 1e-6


def test_resample_long_input_is_the_same_as_its_beginning() -> None:
    samples = np.random.default_rng(1).standard_normal(40_000).astype(np.float32)
    whole, beginning = resample(samples, 22_050, 16_000), resample(samples[:20_000], 22_050, 16_000)
    assert np.array_equal(whole[:14_000], beginning[:14_000])


def test_resample_same_rate_gives_the_samples_back() -> None:
    samples = tone(440, 16_000)
    assert resample(samples, 16_000, 16_000) is samples


@pytest.mark.parametrize("count", [0, 1, 5])
def test_resample_takes_any_length(count: int) -> None:
    assert len(resample(np.zeros(count, dtype=np.float32), 8_000, 16_000)) == 2 * count
