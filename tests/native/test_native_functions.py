"""Functions, sums and weight values of the extension against their NumPy definitions, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from isobit import _native
from isobit.backends import arithmetic, functions
from isobit.quants import SUPPORTED_NAMES, TYPES_BY_NAME, dequantize

Floats = npt.NDArray[np.float32]
ISAS = _native.available_isas()
TINY = [0, 1e-45, 1e-40, 2**-126]
HOSTILE = np.array([*TINY, 0.5, 0.625, 1 - 2**-24, 1, 88.7, 89, 103.9, 104, 1e10, 3.4e38, np.inf], np.float32)
FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "exp": functions.exp,
    "sigmoid": functions.sigmoid,
    "silu": functions.silu,
    "gelu": functions.gelu,
    "tanh": functions.tanh,
}


def assert_same_bits(found: Floats, expected: Floats) -> None:
    """Equal as bits, except that one NaN is as good as another."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


def any_pattern(seed: int, count: int) -> Floats:
    """Random bit patterns: every float32 that is a number."""
    x = np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    return np.where(np.isnan(x), np.float32(1), x)


def ordinary(seed: int, count: int) -> Floats:
    """Magnitudes at which the functions bend."""
    random = np.random.default_rng(seed)
    return (random.normal(size=count) * random.choice([0.1, 1, 10, 60], count)).astype(np.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("count", [1, 7, 16, 20011])
def test_functions(isa: str, name: str, count: int) -> None:
    for x in (any_pattern(count, count), ordinary(count, count), HOSTILE, -HOSTILE):
        assert_same_bits(_native.apply_function(isa, name, x)[0], FUNCTIONS[name](x))


@pytest.mark.parametrize("isa", ISAS)
def test_sine_and_cosine(isa: str) -> None:
    random = np.random.default_rng(3)
    angles = (random.normal(size=20011) * np.exp2(random.integers(-40, 18, 20011))).astype(np.float32)
    x = np.concatenate([angles, HOSTILE[:12], -HOSTILE[:12], [2.0**21 - 1]]).astype(np.float32)
    sine, cosine = functions.sincos(x)
    assert_same_bits(_native.apply_function(isa, "sin", x)[0], sine)
    assert_same_bits(_native.apply_function(isa, "cos", x)[0], cosine)


@pytest.mark.parametrize("isa", ISAS)
def test_logarithm(isa: str) -> None:
    patterns = np.random.default_rng(4).integers(0x00800000, 0x7F800000, 20011, dtype=np.uint32)
    x = patterns.view(np.float32)
    assert_same_bits(_native.apply_function(isa, "log", x)[0], functions.log(x))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("count", [1, 15, 16, 17, 255, 256, 257, 1000, 70000])
def test_striped_sum(isa: str, count: int) -> None:
    x = ordinary(count, count) * np.exp2(np.random.default_rng(count).integers(-90, 30, count)).astype(np.float32)
    found = np.float32(_native.sum_striped(isa, x))
    assert found.tobytes() == np.float32(arithmetic.sum_striped(x)).tobytes()


@pytest.mark.parametrize("name", SUPPORTED_NAMES)
def test_row_values(name: str) -> None:
    """Random bytes, and so scales of every kind: infinite and not a number too."""
    kind = TYPES_BY_NAME[name]
    columns = {1: 333, 32: 416, 256: 768}[kind.block_size]
    random = np.random.default_rng(kind.ggml_id)
    for row in random.integers(0, 256, (200, kind.num_bytes((columns,))), dtype=np.uint8):
        assert_same_bits(_native.row_values(row, kind.ggml_id, columns)[0], dequantize(kind, row, (columns,)))


def test_arguments_are_checked() -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="function"):
        _native.apply_function("scalar", "gamma", x)
    with pytest.raises(ValueError, match="instruction set"):
        _native.apply_function("mmx", "exp", x)
    with pytest.raises(ValueError, match="row"):
        _native.row_values(np.zeros(17, np.uint8), TYPES_BY_NAME["Q4_0"].ggml_id, 32)
    with pytest.raises(ValueError, match="row"):
        _native.row_values(np.zeros(18, np.uint8), 16, 32)
