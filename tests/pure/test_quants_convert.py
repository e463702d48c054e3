"""Weights against the `gguf` package, bit by bit, for random bytes and hostile scales."""

from __future__ import annotations

import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from isobit.errors import InputError, UnsupportedError
from isobit.quants import SUPPORTED_NAMES, TYPES_BY_NAME, QuantType, decompose, dequantize, type_by_name

INTEGER_NAMES = [name for name in SUPPORTED_NAMES if not TYPES_BY_NAME[name].is_float]
CODE_RANGES = {
    "Q4_0": (-8, 7), "Q4_1": (0, 15), "Q5_0": (-16, 15), "Q5_1": (0, 31), "Q8_0": (-128, 127),
    "Q2_K": (0, 3), "Q3_K": (-4, 3), "Q4_K": (0, 15), "Q5_K": (0, 31), "Q6_K": (-32, 31),
    "IQ4_NL": (-127, 113), "IQ4_XS": (-127, 113),
}  # fmt: skip
SUB = {"Q2_K": 16, "Q3_K": 16, "Q6_K": 16}
WITH_MINIMUM = {"Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K"}
# Byte offsets of the f16 numbers of a block.
HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,),
}  # fmt: skip
# Zeros, subnormals (smallest, largest), smallest and largest normal, one, infinities, not-a-number.
HOSTILE = np.array(
    [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00, 0x7C00, 0xFC00, 0x7E00, 0xFD01],
    np.uint16,
)


def random_data(kind: QuantType, shape: tuple[int, ...], seed: int) -> npt.NDArray[np.uint8]:
    """Random bytes, with a hostile number in about half of the scales."""
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, kind.num_bytes(shape), dtype=np.uint8)
    blocks = data.reshape(-1, kind.type_size)
    for offset in HALVES.get(kind.name, ()):
        chosen = np.flatnonzero(rng.random(len(blocks)) < 0.5)
        blocks[chosen, offset : offset + 2] = rng.choice(HOSTILE, len(chosen)).view(np.uint8).reshape(-1, 2)
    return data


def oracle(kind: QuantType, data: npt.NDArray[np.uint8], shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    rows = data.reshape(-1, kind.num_bytes(shape[-1:]))
    with np.errstate(all="ignore"):
        weights = gguf_dequantize(rows, GGMLQuantizationType[kind.name])
    return weights.astype(np.float32, copy=False).reshape(shape)


def assert_same_bits(found: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> None:
    """Equal as bits, except that one NaN is as good as another."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype == np.float32
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", SUPPORTED_NAMES)
def test_dequantize_equals_gguf(name: str, seed: int) -> None:
    kind = type_by_name(name)
    shape = (19, 768)
    data = random_data(kind, shape, seed)
    assert_same_bits(dequantize(kind, data, shape), oracle(kind, data, shape))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), name=st.sampled_from(SUPPORTED_NAMES))
def test_dequantize_equals_gguf_for_any_block(data: st.DataObject, name: str) -> None:
    kind = type_by_name(name)
    raw = data.draw(st.binary(min_size=kind.type_size, max_size=kind.type_size))
    block = np.frombuffer(raw, np.uint8)
    shape = (1, kind.block_size)
    assert_same_bits(dequantize(kind, block, shape), oracle(kind, block, shape))


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_sixteen_bit_number(name: str) -> None:
    kind = type_by_name(name)
    data = np.arange(1 << 16, dtype="<u2").view(np.uint8)
    assert_same_bits(dequantize(kind, data, (256, 256)), oracle(kind, data, (256, 256)))


def test_f32_keeps_every_bit() -> None:
    bits = np.array([0x7F800001, 0xFFC12345, 0x00000001, 0x80000000, 0x3F800000], np.uint32)
    found = dequantize(type_by_name("F32"), bits.astype("<u4").view(np.uint8), (5,))
    np.testing.assert_array_equal(found.view(np.uint32), bits)


@pytest.mark.parametrize("name", INTEGER_NAMES)
def test_decompose_has_the_documented_form(name: str) -> None:
    kind = type_by_name(name)
    blocks = decompose(kind, random_data(kind, (7, 512), 3), (7, 512))
    sub = SUB.get(name, 32)
    assert blocks.sub == sub
    assert (blocks.codes.dtype, blocks.codes.shape) == (np.int8, (7, 512))
    assert (blocks.scale.dtype, blocks.scale.shape) == (np.float32, (7, 512 // sub))
    assert (blocks.codes.min(), blocks.codes.max()) == CODE_RANGES[name]
    assert (blocks.minimum is not None) == (name in WITH_MINIMUM)
    if blocks.minimum is not None:
        assert (blocks.minimum.dtype, blocks.minimum.shape) == (np.float32, blocks.scale.shape)


@pytest.mark.parametrize("name", INTEGER_NAMES)
def test_weights_are_one_rounding_of_the_exact_value(name: str) -> None:
    """In float64 scale * code + minimum is exact (53 bits suffice): its float32 is the one right answer."""
    kind = type_by_name(name)
    data = random_data(kind, (40, 1024), 11)
    blocks = decompose(kind, data, (40, 1024))
    with np.errstate(all="ignore"):
        exact = blocks.codes.reshape(40, -1, blocks.sub) * blocks.scale.astype(np.float64)[..., None]
        if blocks.minimum is not None:
            exact = exact + blocks.minimum.astype(np.float64)[..., None]
        rounded = exact.astype(np.float32).reshape(40, 1024)
    assert_same_bits(rounded, dequantize(kind, data, (40, 1024)))


def test_q4_0_by_hand() -> None:
    """Scale 0.5; weight 0 has code 0 - 8, weight 16 has code 15 - 8, all others 8 - 8."""
    block = np.array([0x00, 0x38, 0xF0] + [0x88] * 15, np.uint8)
    expected = np.zeros((1, 32), np.float32)
    expected[0, 0], expected[0, 16] = -4.0, 3.5
    np.testing.assert_array_equal(dequantize(type_by_name("Q4_0"), block, (1, 32)), expected)


def test_minimum_is_added() -> None:
    """Q4_K with d = 1, dmin = 2, all scales 1 and minima 3: code 0 stands for -6."""
    packed_scales = [1] * 4 + [3] * 4 + [0x31] * 4
    block = np.array([0x00, 0x3C, 0x00, 0x40, *packed_scales, *[0] * 128], np.uint8)
    blocks = decompose(type_by_name("Q4_K"), block, (1, 256))
    assert blocks.minimum is not None
    np.testing.assert_array_equal(blocks.scale, np.ones((1, 8), np.float32))
    np.testing.assert_array_equal(blocks.minimum, np.full((1, 8), -6, np.float32))


@pytest.mark.parametrize("name", ["Q5_K", "IQ4_XS", "BF16"])
def test_shapes_of_one_and_three_dimensions(name: str) -> None:
    kind = type_by_name(name)
    data = random_data(kind, (2, 3, 512), 5)
    flat = dequantize(kind, data, (3072,))
    np.testing.assert_array_equal(dequantize(kind, data, (2, 3, 512)).ravel(), flat)
    if not kind.is_float:
        assert decompose(kind, data, (2, 3, 512)).scale.shape == (2, 3, 16)


@pytest.mark.parametrize("name", ["Q6_K", "Q4_1", "F16"])
def test_unaligned_and_read_only_data(name: str) -> None:
    kind = type_by_name(name)
    data = random_data(kind, (4, 256), 6)
    shifted = np.frombuffer(b"x" + data.tobytes(), np.uint8)[1:]
    assert_same_bits(dequantize(kind, shifted, (4, 256)), dequantize(kind, data, (4, 256)))


def test_temporaries_are_bounded() -> None:
    """16 million weights: the result has 64 MiB and nothing else may come near it."""
    kind = type_by_name("Q4_K")
    shape = (4096, 4096)
    data = np.zeros(kind.num_bytes(shape), np.uint8)
    tracemalloc.start()
    try:
        weights = dequantize(kind, data, shape)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < weights.nbytes + 16 * 2**20


@pytest.mark.parametrize("convert", [decompose, dequantize])
def test_bad_arguments(convert: object) -> None:
    assert callable(convert)
    kind = type_by_name("Q8_0")
    data = np.zeros(68, np.uint8)
    for bad_data, bad_shape, message in [
        (data[:-1], (2, 32), "has 67 bytes, expected 68"),
        (data, (2, 64), "has 68 bytes, expected 136"),
        (data, (-2, -32), "expected"),
        (data, (2, 33), "multiple of the block size 32"),
        (data, (), "multiple of the block size 32"),
        (data.reshape(2, 34), (2, 32), "2 dimensions"),
        (data.view(np.int8), (2, 32), "int8"),
    ]:
        with pytest.raises(InputError, match=message):
            convert(kind, bad_data, bad_shape)
    with pytest.raises(UnsupportedError, match=r"IQ2_XXS is not supported.*IQ4_XS"):
        convert(type_by_name("IQ2_XXS"), np.zeros(66, np.uint8), (1, 256))


def test_floats_have_no_codes() -> None:
    with pytest.raises(InputError, match="F16 weights have no codes"):
        decompose(type_by_name("F16"), np.zeros(4, np.uint8), (1, 2))
