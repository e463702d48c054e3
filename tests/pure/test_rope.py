"""Rotary frequencies against float64 formulas, and their correct rounding."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from isobit.models.rope import RopeScaling, nearest_float32, rope_table


def plain(theta: float, dim: int) -> np.ndarray:
    return np.array([theta ** (-2 * i / dim) for i in range(dim // 2)])


@pytest.mark.parametrize(("theta", "dim"), [(10000.0, 64), (100000.0, 64), (1e6, 256), (500000.0, 128), (10000.0, 20)])
def test_plain_frequencies(theta: float, dim: int) -> None:
    table = rope_table(theta, dim, "halves")
    assert table.inv_freq.dtype == np.float32
    assert np.abs(table.inv_freq / plain(theta, dim) - 1).max() < 2**-23
    assert table.mscale == 1.0


def test_linear_scaling_divides() -> None:
    table = rope_table(10000.0, 64, "halves", RopeScaling("linear", 8.0))
    assert np.array_equal(table.inv_freq, (rope_table(10000.0, 64, "halves").inv_freq / 8).astype(np.float32))


def test_llama3_divisors_divide_each_frequency() -> None:
    divisors = np.linspace(1, 8, 32).astype(np.float32)
    table = rope_table(500000.0, 64, "interleaved", divisors=divisors)
    assert np.abs(table.inv_freq * divisors / plain(500000.0, 64) - 1).max() < 2**-22


def test_yarn_keeps_fast_and_slows_slow_rotations() -> None:
    scaling = RopeScaling("yarn", 4.0, 32768)
    table = rope_table(1e6, 128, "halves", scaling)
    ratio = plain(1e6, 128) / table.inv_freq
    assert abs(ratio[0] - 1) < 1e-6
    assert abs(ratio[-1] - 4) < 1e-5
    assert np.all(np.diff(ratio) >= -1e-6)
    assert table.mscale == pytest.approx(0.1 * math.log(4) + 1, rel=1e-7)
    # The ramp as in the paper: dimension whose wavelength makes beta rotations in the original context.
    low = math.floor(128 * math.log(32768 / (32 * 2 * math.pi)) / (2 * math.log(1e6)))
    high = math.ceil(128 * math.log(32768 / (2 * math.pi)) / (2 * math.log(1e6)))
    mix = 1 - np.clip((np.arange(64) - low) / (high - low), 0, 1)
    expected = plain(1e6, 128) / 4 * (1 - mix) + plain(1e6, 128) * mix
    assert np.abs(table.inv_freq / expected - 1).max() < 1e-6


def test_rounding_is_to_the_nearest_float32_once() -> None:
    # Just above the midpoint of two float32, by less than float64 can tell: rounding through float64 would go down.
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2))
    midpoint = (Decimal(float(low)) + Decimal(float(high))) / 2
    assert nearest_float32(midpoint + Decimal("1e-20")) == high
    assert nearest_float32(midpoint - Decimal("1e-20")) == low
