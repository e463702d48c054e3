"""Philox4x32-10, a counter-based generator of random numbers.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

Counter = tuple[int, int, int, int]


def philox4x32(counter: Counter, key: tuple[int, int]) -> Counter:
    """Four 32-bit numbers for a counter and a key, each given as 32-bit numbers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def draw(seed: int, position: int) -> int:
    """The 64-bit random number of a position in the stream of a seed (docs/numerics.md, 5)."""
    word = seed & 0xFFFFFFFFFFFFFFFF
    sign = 1 if seed < 0 else 0
    out = philox4x32((position & _MASK, position >> 32, 0, sign), (word & _MASK, word >> 32))
    return out[0] | out[1] << 32
