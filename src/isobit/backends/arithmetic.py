"""Exact float32 arithmetic in NumPy: what docs/numerics.md, section 1, builds everything from.

NumPy's float32 `+ - * /` and `sqrt` are IEEE operations already; this module adds the ones it does not have. All
functions work element by element on float32 arrays (with broadcasting), return new ones, and never warn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
FloatLike = FloatArray | np.float32
IntArray = npt.NDArray[np.int32]

CHUNK = 256
"""Consecutive terms of a long sum that are added one after the other (section 1.1)."""

LANES = 16
"""Lanes of a striped sum (section 1.2)."""

ROUNDER = np.float32(12582912.0)
"""M of the text, 1.5 · 2^23: its last mantissa bit is worth 1, so adding it rounds to an integer."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def quiet(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function` without NumPy's warnings: infinities and NaN are values here, and each operation checks its own."""

    @wraps(function)
    def silent(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return silent


@quiet
def fma(a: FloatLike, b: FloatLike, c: FloatLike) -> FloatArray:
    """a · b + c with one rounding.

    The product of two float32 is exact in float64, and TwoSum (Knuth, TAOCP 2, 4.2.2) gives the error of adding c.
    The float64 sum is then rounded to odd: cut towards zero, and its last bit set if anything was lost. Rounding
    that to float32 equals rounding the exact value (Boldo and Melquiond, "Emulation of FMA and correctly
    rounded sums", 2008), also where the result is subnormal or overflows.
    """
    product = np.multiply(a, b, dtype=np.float64)
    addend = np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    part = total - product
    error = (product - (total - part)) + (addend - part)
    # error · total: neither overflows nor underflows; NaN where total is not finite, and then nothing is changed.
    lean = error * total
    bits = total.view(np.int64)
    bits -= lean < 0
    bits |= np.abs(lean) > 0
    return total.astype(np.float32)


def bits_of(x: FloatLike) -> IntArray:
    """The bit pattern as int32."""
    return np.asarray(x, np.float32).view(np.int32)


def power_of_two(exponent: IntArray) -> FloatArray:
    """2^exponent for −126 ≤ exponent ≤ 127."""
    bits: IntArray = (exponent + np.int32(127)) << np.int32(23)
    return bits.view(np.float32)


def round_to_integer(x: FloatArray) -> FloatArray:
    """The nearest integer, ties to even, for |x| < 2^22 (`rne` of the text); a zero result is +0."""
    rounded: FloatArray = (x + ROUNDER) - ROUNDER
    return rounded


def polynomial(x: FloatArray, coefficients: Sequence[np.float32]) -> FloatArray:
    """Horner's rule with fma; `coefficients` has the constant first."""
    value = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = fma(value, x, coefficient)
    return value


@quiet
def tree_sum(chunks: Iterable[tuple[int, FloatArray]]) -> FloatArray:
    """The sum over the aligned binary tree of (chunk number, chunk sum); absent chunks take no part."""
    nodes = dict(chunks)
    while len(nodes) > 1:
        parents: dict[int, FloatArray] = {}
        for number, value in sorted(nodes.items(), key=lambda node: node[0]):
            parent = number >> 1
            parents[parent] = parents[parent] + value if parent in parents else value
        nodes = parents
    return next(iter(nodes.values()))


@quiet
def sum_striped(x: FloatArray, *, first: int = 0, squares: bool = False) -> FloatArray:
    """The striped sum along the last axis (at least one term), float32 [...]; of squares, by fma, if `squares`.

    `first` is the index of x[..., 0], which decides its chunk and lane. Indices without a term are filled with +0:
    a lane starts at +0 and so is never −0, hence adding +0 (or +0 · +0) changes no bit.
    """
    before, after = first % CHUNK, -(first + x.shape[-1]) % CHUNK
    chunks = (before + x.shape[-1] + after) // CHUNK
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(before, after)])
    terms = padded.reshape(*x.shape[:-1], chunks, CHUNK // LANES, LANES)
    lanes = np.zeros_like(terms[..., 0, :])
    for step in range(CHUNK // LANES):
        term = terms[..., step, :]
        lanes = fma(term, term, lanes) if squares else lanes + term
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    sums = lanes[..., 0]
    return tree_sum((first // CHUNK + i, sums[..., i]) for i in range(chunks))


class NonFiniteError(Exception):
    """A value that section 4 forbids, in this row of the operation's tokens."""

    def __init__(self, row: int, value: float) -> None:
        super().__init__(row, value)
        self.row, self.value = row, value


def require_finite(values: FloatArray) -> None:
    """Raises NonFiniteError for the lowest row of [rows, …] that holds an infinity or NaN."""
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise NonFiniteError(int(bad[0, 0]), float(values[tuple(bad[0])]))
