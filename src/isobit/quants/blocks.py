"""What an integer weight type means: codes, scales and minima, and how packed codes are laid out.

Why one formula serves all integer types, exactly
-------------------------------------------------
A weight is w = fl32(scale * code + minimum). Every scale is an f16 number (11 significant bits, between 2^-24
and 2^16) times an integer of at most 7 significant bits (Q6_K; -128 is a power of two), so scale and minimum
are exact in float32 (24 bits). scale * code is exact as well: 11 + 7 + 5 = 23 bits for Q6_K (|code| <= 32),
11 + 6 + 5 = 22 for Q5_K, 11 + 5 + 7 = 23 for IQ4_XS, fewer for the others. Products that are not zero
lie between 2^-24 and 2^28, so nothing overflows or becomes subnormal. Only adding the minimum rounds, once;
subtracting dmin*m and adding -(dmin*m) are the same operation. An f16 that is infinite or not a number
gives weights that are (infinity times 0 is not a number, as IEEE 754 has it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Weights as integers: w = fl32(scale * code + minimum), one rounding of the exact value.

    codes: int8 [..., K], the signed integers themselves (offsets taken off, IQ4 table values looked up).
    scale: float32 [..., K / sub]. minimum: the same shape, or None where the type has no minimum; it is
    signed so that it is added. sub: 16 or 32, the number of neighbouring weights that share a scale.
    """

    codes: Codes
    scale: Floats
    minimum: Floats | None
    sub: int


Unpacked = tuple[Codes, Floats, Floats | None]


@dataclass(frozen=True)
class Unpacker:
    """How to read one integer type.

    `unpack` takes uint8 [blocks, type_size] and returns codes int8 [blocks, block_size] with scale and
    minimum float32 [blocks, block_size / sub] (minimum None unless `has_minimum`).
    """

    sub: int
    has_minimum: bool
    unpack: Callable[[Bytes], Unpacked]


def half(blocks: Bytes, offset: int) -> Floats:
    """The f16 number at byte `offset` of each block, as float32 [blocks, 1]."""
    return blocks[:, offset : offset + 2].view("<f2").astype(np.float32)


def fields(packed: Bytes, bits: int, run: int) -> Bytes:
    """Unpacks `bits`-wide unsigned fields: uint8 [blocks, bytes] to uint8 [blocks, bytes * 8 / bits].

    Each run of `run` bytes holds 8 / bits consecutive groups of `run` fields; the first group is in the
    lowest bits.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    grouped = packed.reshape(packed.shape[0], -1, 1, run)
    unpacked: Bytes = (grouped >> shifts) & np.uint8((1 << bits) - 1)
    return unpacked.reshape(packed.shape[0], -1)


def signed(codes: Bytes, offset: int) -> Codes:
    """codes - offset as int8."""
    result: Codes = codes.view(np.int8) - np.int8(offset)
    return result
