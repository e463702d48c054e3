"""Taking stored weights apart (`decompose`) and turning them into float32 (`dequantize`)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from isobit.errors import InputError, UnsupportedError
from isobit.quants import iq4, k_quants, legacy
from isobit.quants.blocks import Blocks, Bytes, Floats, Unpacker
from isobit.quants.floats import READERS
from isobit.quants.table import SUPPORTED_NAMES, QuantType

_UNPACKERS: dict[str, Unpacker] = {**legacy.UNPACKERS, **k_quants.UNPACKERS, **iq4.UNPACKERS}

# Weights handled at a time, a multiple of every block size: temporaries stay below some 10 MB.
_WEIGHTS_AT_ONCE = 1 << 19


def decompose(type: QuantType, data: Bytes, shape: tuple[int, ...]) -> Blocks:
    """The codes, scales and minima of an integer type.

    `data`: uint8, one dimension, the tensor's bytes. `shape`: NumPy order, usually (rows, K).
    Returns Blocks with codes int8 [*shape] and scales float32 [*shape[:-1], K / sub].
    Raises UnsupportedError for an unsupported type, InputError for a float type or a wrong size.
    """
    _check(type, data, shape)
    if type.is_float:
        raise InputError(f"{type.name} weights have no codes and scales; use dequantize")
    unpacker = _UNPACKERS[type.name]
    blocks = data.reshape(-1, type.type_size)
    per_block = type.block_size // unpacker.sub
    codes = np.empty((len(blocks), type.block_size), np.int8)
    scale = np.empty((len(blocks), per_block), np.float32)
    minimum = np.empty((len(blocks), per_block), np.float32) if unpacker.has_minimum else None
    for part in _parts(len(blocks), type.block_size):
        with np.errstate(all="ignore"):
            codes[part], scale[part], minima = unpacker.unpack(blocks[part])
        if minimum is not None:
            minimum[part] = minima
    scale_shape = (*shape[:-1], shape[-1] // unpacker.sub)
    return Blocks(
        codes=codes.reshape(shape),
        scale=scale.reshape(scale_shape),
        minimum=None if minimum is None else minimum.reshape(scale_shape),
        sub=unpacker.sub,
    )


def dequantize(type: QuantType, data: Bytes, shape: tuple[int, ...]) -> Floats:
    """The weights as a new float32 array of `shape`; arguments and errors as for `decompose`, any type.

    A scale that is infinite or not a number gives weights that are, without a warning.
    """
    _check(type, data, shape)
    blocks = data.reshape(-1, type.type_size)
    weights = np.empty((len(blocks), type.block_size), np.float32)
    for part in _parts(len(blocks), type.block_size):
        with np.errstate(all="ignore"):
            weights[part] = _dequantize_blocks(type, blocks[part])
    return weights.reshape(shape)


def _dequantize_blocks(type: QuantType, blocks: Bytes) -> Floats:
    if type.is_float:
        return READERS[type.name](blocks.reshape(-1)).reshape(-1, 1)
    unpacker = _UNPACKERS[type.name]
    codes, scale, minimum = unpacker.unpack(blocks)
    grouped = codes.reshape(len(blocks), -1, unpacker.sub).astype(np.float32)
    grouped *= scale[:, :, None]
    if minimum is not None:
        grouped += minimum[:, :, None]
    return grouped.reshape(len(blocks), -1)


def _parts(num_blocks: int, block_size: int) -> Iterator[slice]:
    step = _WEIGHTS_AT_ONCE // block_size
    for start in range(0, num_blocks, step):
        yield slice(start, min(start + step, num_blocks))


def _check(type: QuantType, data: Bytes, shape: tuple[int, ...]) -> None:
    if not type.supported:
        raise UnsupportedError(
            f"weight type {type.name} is not supported, expected one of {', '.join(SUPPORTED_NAMES)}; "
            f"convert the model to one of them"
        )
    if data.dtype != np.uint8 or data.ndim != 1:
        raise InputError(f"weight data is {data.dtype} with {data.ndim} dimensions, expected uint8 with one dimension")
    if any(dimension < 0 for dimension in shape) or data.size != type.num_bytes(shape):
        expected = math.prod(shape) // type.block_size * type.type_size
        raise InputError(f"weight data has {data.size} bytes, expected {expected} for {type.name} of shape {shape}")
