"""Q2_K to Q6_K: blocks of 256 weights whose sub-blocks of 16 or 32 have integer scales times one f16.

Byte layouts (d, dmin: f16):
Q2_K scales[16] (low nibble scale, high nibble minimum) qs[64] d dmin
Q3_K hmask[32] qs[64] scales[12] d
Q4_K d dmin scales[12] qs[128]
Q5_K d dmin scales[12] qh[32] qs[128]
Q6_K ql[128] qh[64] scales[16] (int8) d
"""

from __future__ import annotations

import numpy as np

from isobit.quants.blocks import Bytes, Floats, Unpacked, Unpacker, fields, half, signed


def _floats(integers: Bytes) -> Floats:
    return integers.astype(np.float32)


def _six_bit_pairs(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The 8 scales and 8 minima (0..63) packed in 12 bytes; each is uint8 [blocks, 8].

    Bytes 0-3 hold scales 0-3 and bytes 4-7 minima 0-3 in their low 6 bits. Bytes 8-11 hold the low nibbles
    of scales 4-7 (low) and minima 4-7 (high), whose upper two bits are the top bits of bytes 0-3 and 4-7.
    """
    first, second, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = [first & np.uint8(63), (rest & np.uint8(15)) | (first >> np.uint8(6) << np.uint8(4))]
    minima = [second & np.uint8(63), (rest >> np.uint8(4)) | (second >> np.uint8(6) << np.uint8(4))]
    return np.concatenate(scales, axis=1), np.concatenate(minima, axis=1)


def _q2_k(blocks: Bytes) -> Unpacked:
    scales = blocks[:, 0:16]
    scale = half(blocks, 80) * _floats(scales & np.uint8(15))
    minimum = -(half(blocks, 82) * _floats(scales >> np.uint8(4)))
    return signed(fields(blocks[:, 16:80], bits=2, run=32), 0), scale, minimum


def _q3_k(blocks: Bytes) -> Unpacked:
    """Codes are the low two bits, minus 4 where the mask bit is *clear*."""
    low = fields(blocks[:, 32:96], bits=2, run=32)
    high = fields(blocks[:, 0:32], bits=1, run=32)
    low_scales = fields(blocks[:, 96:104], bits=4, run=8)
    high_scales = fields(blocks[:, 104:108], bits=2, run=4)
    scales = signed(low_scales | (high_scales << np.uint8(4)), 32)
    codes = signed(low | (high << np.uint8(2)), 4)
    return codes, half(blocks, 108) * scales.astype(np.float32), None


def _q4_k(blocks: Bytes) -> Unpacked:
    scales, minima = _six_bit_pairs(blocks[:, 4:16])
    codes = fields(blocks[:, 16:], bits=4, run=32)
    return signed(codes, 0), half(blocks, 0) * _floats(scales), -(half(blocks, 2) * _floats(minima))


def _q5_k(blocks: Bytes) -> Unpacked:
    scales, minima = _six_bit_pairs(blocks[:, 4:16])
    fifth = fields(blocks[:, 16:48], bits=1, run=32) << np.uint8(4)
    codes = fields(blocks[:, 48:], bits=4, run=32) | fifth
    return signed(codes, 0), half(blocks, 0) * _floats(scales), -(half(blocks, 2) * _floats(minima))


def _q6_k(blocks: Bytes) -> Unpacked:
    high = fields(blocks[:, 128:192], bits=2, run=32) << np.uint8(4)
    codes = fields(blocks[:, 0:128], bits=4, run=64) | high
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    return signed(codes, 32), half(blocks, 208) * scales, None


UNPACKERS = {
    "Q2_K": Unpacker(16, True, _q2_k),
    "Q3_K": Unpacker(16, False, _q3_k),
    "Q4_K": Unpacker(32, True, _q4_k),
    "Q5_K": Unpacker(32, True, _q5_k),
    "Q6_K": Unpacker(16, False, _q6_k),
}
