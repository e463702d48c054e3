"""Frequencies of rotary embeddings with every scaling that Llama files use.

Computed in decimal arithmetic and rounded once to float32, so that no libm has a say in them
(docs/numerics.md, rope). Sources: RoFormer (arXiv:2104.09864), YaRN (arXiv:2309.00071), the GGUF metadata keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from isobit.errors import FormatError, UnsupportedError
from isobit.formats.checkpoint import Checkpoint
from isobit.ops import RopeTable

_CONTEXT = Context(prec=40)
_PI = Decimal("3.14159265358979323846264338327950288419716939937510")


@dataclass(frozen=True)
class RopeScaling:
    """How positions beyond the trained context are handled."""

    kind: Literal["none", "linear", "yarn"] = "none"
    factor: float = 1.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0


def rope_table(
    theta: float,
    rotary_dim: int,
    style: Literal["interleaved", "halves"],
    scaling: RopeScaling | None = None,
    divisors: npt.NDArray[np.float32] | None = None,
) -> RopeTable:
    """Frequencies theta^(−2i / rotary_dim), scaled.

    `divisors`: float32 [rotary_dim / 2], the tensor `rope_freqs.weight` of Llama 3 files.
    """
    scaling = scaling or RopeScaling()
    with localcontext(_CONTEXT):
        log_theta = Decimal(theta).ln()
        plain = [(-log_theta * 2 * i / rotary_dim).exp() for i in range(rotary_dim // 2)]
        if divisors is not None:
            plain = [f / Decimal(float(d)) for f, d in zip(plain, divisors, strict=True)]
        mscale = Decimal(scaling.attention_factor)
        if scaling.kind == "linear":
            plain = [f / Decimal(scaling.factor) for f in plain]
        elif scaling.kind == "yarn":
            mix = _yarn_mix(log_theta, rotary_dim, scaling)
            factor = Decimal(scaling.factor)
            plain = [f / factor * (1 - m) + f * m for f, m in zip(plain, map(mix, range(len(plain))), strict=True)]
            mscale *= 1 + Decimal("0.1") * factor.ln()
        inv_freq = np.array([nearest_float32(f) for f in plain], np.float32)
        return RopeTable(inv_freq, float(nearest_float32(mscale)), style)


def _yarn_mix(log_theta: Decimal, rotary_dim: int, scaling: RopeScaling) -> Callable[[int], Decimal]:
    """Share of the unscaled frequency: 1 for fast rotations, 0 for slow ones, a ramp between."""

    def dimension(rotations: float) -> Decimal:
        ratio = Decimal(scaling.original_context) / (Decimal(rotations) * 2 * _PI)
        return rotary_dim * ratio.ln() / (2 * log_theta)

    last = Decimal(rotary_dim - 1)
    low = max(Decimal(0), dimension(scaling.beta_fast).to_integral_value(ROUND_FLOOR))
    high = min(last, dimension(scaling.beta_slow).to_integral_value(ROUND_CEILING))

    def mix(i: int) -> Decimal:
        ramp = (i - low) / max(Decimal("0.001"), high - low)
        return 1 - min(Decimal(1), max(Decimal(0), ramp))

    return mix


def nearest_float32(value: Decimal) -> np.float32:
    """The float32 nearest to a positive decimal (no double rounding through float64)."""
    guess = np.float32(float(value))
    exact = Fraction(value)
    around = (np.nextafter(guess, np.float32(0)), guess, np.nextafter(guess, np.float32(np.inf)))
    return min(around, key=lambda f: abs(Fraction(float(f)) - exact))


def scaling_from(checkpoint: Checkpoint) -> RopeScaling:
    """Reads the `rope.scaling.*` keys. Raises UnsupportedError for a kind that is not known."""
    kind = checkpoint.key("rope.scaling.type", str, "none")
    factor = checkpoint.key("rope.scaling.factor", float, checkpoint.key("rope.scale_linear", float, 1.0))
    if kind == "none":
        # Files older than rope.scaling.type give the linear factor alone.
        kind = "linear" if factor not in (0.0, 1.0) else "none"
    if kind not in ("none", "linear", "yarn"):
        raise UnsupportedError(
            f"rope.scaling.type is {kind!r}; supported are none, linear, yarn and Llama 3's rope_freqs tensor"
        )
    if kind != "none" and not 0.0 < factor < float("inf"):
        raise FormatError(f"is {factor}; expected a positive factor", field="rope.scaling.factor")
    original = checkpoint.key("rope.scaling.original_context_length", int, checkpoint.key("context_length", int))
    return RopeScaling(
        "none" if kind == "none" else "linear" if kind == "linear" else "yarn",
        factor,
        original,
        checkpoint.key("rope.scaling.yarn_beta_fast", float, 32.0),
        checkpoint.key("rope.scaling.yarn_beta_slow", float, 1.0),
        checkpoint.key("rope.scaling.attn_factor", float, 1.0),
    )
