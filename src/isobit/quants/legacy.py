"""Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: blocks of 32 weights with one f16 scale.

Byte layouts (d, m: f16; the low nibbles of qs are weights 0..15, the high ones 16..31; bit i of qh is bit 4
of weight i):
Q4_0 d qs[16]; Q4_1 d m qs[16]; Q5_0 d qh[4] qs[16]; Q5_1 d m qh[4] qs[16]; Q8_0 d qs[32].
"""

from __future__ import annotations

import numpy as np

from isobit.quants.blocks import Bytes, Unpacked, Unpacker, fields, half, signed


def _five_bits(high: Bytes, low: Bytes) -> Bytes:
    """Joins qh [blocks, 4] and qs [blocks, 16] to codes 0..31, uint8 [blocks, 32]."""
    fifth: Bytes = np.unpackbits(high, axis=1, bitorder="little") << np.uint8(4)
    return fifth | fields(low, bits=4, run=16)


def _q4_0(blocks: Bytes) -> Unpacked:
    return signed(fields(blocks[:, 2:], bits=4, run=16), 8), half(blocks, 0), None


def _q4_1(blocks: Bytes) -> Unpacked:
    return signed(fields(blocks[:, 4:], bits=4, run=16), 0), half(blocks, 0), half(blocks, 2)


def _q5_0(blocks: Bytes) -> Unpacked:
    return signed(_five_bits(blocks[:, 2:6], blocks[:, 6:]), 16), half(blocks, 0), None


def _q5_1(blocks: Bytes) -> Unpacked:
    return signed(_five_bits(blocks[:, 4:8], blocks[:, 8:]), 0), half(blocks, 0), half(blocks, 2)


def _q8_0(blocks: Bytes) -> Unpacked:
    return blocks[:, 2:].view(np.int8), half(blocks, 0), None


UNPACKERS = {
    "Q4_0": Unpacker(32, False, _q4_0),
    "Q4_1": Unpacker(32, True, _q4_1),
    "Q5_0": Unpacker(32, False, _q5_0),
    "Q5_1": Unpacker(32, True, _q5_1),
    "Q8_0": Unpacker(32, False, _q8_0),
}
