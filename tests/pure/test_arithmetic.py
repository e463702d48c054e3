"""Exact float32 arithmetic against fractions, and the order of long sums against plain loops."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers import scalar
from isobit.backends.arithmetic import (
    FloatArray,
    fma,
    polynomial,
    power_of_two,
    round_to_integer,
    sum_striped,
    tree_sum,
)

TINY = 2.0**-149  # the smallest subnormal
NORMAL = 2.0**-126
HUGE = float(np.finfo(np.float32).max)
HOSTILE = [0.0, TINY, 3 * TINY, NORMAL - TINY, NORMAL, 1.0, 1 + 2.0**-23, 1 - 2.0**-24, 1 + 2.0**-12, 3.0, 2.0**64,
           2.0**127, HUGE]  # fmt: skip


def bits(x: object) -> npt.NDArray[np.uint32]:
    return np.asarray(x, np.float32).view(np.uint32)


def assert_same(found: FloatArray, expected: object) -> None:
    """The same bits, signs of zeros included; one NaN is as good as another."""
    assert found.dtype == np.float32
    wanted = np.asarray(expected, np.float32)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(bits(found)[~np.isnan(wanted)], bits(wanted)[~np.isnan(wanted)])


def check_fma(a: FloatArray, b: FloatArray, c: FloatArray) -> None:
    triples = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    with np.errstate(over="ignore"):
        assert_same(fma(a, b, c), [scalar.fma(*triple) for triple in triples])


def random_patterns(rng: np.random.Generator, count: int) -> FloatArray:
    """Finite float32 of all exponents, subnormals included."""
    patterns = rng.integers(0, 0x7F800000, count, dtype=np.uint32)
    return (patterns | rng.integers(0, 2, count, dtype=np.uint32) << np.uint32(31)).view(np.float32)


def finite(draw_bits: int) -> float:
    pattern = draw_bits & 0x7FFFFFFF
    return scalar.from_bits((pattern if pattern < 0x7F800000 else pattern - 0x7F800000) | draw_bits & 0x80000000)


floats = st.integers(0, 2**32 - 1).map(finite)


def test_oracle_rounds_as_binary64_does_when_that_is_exact() -> None:
    rng = np.random.default_rng(1)
    for value in (rng.standard_normal(500) * 2.0 ** rng.integers(-150, 130, 500)).tolist():
        with np.errstate(over="ignore", under="ignore"):
            assert scalar.nearest(Fraction(value)) == np.float32(value)


def test_fma_of_random_patterns() -> None:
    rng = np.random.default_rng(2)
    check_fma(*(random_patterns(rng, 8000) for _ in range(3)))


def test_fma_where_product_and_addend_are_of_like_size() -> None:
    rng = np.random.default_rng(3)
    a, b = random_patterns(rng, 20000), random_patterns(rng, 20000)
    with np.errstate(over="ignore", under="ignore"):
        product = (a.astype(np.float64) * b).astype(np.float32)
    kept = np.isfinite(product)
    a, b, product = a[kept], b[kept], product[kept]
    with np.errstate(over="ignore"):
        c = np.ldexp(-product, rng.integers(-26, 27, len(a))).astype(np.float32)
    c[np.isinf(c)] = HUGE
    check_fma(a, b, c)


def test_fma_cancels_to_the_error_of_the_product() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(3000).astype(np.float32) for _ in range(2))
    error = fma(a, b, -(a * b))
    np.testing.assert_array_equal(error.astype(np.float64), a.astype(np.float64) * b - (a * b).astype(np.float64))
    assert np.count_nonzero(error) > 2000


def test_fma_just_beside_a_tie() -> None:
    """(1 + 2^-12)² = 1 + 2^-11 + 2^-24 lies between two float32; a tiny addend decides."""
    a = np.full(6, 1 + 2.0**-12, np.float32)
    c = np.array([0.0, -0.0, TINY, -TINY, 2.0**-60, -(2.0**-60)], np.float32)
    low, high = 1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-23
    assert_same(fma(a, a, c), [low, low, high, low, high, low])
    naive = (a.astype(np.float64) * a + c).astype(np.float32)
    assert naive.tolist() != fma(a, a, c).tolist()  # two roundings do not do


def test_fma_ties_in_every_binade_and_among_subnormals() -> None:
    rng = np.random.default_rng(5)
    exponents = np.repeat(np.arange(-126, 127), 24)
    odd = rng.integers(2**23, 2**24, len(exponents)).astype(np.float64) * 2 + 1  # 25 bits: halfway
    base = np.floor(odd / 2**12)
    c = np.ldexp(odd - base * 2**12, exponents - 24).astype(np.float32)  # 12 bits, exact
    a = np.ldexp(base, np.maximum(exponents - 24 + 12, -140)).astype(np.float32)
    b = np.ldexp(1.0, exponents - 24 + 12 - np.maximum(exponents - 24 + 12, -140)).astype(np.float32)
    check_fma(a, b, c)
    small = np.arange(1, 64, dtype=np.float32) * np.float32(TINY)
    check_fma(small, np.full_like(small, 0.5), np.zeros_like(small))
    check_fma(small, np.full_like(small, -0.5), small)


def test_fma_near_overflow() -> None:
    half_ulp = 2.0**103
    c = [half_ulp, np.nextafter(np.float32(half_ulp), np.float32(0)), half_ulp / 2, -half_ulp, HUGE, -HUGE]
    check_fma(np.full(6, HUGE, np.float32), np.ones(6, np.float32), np.array(c, np.float32))
    assert np.isinf(fma(np.float32(HUGE), np.float32(1), np.float32(half_ulp)))
    assert fma(np.float32(HUGE), np.float32(2), np.float32(-HUGE)) == HUGE  # the product alone would overflow


def test_fma_of_all_hostile_triples() -> None:
    values = np.array([*HOSTILE, *(-v for v in HOSTILE)], np.float32)
    a, b, c = (g.ravel() for g in np.meshgrid(values, values, values))
    check_fma(a, b, c)


@pytest.mark.parametrize("a", [math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0, -HUGE])
@pytest.mark.parametrize("b", [math.inf, math.nan, 0.0, -2.0])
@pytest.mark.parametrize("c", [math.inf, -math.inf, math.nan, 0.0, -0.0, 5.0])
def test_fma_of_infinities_nan_and_zeros(a: float, b: float, c: float) -> None:
    expected = np.array(a * b + c).astype(np.float64)  # nothing rounds here but overflow, which HUGE · −2 shows
    with np.errstate(over="ignore"):
        assert_same(fma(np.float32(a), np.float32(b), np.float32(c)), expected.astype(np.float32))


@settings(max_examples=400)
@given(floats, floats, floats)
@example(TINY, 0.5, 0.0)
@example(TINY, 0.5, -0.0)
@example(-TINY, 0.25, 0.0)
def test_fma_property(a: float, b: float, c: float) -> None:
    check_fma(*(np.array([v], np.float32) for v in (a, b, c)))


def test_fma_broadcasts_and_leaves_its_arguments() -> None:
    a, b = np.ones((3, 1), np.float32), np.full(4, 2, np.float32)
    assert fma(a, b, np.float32(1)).tolist() == [[3.0] * 4] * 3
    assert a.tolist() == [[1.0]] * 3
    assert b.tolist() == [2.0] * 4
    assert fma(np.zeros((0, 4), np.float32), b, b).shape == (0, 4)


def test_warnings_are_silent_inside_only() -> None:
    before = np.geterr()
    fma(np.float32(HUGE), np.float32(2), np.float32(0))
    assert np.geterr() == before
    with pytest.warns(RuntimeWarning, match="overflow"):
        np.float32(HUGE) * np.float32(2)


@given(st.integers(-(2**22) + 1, 2**22 - 1), st.sampled_from([0.0, 0.25, 0.5, 0.75]))
def test_round_to_integer(whole: int, part: float) -> None:
    value = np.array([whole + part], np.float32)
    if abs(value[0]) < 2**22:
        assert_same(round_to_integer(value), [float(round(float(value[0])))])


def test_round_to_integer_never_gives_minus_zero() -> None:
    assert_same(round_to_integer(np.array([-0.0, -0.4, -0.5, 0.5, 1.5, -1.5], np.float32)), [0, 0, 0, 0, 2, -2])


def test_power_of_two() -> None:
    exponents = np.arange(-126, 128, dtype=np.int32)
    assert_same(power_of_two(exponents), np.ldexp(np.float32(1), exponents))


def test_polynomial_takes_the_constant_first() -> None:
    coefficients = [np.float32(c) for c in (5, 3, 2)]
    assert polynomial(np.array([10, -1], np.float32), coefficients).tolist() == [235.0, 4.0]


def test_tree_sum_by_hand() -> None:
    """Chunks 0 and 2 … 6: ((c0 + (c2 + c3)) + ((c4 + c5) + c6)), every addition rounding."""
    values = {0: 1.0, 2: 2.0**24, 3: 3.0, 4: -(2.0**24), 5: 5.0, 6: 2.0**-20}
    c = {number: np.float32(value) for number, value in values.items()}
    expected = (c[0] + (c[2] + c[3])) + ((c[4] + c[5]) + c[6])
    assert_same(tree_sum([(n, np.array([v])) for n, v in c.items()]), [expected])
    assert expected != np.float32(sum(values.values()))


@given(st.integers(0, 70), st.lists(floats, min_size=1))
def test_tree_sum_is_the_binary_counter(first: int, values: list[float]) -> None:
    found = tree_sum((number, np.array([value], np.float32)) for number, value in enumerate(values, first))
    assert_same(found, [scalar.tree(enumerate(values, first))])


@given(st.dictionaries(st.integers(0, 70), floats, min_size=1))
def test_tree_sum_with_gaps(chunks: dict[int, float]) -> None:
    def node(level: int, number: int) -> float | None:
        if level == 0:
            return chunks.get(number)
        left, right = node(level - 1, 2 * number), node(level - 1, 2 * number + 1)
        if left is None or right is None:
            return right if left is None else left
        return scalar.add(left, right)

    found = tree_sum((number, np.array([value], np.float32)) for number, value in chunks.items())
    assert_same(found, [node(7, 0)])


def test_tree_sum_of_one_chunk_is_that_chunk() -> None:
    assert_same(tree_sum([(13, np.array([-0.0], np.float32))]), [-0.0])


@pytest.mark.parametrize("squares", [False, True])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 255, 256, 257, 576, 1200])
def test_sum_striped(count: int, squares: bool) -> None:
    rng = np.random.default_rng(count)
    x = (rng.standard_normal((2, count)) * 2.0 ** rng.integers(-8, 8, (2, count))).astype(np.float32)
    expected = [scalar.striped(enumerate(row), squares) for row in x.tolist()]
    assert_same(sum_striped(x, squares=squares), expected)


def test_sum_striped_by_hand() -> None:
    """Lane 0 loses both its ones to 2^24, lanes 1 and 3 meet before they reach it."""
    x = np.zeros(40, np.float32)
    x[[0, 16, 32, 1, 3]] = 2.0**24, 1, 1, 1, 1
    assert sum_striped(x) == 2.0**24 + 2


@pytest.mark.parametrize("first", [3, 250, 256, 511, 5000])
def test_sum_striped_from_a_later_index(first: int) -> None:
    x = np.random.default_rng(first).standard_normal(300).astype(np.float32)
    assert_same(sum_striped(x, first=first), scalar.striped(enumerate(x.tolist(), first)))


def test_sum_striped_of_minus_zeros_and_subnormals() -> None:
    x = np.array([-0.0] * 20, np.float32)
    assert_same(sum_striped(x), 0.0)
    x[3] = -TINY
    assert_same(sum_striped(x), -TINY)
    assert_same(sum_striped(np.zeros((0, 40), np.float32)), np.zeros(0))
