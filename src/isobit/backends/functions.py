"""The elementary functions of docs/numerics.md, section 1.3, on float32 arrays.

None of them calls a libm. Measured errors: docs/functions.md. A NaN gives NaN.
"""

from __future__ import annotations

import numpy as np

from isobit.backends.arithmetic import (
    ROUNDER,
    FloatArray,
    IntArray,
    bits_of,
    fma,
    polynomial,
    power_of_two,
    quiet,
    sum_striped,
)


def _hex(text: str) -> np.float32:
    """A constant of the text; all of them are exact in binary32."""
    value: np.float32 = np.float32(float.fromhex(text))
    return value


def _hexes(text: str) -> tuple[np.float32, ...]:
    return tuple(_hex(word) for word in text.split())


_ONE = np.float32(1)
_TWO = np.float32(2)

_EXP_LOWEST, _EXP_HIGHEST = np.float32(-104), np.float32(89)
_LOG2_E = _hex("0x1.715476p+0")
_LN2_HIGH, _LN2_LOW = _hex("0x1.62e4p-1"), _hex("0x1.7f7d1cp-20")
_EXP = _hexes("1 1 0x1p-1 0x1.5554dcp-3 0x1.555518p-5 0x1.120cbap-7 0x1.6d1254p-10")

_GELU_CUBIC, _GELU_LINEAR = _hex("0x1.2444f2p-4"), _hex("0x1.988454p+0")

_TANH_SMALL = np.float32(0.625)
_TANH = _hexes("-0x1.555556p-2 0x1.1110eap-3 -0x1.ba08c4p-5 0x1.64a976p-6 -0x1.116a16p-7 0x1.2c83cp-9")

_TWO_OVER_PI = _hex("0x1.45f306p-1")
_HALF_PI = _hexes("0x1.921fb6p+0 -0x1.777a5cp-25 -0x1.ee59dap-50")  # their sum; each next one is what is missing
_SIN = _hexes("-0x1.555556p-3 0x1.11110ep-7 -0x1.a013ap-13 0x1.6dbb5ap-19")
_COS = _hexes("0x1.555554p-5 -0x1.6c12cep-10 0x1.9bd5d8p-16")

_SQRT_HALF_BITS = np.int32(0x3F3504F3)
_LOG = _hexes("0x1.555556p-1 0x1.9999ecp-2 0x1.245c3ap-2 0x1.ddd0bep-3")


@quiet
def exp(x: FloatArray) -> FloatArray:
    """e^x, x being held between −104 (gives 0) and 89 (gives infinity)."""
    x = np.minimum(np.maximum(x, _EXP_LOWEST), _EXP_HIGHEST)
    k, n = _nearest_multiple(x, _LOG2_E)
    r = fma(n, -_LN2_HIGH, x)
    r = fma(n, -_LN2_LOW, r)
    half = k >> np.int32(1)
    return (polynomial(r, _EXP) * power_of_two(half)) * power_of_two(k - half)


@quiet
def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + e^−x)."""
    y: FloatArray = _ONE / (_ONE + exp(-x))
    return y


@quiet
def silu(x: FloatArray) -> FloatArray:
    """x · sigmoid(x), as one division."""
    y: FloatArray = x / (_ONE + exp(-x))
    return y


@quiet
def gelu(x: FloatArray) -> FloatArray:
    """The tanh form of the Gaussian error linear unit, as one division."""
    inner = x * fma(x * x, _GELU_CUBIC, _GELU_LINEAR)
    y: FloatArray = x / (_ONE + exp(-inner))
    return y


@quiet
def tanh(x: FloatArray) -> FloatArray:
    """Hyperbolic tangent."""
    a = np.abs(x)
    u = a * a
    small = fma(a * u, polynomial(u, _TANH), a)
    large = _ONE - _TWO / (exp(_TWO * a) + _ONE)
    y: FloatArray = np.copysign(np.where(a < _TANH_SMALL, small, large), x)
    return y


@quiet
def sincos(a: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(sin a, cos a) of radians, |a| < 2^21."""
    k, n = _nearest_multiple(a, _TWO_OVER_PI)
    r = a
    for part in _HALF_PI:
        r = fma(n, -part, r)
    u = r * r
    s = fma(r * u, polynomial(u, _SIN), r)
    c = fma(u * u, polynomial(u, _COS), fma(np.float32(-0.5), u, _ONE))
    odd = (k & np.int32(1)) != 0
    sin, cos = np.where(odd, c, s), np.where(odd, s, c)
    flip_sin, flip_cos = (k & np.int32(2)) != 0, ((k + np.int32(1)) & np.int32(2)) != 0
    return np.where(flip_sin, -sin, sin), np.where(flip_cos, -cos, cos)


@quiet
def log(x: FloatArray) -> FloatArray:
    """The natural logarithm of normal x > 0; meaningless for other x."""
    bits = bits_of(x)
    exponent = (bits - _SQRT_HALF_BITS) >> np.int32(23)
    f = (bits - (exponent << np.int32(23))).view(np.float32) - _ONE
    s = f / (_TWO + f)
    u = s * s
    t = fma(s * u, polynomial(u, _LOG), _TWO * s)
    e = exponent.astype(np.float32)
    return fma(e, _LN2_HIGH, fma(e, _LN2_LOW, t))


@quiet
def log_softmax(logits: FloatArray) -> FloatArray:
    """Log-probabilities along the last axis (section 5)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logprobs: FloatArray = shifted - log(sum_striped(exp(shifted)))[..., None]
    return logprobs


def _nearest_multiple(x: FloatArray, inverse: np.float32) -> tuple[IntArray, FloatArray]:
    """The integer nearest to x · inverse, as int32 and as float32."""
    z = fma(x, inverse, ROUNDER)
    return bits_of(z) - bits_of(ROUNDER), z - ROUNDER
