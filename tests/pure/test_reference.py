"""Each operation of the reference backend against plain loops over scalars, on random and hostile values."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from helpers import scalar
from helpers.matrices import Matrix, random_matrix
from isobit.backends import reference, reference_linear
from isobit.backends.arithmetic import FloatArray
from isobit.ops import Attention, RopeTable
from isobit.quants import SUPPORTED_NAMES, TYPES_BY_NAME, decompose, dequantize

INTEGER_NAMES = [name for name in SUPPORTED_NAMES if not TYPES_BY_NAME[name].is_float]
TINY = 2.0**-149


def hostile_inputs(tokens: int, width: int, seed: int) -> FloatArray:
    """Groups of zeros, subnormals, values around 2^-100; in the second row also of size 1, in later ones huge."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, width)).astype(np.float32)
    scales = np.float32([0.0, -0.0, TINY, 2.0**-140, 2.0**-101, 2.0**-100, 1.0, 2.0**60, 2.0**125])
    for token, allowed in zip(range(tokens), (6, 7, 8, 9), strict=False):
        x[token] *= np.repeat(rng.choice(scales[:allowed], width // 32), 32)
    x[:, rng.integers(0, width, width // 8)] = 0
    x[-1, :32] = np.float32(2.0**-100)  # just large enough to count
    x[-1, 5] = -0.0
    return x


def scalar_linear(x: FloatArray, matrix: Matrix, activations: str) -> list[list[float]]:
    if matrix.type.is_float:
        weights = dequantize(matrix.type, matrix.data, matrix.shape).tolist()
        return [[scalar.linear_float(w, row) for w in weights] for row in x.tolist()]
    blocks = decompose(matrix.type, matrix.data, matrix.shape)
    minima = [None] * len(blocks.codes) if blocks.minimum is None else blocks.minimum.tolist()
    parts = zip(blocks.codes.tolist(), blocks.scale.tolist(), minima, strict=True)
    rows = [scalar.Row(q, s, m, blocks.sub) for q, s, m in parts]
    product = scalar.linear_int16 if activations == "int16" else scalar.linear_int8
    return [[product(row, token) for row in rows] for token in x.tolist()]


def assert_same(found: FloatArray, expected: object) -> None:
    wanted = np.asarray(expected, np.float32)
    assert found.dtype == np.float32
    assert found.shape == wanted.shape
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found.view(np.uint32)[~nan], wanted.view(np.uint32)[~nan])


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize("name", INTEGER_NAMES)
def test_linear_of_every_integer_type(name: str, activations: str) -> None:
    columns = 512 if TYPES_BY_NAME[name].block_size == 256 else 352  # 11 blocks: the last chunk has three
    matrix = random_matrix(name, 3, columns, seed=1)
    x = np.random.default_rng(2).standard_normal((2, columns)).astype(np.float32)
    assert_same(reference.linear(x, matrix, None, activations), scalar_linear(x, matrix, activations))


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize("name", ["Q8_0", "Q4_1", "Q2_K", "Q6_K", "Q4_K"])
def test_linear_of_hostile_values(name: str, activations: str) -> None:
    columns = 512
    matrix = random_matrix(name, 2, columns, seed=3, hostile=True)
    x = hostile_inputs(4, columns, seed=4)
    expected = scalar_linear(x, matrix, activations)
    assert np.isfinite(expected[:3]).all()
    assert_same(reference.linear(x, matrix, None, activations), expected)


@pytest.mark.parametrize("columns", [32, 224, 256, 288, 800])
@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_linear_of_every_shape_of_the_last_chunk(columns: int, activations: str) -> None:
    matrix = random_matrix("Q5_1", 2, columns, seed=columns)
    x = np.random.default_rng(columns).standard_normal((1, columns)).astype(np.float32)
    assert_same(reference.linear(x, matrix, None, activations), scalar_linear(x, matrix, activations))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("columns", [1, 255, 300, 520])
def test_linear_of_float_weights(name: str, columns: int) -> None:
    matrix = random_matrix(name, 3, columns, seed=5)
    x = np.random.default_rng(6).standard_normal((2, columns)).astype(np.float32)
    expected = scalar_linear(x, matrix, "int8")
    for activations in ("int8", "int16"):
        assert_same(reference.linear(x, matrix, None, activations), expected)


def test_linear_by_hand() -> None:
    """One Q8_0 block: d = 0.5, codes 1 … 32; x = −127 and 2, so d_x = 1 and the codes are x."""
    data = np.concatenate([np.float16([0.5]).view(np.uint8), np.arange(1, 33, dtype=np.uint8)])
    x = np.zeros((1, 32), np.float32)
    x[0, :2] = -127, 2
    matrix = Matrix("w", (1, 32), TYPES_BY_NAME["Q8_0"], data)
    assert reference.linear(x, matrix, None, "int8").tolist() == [[(-127 * 1 + 2 * 2) * 0.5]]
    assert reference.linear(x, matrix, np.float32([100]), "int8").tolist() == [[38.5]]
    x[0, :2] = -32512, 3
    assert reference.linear(x, matrix, None, "int16").tolist() == [[(-32512 + 6) * 0.5]]


@pytest.mark.parametrize(("activations", "limit"), [("int8", 127), ("int16", 32512)])
def test_smallest_activation_that_counts(activations: str, limit: int) -> None:
    """2^-100 counts, the float32 below it does not; d · limit gives 2^-100 back up to a rounding."""
    data = np.concatenate([np.float16([1.0]).view(np.uint8), np.ones(32, np.uint8)])
    matrix = Matrix("w", (1, 32), TYPES_BY_NAME["Q8_0"], data)
    x = np.zeros((2, 32), np.float32)
    x[:, 7] = -(2.0**-100), np.nextafter(np.float32(-(2.0**-100)), np.float32(0))
    found = reference.linear(x, matrix, None, activations)
    assert found.tolist() == [[scalar.mul(-limit, scalar.div(2.0**-100, limit))], [0.0]]


def test_bias_is_added_last() -> None:
    matrix = random_matrix("Q4_0", 5, 320)
    x = np.random.default_rng(7).standard_normal((2, 320)).astype(np.float32)
    bias = np.random.default_rng(8).standard_normal(5).astype(np.float32)
    expected = [
        [scalar.add(v, b) for v, b in zip(row, bias.tolist(), strict=True)] for row in scalar_linear(x, matrix, "int8")
    ]
    assert_same(reference.linear(x, matrix, bias, "int8"), expected)


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize("name", ["Q4_1", "F16"])
def test_linear_is_the_same_row_by_row(monkeypatch: pytest.MonkeyPatch, name: str, activations: str) -> None:
    matrix = random_matrix(name, 37, 288)
    x = hostile_inputs(3, 288, seed=9)
    whole = reference.linear(x, matrix, None, activations)
    monkeypatch.setattr(reference_linear, "_WEIGHTS_AT_ONCE", 7 * 288)
    assert_same(reference.linear(x, matrix, None, activations), whole)
    assert_same(np.concatenate([reference.linear(x[i : i + 1], matrix, None, activations) for i in range(3)]), whole)
    assert reference.linear(x[:0], matrix, None, activations).shape == (0, 37)


@pytest.mark.parametrize("name", SUPPORTED_NAMES)
def test_embed(name: str) -> None:
    matrix = random_matrix(name, 6, 256)
    expected = dequantize(matrix.type, matrix.data, matrix.shape)[[4, 0, 4]]
    assert_same(reference.embed(np.array([4, 0, 4], np.int32), matrix), expected)


@pytest.mark.parametrize(("width", "heads"), [(1, 1), (96, 1), (128, 4), (280, 1)])
def test_rms_norm(width: int, heads: int) -> None:
    rng = np.random.default_rng(width)
    x = (rng.standard_normal((3, width)) * [[1e-30], [1.0], [1e15]]).astype(np.float32)
    x[0, 0] = TINY
    weight = rng.standard_normal(width // heads).astype(np.float32)
    eps = np.float32(1e-6)
    size = width // heads
    expected = [
        [v for h in range(heads) for v in scalar.rms_norm(row[h * size :][:size], weight.tolist(), float(eps))]
        for row in x.tolist()
    ]
    assert_same(reference.rms_norm(x, weight, float(eps), heads), expected)


def test_rms_norm_by_hand() -> None:
    x = np.float32([[3, -3, 3, -3]])
    assert reference.rms_norm(x, np.float32([1, 2, 3, 4]), 0.0).tolist() == [[1, -2, 3, -4]]
    assert reference.rms_norm(x[:0], np.float32([1, 2, 3, 4]), 0.0).shape == (0, 4)


@pytest.mark.parametrize("style", ["halves", "interleaved"])
@pytest.mark.parametrize("rotary", [16, 10])
def test_rope(style: str, rotary: int) -> None:
    rng = np.random.default_rng(10)
    heads, head_dim = 2, 16
    inv_freq = (1e4 ** -(np.arange(rotary // 2) / 8)).astype(np.float32)
    table = RopeTable(inv_freq, 1.25, style)  # type: ignore[arg-type]
    positions = np.array([0, 1, 777, 100_000], np.int32)
    x = rng.standard_normal((4, heads * head_dim)).astype(np.float32)
    expected = [
        [
            v
            for h in range(heads)
            for v in scalar.rope(row[h * 16 :][:16], p, inv_freq.tolist(), 1.25, style == "halves")
        ]
        for row, p in zip(x.tolist(), positions.tolist(), strict=True)
    ]
    assert_same(reference.rope(x, positions, heads, table), expected)


def test_rope_by_hand() -> None:
    """At position 0 nothing turns; features beyond the rotary ones never do."""
    x = np.arange(1, 9, dtype=np.float32)[None]
    table = RopeTable(np.float32([1.0, 0.5]))
    assert reference.rope(x, np.array([0], np.int32), 1, table).tolist() == x.tolist()
    turned = reference.rope(x, np.array([1], np.int32), 1, table)[0].tolist()
    assert turned[4:] == [5, 6, 7, 8]
    assert turned[0] == pytest.approx(math.cos(1) - 3 * math.sin(1), abs=1e-6)
    assert turned[3] == pytest.approx(4 * math.cos(0.5) + 2 * math.sin(0.5), abs=1e-6)
    pairs = reference.rope(x, np.array([1], np.int32), 1, replace(table, style="interleaved"))[0].tolist()
    assert pairs[0] == pytest.approx(math.cos(1) - 2 * math.sin(1), abs=1e-6)


@pytest.mark.parametrize("cap", [None, 5.0])
@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 5), (250, 20), (300, 3)])
def test_attention(first: int, count: int, cap: float | None) -> None:
    rng = np.random.default_rng(count + first)
    heads, kv_heads, head_dim = 4, 2, 8
    q = rng.standard_normal((heads, head_dim)).astype(np.float32) * np.float32(3)
    keys, values = (rng.standard_normal((count, kv_heads, head_dim)).astype(np.float32) for _ in range(2))
    values[0] = -TINY  # vanishing products must not leave a zero of the wrong sign
    scale = np.float32(0.3)
    op = Attention("o", "q", 0, heads, float(scale), None, cap)
    found = reference.attention(q, keys, values, first, op)
    visible = range(first, first + count)
    for h in range(heads):
        k, v = ({first + i: a[i, h // 2].tolist() for i in range(count)} for a in (keys, values))
        expected = scalar.attention(q[h].tolist(), k, v, visible, float(scale), cap)  # type: ignore[arg-type]
        assert_same(found[h], expected)


def test_attention_of_far_scores() -> None:
    """Weights down to exp(−104) = 0: a key out of reach adds zeros, and their sign follows the text."""
    q = np.full((1, 2), 40, np.float32)
    keys = np.float32([[[1, 1]], [[0, 0]], [[-1, -1]]])
    values = np.float32([[[1, -0.0]], [[-1, -1]], [[-1, -1e30]]])
    found = reference.attention(q, keys, values, 0, Attention("o", "q", 0, 1, 1.0))
    expected = scalar.attention(q[0].tolist(), keys[:, 0].tolist(), values[:, 0].tolist(), range(3), 1.0, None)
    assert_same(found[0], expected)


def test_scale_and_softcap() -> None:
    x = np.float32([[0.0, -0.0, 1.5, -40.0, 1e30, TINY]])
    assert_same(reference.scale(x, 0.1), [[scalar.mul(v, float(np.float32(0.1))) for v in x[0].tolist()]])
    expected = [scalar.mul(30.0, scalar.tanh(scalar.div(v, 30.0))) for v in x[0].tolist()]
    assert_same(reference.softcap(x, 30.0), [expected])
