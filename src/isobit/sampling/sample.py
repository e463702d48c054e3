"""From logits to a token, in integers (docs/numerics.md, 5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isobit import _native
from isobit.sampling.params import SamplingParams
from isobit.sampling.philox import draw

FloatArray = npt.NDArray[np.float32]

_ISA = _native.default_isa()  # any of them gives the same bits
_WEIGHT_BITS = 40
_TOP_P_BITS = 53


def log_softmax(logits: FloatArray) -> FloatArray:
    """Log-probabilities, float32 [vocabulary], of one row of logits."""
    with _native.ieee_mode():
        shifted = logits - logits.max()
        total = np.array([_native.sum_striped(_ISA, _native.apply_function(_ISA, "exp", shifted)[0])], np.float32)
        result: FloatArray = shifted - _native.apply_function(_ISA, "log", total)[0]
        return result


def sample(logits: FloatArray, params: SamplingParams, position: int) -> int:
    """The token chosen for `position` from float32 [vocabulary] logits; exact ties go to the lowest id."""
    if params.temperature == 0 or params.top_k == 1:
        return int(logits.argmax())
    with _native.ieee_mode():
        scaled = logits / np.float32(params.temperature)
        ids, values = _top_k(scaled, params.top_k)
        weights = _weights(values, scaled.max())
    if params.top_p < 1:
        kept = _top_p(values, weights, params.top_p)
        ids, weights = ids[kept], weights[kept]
    cumulative = np.cumsum(weights)
    target = draw(params.seed, position) * int(cumulative[-1]) >> 64
    return int(ids[np.searchsorted(cumulative, target, side="right")])


def _top_k(values: FloatArray, k: int) -> tuple[npt.NDArray[np.intp], FloatArray]:
    """Ids, ascending, and values of the k largest; ties at the border go to the lowest ids."""
    if k == 0 or k >= len(values):
        return np.arange(len(values)), values
    border = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > border)
    level = np.flatnonzero(values == border)[: k - len(above)]
    ids = np.sort(np.concatenate([above, level]))
    return ids, values[ids]


def _weights(values: FloatArray, maximum: np.float32) -> npt.NDArray[np.int64]:
    """floor(exp(y − max) · 2^40): exact, since the product only shifts the exponent."""
    exponentials = _native.apply_function(_ISA, "exp", np.ascontiguousarray(values - maximum))[0]
    result: npt.NDArray[np.int64] = np.ldexp(exponentials.astype(np.float64), _WEIGHT_BITS).astype(np.int64)
    return result


def _top_p(values: FloatArray, weights: npt.NDArray[np.int64], top_p: float) -> npt.NDArray[np.intp]:
    """Places, ascending, of the shortest prefix in falling order that holds at least top_p of the weight."""
    order = np.lexsort((np.arange(len(values)), -values))
    cumulative = np.cumsum(weights[order])
    target = int(cumulative[-1]) * int(top_p * 2**_TOP_P_BITS) >> _TOP_P_BITS
    count = int(np.searchsorted(cumulative, target, side="left")) + 1
    return np.sort(order[:count])
