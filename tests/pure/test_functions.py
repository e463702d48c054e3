"""The elementary functions: their bits against scalar formulations, their errors against docs/functions.md."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from isobit.backends import functions
from isobit.backends.arithmetic import FloatArray

ROOT = Path(__file__).parents[2]
Pair = tuple[Callable[[FloatArray], FloatArray], Callable[[float], float]]

PAIRS: dict[str, Pair] = {
    "exp": (functions.exp, scalar.exp),
    "sigmoid": (functions.sigmoid, scalar.sigmoid),
    "silu": (functions.silu, scalar.silu),
    "gelu": (functions.gelu, scalar.gelu),
    "tanh": (functions.tanh, scalar.tanh),
    "sin": (lambda x: functions.sincos(x)[0], lambda x: scalar.sincos(x)[0]),
    "cos": (lambda x: functions.sincos(x)[1], lambda x: scalar.sincos(x)[1]),
    "log": (functions.log, scalar.log),
}
# Around every place where a formula changes or clamps, and where results become subnormal, zero or infinite.
EDGES = [0.0, 2.0**-149, 2.0**-126, 2.0**-30, 0.625, 0.6249999, 1.0, 16.0, 44.0, 44.5, 86.9, 87.3, 88.02,
         88.72284, 88.73, 89.0, 103.0, 103.97, 104.0, 105.0, 1e4]  # fmt: skip
BEYOND = [1e10, 1e19, 1e20, 3.4028235e38]


def assert_same(found: FloatArray, expected: list[float]) -> None:
    wanted = np.array(expected, np.float32)
    assert found.dtype == np.float32
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found.view(np.uint32)[~nan], wanted.view(np.uint32)[~nan])


def inputs(name: str) -> FloatArray:
    rng = np.random.default_rng(sum(name.encode()))
    if name == "log":
        patterns = rng.integers(0x00800000, 0x7F800000, 1500, dtype=np.uint32).view(np.float32)
        around = np.float32([1.0, np.sqrt(0.5), np.sqrt(2), 2.0])
        return np.concatenate([patterns, 2 * rng.random(500, np.float32) + np.float32(0.01), around])
    edges = np.float32(EDGES if name in ("sin", "cos") else EDGES + BEYOND)
    spread = rng.uniform(-110, 110, 800).astype(np.float32)
    small = rng.standard_normal(400).astype(np.float32)
    extra = rng.uniform(-(2**21), 2**21, 800).astype(np.float32) if name in ("sin", "cos") else small * 10
    return np.concatenate([edges, -edges, spread, small, extra])


@pytest.mark.parametrize("name", PAIRS)
def test_bits_are_those_of_the_text(name: str) -> None:
    ours, theirs = PAIRS[name]
    x = inputs(name)
    assert_same(ours(x), [theirs(v) for v in x.tolist()])


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bits_for_any_finite_x(x: float) -> None:
    for name in ("exp", "sigmoid", "silu", "gelu", "tanh"):
        ours, theirs = PAIRS[name]
        assert_same(ours(np.array([x], np.float32)), [theirs(x)])


def test_known_values() -> None:
    assert_same(
        functions.exp(np.float32([0.0, -0.0, -104.0, -math.inf, 89.0, math.inf])), [1, 1, 0, 0] + [math.inf] * 2
    )
    assert_same(functions.tanh(np.float32([0.0, -0.0, 20.0, -20.0, math.inf, -math.inf])), [0.0, -0.0, 1, -1, 1, -1])
    assert_same(functions.sigmoid(np.float32([0.0, 200.0, -200.0])), [0.5, 1.0, 0.0])
    assert_same(functions.silu(np.float32([0.0, -0.0, 30.0])), [0.0, -0.0, 30.0])
    assert_same(functions.gelu(np.float32([0.0, -0.0, 30.0])), [0.0, -0.0, 30.0])
    assert_same(functions.log(np.float32([1.0])), [0.0])
    sin, cos = functions.sincos(np.float32([0.0, -0.0]))
    assert_same(sin, [0.0, 0.0])
    assert_same(cos, [1.0, 1.0])


@pytest.mark.parametrize("name", sorted(set(PAIRS) - {"log"}))
def test_nan_stays_nan(name: str) -> None:
    assert np.isnan(PAIRS[name][0](np.float32([math.nan]))).all()


@pytest.mark.parametrize("name", ["tanh", "sin"])
def test_odd_functions(name: str) -> None:
    x = inputs(name)
    x = x[x != 0]  # sin(−0) is +0
    assert_same(PAIRS[name][0](-x), (-PAIRS[name][0](x)).tolist())


def test_constants_are_exact_and_those_of_the_text() -> None:
    text = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")
    section = text[text.index("### 1.3 ") : text.index("## 2. ")].replace("−", "-")
    written = {abs(float.fromhex(word)) for word in re.findall(r"0x1[0-9a-f.]*p[+-]\d+", section)}
    groups = [v for k, v in vars(functions).items() if k.startswith("_") and isinstance(v, np.float32 | tuple)]
    used = {abs(float(c)) for group in groups for c in np.atleast_1d(group)}
    assert written <= used
    assert used - written <= {1.0, 2.0, 104.0, 89.0, 0.625}


def test_log_softmax() -> None:
    logits = (np.random.default_rng(8).standard_normal((2, 700)) * 5).astype(np.float32)
    for row, found in zip(logits.tolist(), functions.log_softmax(logits), strict=True):
        shifted = [scalar.sub(v, max(row)) for v in row]
        total = scalar.log(scalar.striped(enumerate(map(scalar.exp, shifted))))
        assert_same(found, [scalar.sub(v, total) for v in shifted])
    assert abs(np.exp(functions.log_softmax(logits[0]).astype(np.float64)).sum() - 1) < 1e-5


def load_bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_functions", ROOT / "bench" / "functions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


BENCH = load_bench()


def recorded() -> dict[str, list[str]]:
    rows = {}
    for line in (ROOT / "docs" / "functions.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6:
            rows[cells[0]] = cells[1:]
    return rows


@pytest.mark.parametrize("case", BENCH.CASES, ids=lambda case: case.name)
def test_errors_are_within_the_record(case: object) -> None:
    """A smaller sample with another seed; it must also come near the record, or the record is of something else."""
    _, ulp, _, absolute, _ = recorded()[case.name]  # type: ignore[attr-defined]
    errors = BENCH.measure(case, 1 << 14, seed=99)
    assert ulp != "–" or absolute != "–"
    if ulp != "–":
        assert 0.4 * float(ulp) < errors.ulp <= float(ulp)
    if absolute != "–":
        assert 0.4 * float(absolute) < errors.absolute <= float(absolute)


def test_the_measure_sees_an_error() -> None:
    """Doubling the argument's last bit is an error of about |x| · ulp, which must show."""
    case = next(case for case in BENCH.CASES if case.name == "exp")
    shifted = BENCH.Case(
        "shifted", lambda x: functions.exp(np.nextafter(x, np.float32(200))), case.wide, case.exact, 8, 80
    )
    assert BENCH.measure(shifted, 4096).ulp > 10
