"""docs/numerics.md once more, one number at a time: plain loops over Python numbers that hold binary32 values.

Rounding is done on exact fractions, so nothing here shares a step with NumPy or with any kernel. Where an operand
is infinite or NaN, Python's own float arithmetic gives the right result.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction


def bits(x: float) -> int:
    """The pattern as a signed 32-bit integer."""
    return int(struct.unpack("<i", struct.pack("<f", x))[0])


def from_bits(pattern: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", pattern & 0xFFFFFFFF))[0])


def nearest(exact: Fraction, zero: float = 0.0) -> float:
    """The binary32 nearest to an exact value, ties to even; `zero` is the result where it is zero."""
    if exact == 0:
        return zero
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()  # of size, or one too high
    if Fraction(2) ** exponent > size:
        exponent -= 1
    quantum = Fraction(2) ** max(exponent - 23, -149)
    rounded = round(size / quantum) * quantum
    value = math.inf if rounded >= Fraction(2) ** 128 else float(rounded)
    return math.copysign(value, exact)


def fma(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    # a · b is exact in binary64, so this has the sign that an exact zero must have.
    return nearest(Fraction(a) * Fraction(b) + Fraction(c), a * b + c if a * b + c == 0 else 0.0)


def add(a: float, b: float) -> float:
    return fma(1.0, a, b)


def sub(a: float, b: float) -> float:
    return add(a, -b)


def mul(a: float, b: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b
    return nearest(Fraction(a) * Fraction(b), a * b)


def div(a: float, b: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a / b
    if b == 0:
        return math.nan if a == 0 else math.copysign(math.inf, a) * math.copysign(1, b)
    return nearest(Fraction(a) / Fraction(b), math.copysign(0.0, a) * math.copysign(1, b))


def sqrt(x: float) -> float:
    """Two roundings, binary64 then binary32, are as good as one here: 53 ≥ 2 · 24 + 2 bits."""
    return nearest(Fraction(math.sqrt(x)))


def rne(v: float) -> float:
    return float(round(v))


def poly(x: float, coefficients: str) -> float:
    """Horner; hexadecimal coefficients, constant first."""
    values = [float.fromhex(c) for c in coefficients.split()]
    y = values.pop()
    while values:
        y = fma(y, x, values.pop())
    return y


M = 12582912.0


def exp(x: float) -> float:
    if math.isnan(x):
        return x
    x = min(max(x, -104.0), 89.0)
    z = fma(x, float.fromhex("0x1.715476p+0"), M)
    k = bits(z) - bits(M)
    n = sub(z, M)
    r = fma(n, float.fromhex("-0x1.62e4p-1"), x)
    r = fma(n, float.fromhex("-0x1.7f7d1cp-20"), r)
    p = poly(r, "1 1 0x1p-1 0x1.5554dcp-3 0x1.555518p-5 0x1.120cbap-7 0x1.6d1254p-10")
    h = k // 2
    return mul(mul(p, 2.0**h), 2.0 ** (k - h))


def sigmoid(x: float) -> float:
    return div(1.0, add(1.0, exp(-x)))


def silu(x: float) -> float:
    return div(x, add(1.0, exp(-x)))


def gelu(x: float) -> float:
    t = fma(mul(x, x), float.fromhex("0x1.2444f2p-4"), float.fromhex("0x1.988454p+0"))
    return div(x, add(1.0, exp(-mul(x, t))))


def tanh(x: float) -> float:
    a = abs(x)
    if a < 0.625:
        u = mul(a, a)
        p = poly(u, "-0x1.555556p-2 0x1.1110eap-3 -0x1.ba08c4p-5 0x1.64a976p-6 -0x1.116a16p-7 0x1.2c83cp-9")
        y = fma(mul(a, u), p, a)
    else:
        y = sub(1.0, div(2.0, add(exp(mul(2.0, a)), 1.0)))
    return math.copysign(y, x)


def sincos(a: float) -> tuple[float, float]:
    z = fma(a, float.fromhex("0x1.45f306p-1"), M)
    k = bits(z) - bits(M)
    n = sub(z, M)
    r = fma(n, float.fromhex("-0x1.921fb6p+0"), a)
    r = fma(n, float.fromhex("0x1.777a5cp-25"), r)
    r = fma(n, float.fromhex("0x1.ee59dap-50"), r)
    u = mul(r, r)
    s = fma(mul(r, u), poly(u, "-0x1.555556p-3 0x1.11110ep-7 -0x1.a013ap-13 0x1.6dbb5ap-19"), r)
    q = poly(u, "0x1.555554p-5 -0x1.6c12cep-10 0x1.9bd5d8p-16")
    c = fma(mul(u, u), q, fma(-0.5, u, 1.0))
    sin, cos = (c, s) if k % 2 else (s, c)
    return (-sin if k % 4 in (2, 3) else sin), (-cos if k % 4 in (1, 2) else cos)


def log(x: float) -> float:
    e = (bits(x) - 0x3F3504F3) >> 23
    f = sub(from_bits(bits(x) - (e << 23)), 1.0)
    s = div(f, add(2.0, f))
    u = mul(s, s)
    p = poly(u, "0x1.555556p-1 0x1.9999ecp-2 0x1.245c3ap-2 0x1.ddd0bep-3")
    t = fma(mul(s, u), p, mul(2.0, s))
    return fma(float(e), float.fromhex("0x1.62e4p-1"), fma(float(e), float.fromhex("0x1.7f7d1cp-20"), t))


def tree(chunks: Iterable[tuple[int, float]]) -> float:
    """The binary counter of the text, for chunks of consecutive numbers (only those are sums of this order)."""
    slots: dict[int, float] = {}
    for number, chunk_sum in sorted(chunks):
        value, level = chunk_sum, 0
        while number >> level & 1:
            if level in slots:
                value = add(slots.pop(level), value)
            level += 1
        slots[level] = value
    levels = sorted(slots)
    total = slots[levels[0]]
    for level in levels[1:]:
        total = add(slots[level], total)
    return total


def striped(terms: Iterable[tuple[int, float]], squares: bool = False) -> float:
    """The striped sum of (index, term) pairs."""
    chunks: dict[int, list[float]] = {}
    for index, term in sorted(terms, key=lambda pair: pair[0]):
        lanes = chunks.setdefault(index // 256, [0.0] * 16)
        lane = index % 16
        lanes[lane] = fma(term, term, lanes[lane]) if squares else add(lanes[lane], term)
    folded = []
    for number, lanes in chunks.items():
        for width in (8, 4, 2, 1):
            for lane in range(width):
                lanes[lane] = add(lanes[lane], lanes[lane + width])
        folded.append((number, lanes[0]))
    return tree(folded)


def quantize(x: Sequence[float], limit: float) -> tuple[float, list[int]]:
    """Scale and codes of one group of activations."""
    largest = max(abs(v) for v in x)
    if largest < 2.0**-100:
        return 0.0, [0] * len(x)
    inverse = div(limit, largest)
    return div(largest, limit), [int(rne(mul(v, inverse))) for v in x]


class Row:
    """A row of weights: integer codes, and per sub-block of `sub` weights a scale and perhaps a minimum."""

    def __init__(self, q: Sequence[int], s: Sequence[float], m: Sequence[float] | None, sub: int) -> None:
        self.q, self.s, self.m, self.sub = q, s, m, sub

    def dot(self, codes: Sequence[int], j: int) -> float:
        """Of sub-block j of the row."""
        part = range(j * self.sub, (j + 1) * self.sub)
        return nearest(Fraction(sum(self.q[k] * codes[k] for k in part)))

    def total(self, codes: Sequence[int], j: int) -> float:
        return nearest(Fraction(sum(codes[j * self.sub : (j + 1) * self.sub])))


def linear_int8(row: Row, x: Sequence[float]) -> float:
    chunks: dict[int, float] = {}
    for block in range(len(x) // 32):
        d, codes = quantize(x[block * 32 : block * 32 + 32], 127.0)
        codes = [0] * (block * 32) + codes
        parts = range(block * 32 // row.sub, (block + 1) * 32 // row.sub)
        u = mul(row.dot(codes, parts[0]), row.s[parts[0]])
        for j in parts[1:]:
            u = fma(row.dot(codes, j), row.s[j], u)
        for j in parts if row.m is not None else ():
            u = fma(row.total(codes, j), row.m[j], u)
        chunks[block // 8] = fma(u, d, chunks.get(block // 8, 0.0))
    return tree(chunks.items())


def linear_int16(row: Row, x: Sequence[float]) -> float:
    chunks: dict[int, float] = {}
    for chunk in range(-(-len(x) // 256)):
        d, codes = quantize(x[chunk * 256 : chunk * 256 + 256], 32512.0)
        codes = [0] * (chunk * 256) + codes
        acc = 0.0
        for block in range(chunk * 8, len(codes) // 32):
            parts = range(block * 32 // row.sub, (block + 1) * 32 // row.sub)
            for j in parts:
                acc = fma(row.dot(codes, j), row.s[j], acc)
            for j in parts if row.m is not None else ():
                acc = fma(row.total(codes, j), row.m[j], acc)
        chunks[chunk] = mul(acc, d)
    return tree(chunks.items())


def linear_float(w: Sequence[float], x: Sequence[float]) -> float:
    chunks: dict[int, float] = {}
    for k in range(len(x)):
        chunks[k // 256] = fma(w[k], x[k], chunks.get(k // 256, 0.0))
    return tree(chunks.items())


def rms_norm(x: Sequence[float], weight: Sequence[float], eps: float) -> list[float]:
    total = striped(enumerate(x), squares=True)
    r = div(1.0, sqrt(add(div(total, float(len(x))), eps)))
    return [mul(mul(v, r), w) for v, w in zip(x, weight, strict=True)]


def rope(x: list[float], position: int, inv_freq: Sequence[float], mscale: float, halves: bool) -> list[float]:
    """One head."""
    y = list(x)
    for i, frequency in enumerate(inv_freq):
        sin, cos = sincos(mul(float(position), frequency))
        c, s = mul(cos, mscale), mul(sin, mscale)
        a, b = (i, i + len(inv_freq)) if halves else (2 * i, 2 * i + 1)
        y[a] = fma(x[a], c, -mul(x[b], s))
        y[b] = fma(x[b], c, mul(x[a], s))
    return y


def attention(
    q: Sequence[float],
    keys: Sequence[Sequence[float]],
    values: Sequence[Sequence[float]],
    visible: Sequence[int],
    scale: float,
    cap: float | None,
) -> list[float]:
    """One head of one query; `keys` and `values` are by position."""
    scores: dict[int, float] = {}
    for j in visible:
        dot = 0.0
        for a, b in zip(q, keys[j], strict=True):
            dot = fma(a, b, dot)
        scores[j] = mul(dot, scale)
        if cap is not None:
            scores[j] = mul(cap, tanh(div(scores[j], cap)))
    largest = max(scores.values())
    e = {j: exp(sub(score, largest)) for j, score in scores.items()}
    total = striped(e.items())
    out = []
    for d in range(len(q)):
        chunks: dict[int, float] = {}
        for j in visible:
            chunks[j // 256] = fma(e[j], values[j][d], chunks.get(j // 256, 0.0))
        out.append(div(tree(chunks.items()), total))
    return out
