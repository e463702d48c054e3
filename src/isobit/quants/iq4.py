"""IQ4_NL and IQ4_XS: 4-bit indices into a table of 16 unevenly spaced integers.

Byte layouts (d: f16): IQ4_NL d qs[16], 32 weights; IQ4_XS d scales_h (u16) scales_l[4] qs[128], 256 weights
in 8 sub-blocks of 32, each with a 6-bit scale: low nibble from scales_l, upper two bits from scales_h,
minus 32.
"""

from __future__ import annotations

import numpy as np

from isobit.quants.blocks import Bytes, Codes, Unpacked, Unpacker, fields, half, signed

IQ4_VALUES: Codes = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.int8)
IQ4_VALUES.flags.writeable = False


def _iq4_nl(blocks: Bytes) -> Unpacked:
    return IQ4_VALUES[fields(blocks[:, 2:], bits=4, run=16)], half(blocks, 0), None


def _iq4_xs(blocks: Bytes) -> Unpacked:
    low = fields(blocks[:, 4:8], bits=4, run=1)
    high = fields(blocks[:, 2:4], bits=2, run=1)
    scales = signed(low | (high << np.uint8(4)), 32).astype(np.float32)
    codes = IQ4_VALUES[fields(blocks[:, 8:], bits=4, run=16)]
    return codes, half(blocks, 0) * scales, None


UNPACKERS = {
    "IQ4_NL": Unpacker(32, False, _iq4_nl),
    "IQ4_XS": Unpacker(32, False, _iq4_xs),
}
