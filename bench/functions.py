"""Measures the errors of the functions of docs/numerics.md, section 1.3, and writes docs/functions.md.

    python bench/functions.py [--points N] [--out FILE]        (takes some minutes)

Half of the points of a domain are spread evenly over its values, half over its bit patterns (so that each exponent
gets its share). The true value comes from NumPy's longdouble; the worst points found are measured once more
with mpmath, so where longdouble is no wider than float64 the figures still hold at those points.
An ulp is the spacing of float32 at the true value (2^-149 among subnormals).
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mpmath
import numpy as np
import numpy.typing as npt

from isobit.backends import functions
from isobit.backends.arithmetic import FloatArray

POINTS = 1 << 24
AT_ONCE = 1 << 16
WORST = 3  # points per piece of AT_ONCE that mpmath looks at
SEED = 20_240_607
DEFAULT_OUT = Path(__file__).parents[1] / "docs" / "functions.md"

LongArray = npt.NDArray[np.longdouble]


@dataclass(frozen=True)
class Case:
    """A function, its truth in longdouble and in mpmath, and the domain of |x| or x."""

    name: str
    ours: Callable[[FloatArray], FloatArray]
    wide: Callable[[LongArray], LongArray]
    exact: Callable[[mpmath.mpf], mpmath.mpf]
    low: float
    high: float
    ulp: bool = True  # False where a relative error is not promised
    absolute: bool = True  # False where results are too large for an absolute error to mean anything


@dataclass(frozen=True)
class Errors:
    """The largest errors seen, in ulp and absolute, each with the x where it was."""

    ulp: float
    ulp_at: float
    absolute: float
    absolute_at: float


def _gelu_inner(x: LongArray) -> LongArray:
    root = np.sqrt(np.longdouble(8) / (4 * np.arctan(np.longdouble(1))))
    return root * (x + np.longdouble("0.044715") * x * x * x)


def _exact_gelu(x: mpmath.mpf) -> mpmath.mpf:
    inner = mpmath.sqrt(8 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)
    return x / (1 + mpmath.exp(-inner))


def _cos(x: FloatArray) -> FloatArray:
    return functions.sincos(x)[1]


def _sin(x: FloatArray) -> FloatArray:
    return functions.sincos(x)[0]


MAX = float(np.finfo(np.float32).max)
CASES = (
    Case("exp", functions.exp, np.exp, mpmath.exp, -104, 89, absolute=False),
    Case("sigmoid", functions.sigmoid, lambda x: 1 / (1 + np.exp(-x)), lambda x: 1 / (1 + mpmath.exp(-x)), -20, 20),
    Case("silu", functions.silu, lambda x: x / (1 + np.exp(-x)), lambda x: x / (1 + mpmath.exp(-x)), -20, 20),
    Case("gelu", functions.gelu, lambda x: x / (1 + np.exp(-_gelu_inner(x))), _exact_gelu, -20, 20, ulp=False),
    Case("gelu, −2 to 20", functions.gelu, lambda x: x / (1 + np.exp(-_gelu_inner(x))), _exact_gelu, -2, 20),
    Case("tanh", functions.tanh, np.tanh, mpmath.tanh, -20, 20),
    Case("sin, below 100", _sin, np.sin, mpmath.sin, -100, 100),
    Case("cos, below 100", _cos, np.cos, mpmath.cos, -100, 100),
    Case("sin", _sin, np.sin, mpmath.sin, -(2.0**20), 2.0**20, ulp=False),
    Case("cos", _cos, np.cos, mpmath.cos, -(2.0**20), 2.0**20, ulp=False),
    Case("log", functions.log, np.log, mpmath.log, 2.0**-126, MAX),
    Case("log, 0.5 to 2", functions.log, np.log, mpmath.log, 0.5, 2),
)


def sample(low: float, high: float, points: int, seed: int = SEED) -> FloatArray:
    """float32 [points] in [low, high]: half of them even in value, half even in bit pattern."""
    rng = np.random.default_rng(seed)
    even = rng.uniform(low, high, points // 2).astype(np.float32)
    # Sign-magnitude patterns, made consecutive across zero.
    ends = [_order(np.float32(end)) for end in (low, high)]
    order = rng.integers(*ends, points - points // 2, endpoint=True)
    patterns = (np.abs(order) | (order < 0) * 2**31).astype(np.uint32).view(np.float32)
    return np.clip(np.concatenate([even, patterns]), np.float32(low), np.float32(high))


def _order(x: np.float32) -> int:
    pattern = int(np.abs(x).view(np.uint32))
    return -pattern if x < 0 else pattern


def measure(case: Case, points: int, seed: int = SEED) -> Errors:
    """The largest errors of one function."""
    best = Errors(0.0, 0.0, 0.0, 0.0)
    for x in _pieces(sample(case.low, case.high, points, seed)):
        with np.errstate(under="ignore"):
            truth = case.wide(x.astype(np.longdouble))
        found = case.ours(x)
        kept = np.isfinite(found) & (np.abs(truth) <= MAX)
        error = np.where(kept, np.abs(found.astype(np.longdouble) - truth), 0)
        candidates = [*np.argsort(error)[-WORST:], *np.argsort(error / _spacing(truth))[-WORST:]]
        for i in candidates:
            best = _worse(best, case, float(x[i]), float(found[i]))
    return best


def _pieces(x: FloatArray) -> Iterator[FloatArray]:
    for start in range(0, len(x), AT_ONCE):
        yield x[start : start + AT_ONCE]


def _spacing(truth: LongArray) -> LongArray:
    """The ulp of float32 at each true value."""
    exponent = np.frexp(np.abs(truth))[1] - 1
    return np.ldexp(np.longdouble(1), np.where(truth == 0, -126, np.maximum(exponent, -126)) - 23)


def _worse(best: Errors, case: Case, x: float, found: float) -> Errors:
    with mpmath.workprec(160):
        truth = case.exact(mpmath.mpf(x))
        error = abs(mpmath.mpf(found) - truth)
        exponent = max(int(mpmath.frexp(truth)[1]) - 1, -126) if truth else -126
        ulp, absolute = float(mpmath.ldexp(error, 23 - exponent)), float(error)
    return Errors(
        *((ulp, x) if ulp > best.ulp else (best.ulp, best.ulp_at)),
        *((absolute, x) if absolute > best.absolute else (best.absolute, best.absolute_at)),
    )


def table(points: int) -> Iterator[str]:
    """The lines of the document."""
    yield "# Measured errors of the functions"
    yield ""
    yield f"Made by `python bench/functions.py --points {points}`; do not edit. Sampling, ulp: see that file."
    yield f"True values: NumPy longdouble ({np.finfo(np.longdouble).nmant + 1} bits), the worst points with mpmath."
    yield "The bits of the functions are the same everywhere, so the figures are too."
    yield ""
    yield "| function | domain | largest error seen, ulp | at x | largest absolute error seen | at x |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for case in CASES:
        e = measure(case, points)
        ulp, at = (f"{e.ulp:.3f}", f"{e.ulp_at:.9g}") if case.ulp else ("–", "–")
        absolute, there = (f"{e.absolute:.3e}", f"{e.absolute_at:.9g}") if case.absolute else ("–", "–")
        yield f"| {case.name} | {case.low:.9g} to {case.high:.9g} | {ulp} | {at} | {absolute} | {there} |"
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    arguments = parser.parse_args()
    text = "\n".join(table(arguments.points))
    arguments.out.write_text(text, encoding="utf-8")
    print(text)
    print(f"(on {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__})")


if __name__ == "__main__":
    main()
