"""The linear operation of the reference backend: docs/numerics.md, sections 3.1 to 3.3."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isobit.backends.arithmetic import CHUNK, FloatArray, fma, quiet, require_finite, round_to_integer, tree_sum
from isobit.backends.base import Activations
from isobit.ops import Weight
from isobit.quants import Blocks, decompose, dequantize

BLOCK = 32
_SMALLEST = np.float32(2.0**-100)  # activations below it count as zero
_WEIGHTS_AT_ONCE = 1 << 19  # a matter of memory only


def rows_of(weight: Weight) -> npt.NDArray[np.uint8]:
    """The bytes of a matrix, uint8 [rows, bytes of a row]."""
    return weight.data.reshape(weight.shape[0], -1)


@quiet
def linear(x: FloatArray, weight: Weight, bias: FloatArray | None, activations: Activations) -> FloatArray:
    """x · weightᵀ + bias (sections 3.1 to 3.3), a few rows of the matrix at a time."""
    require_finite(x)
    rows, columns = weight.shape
    out = np.empty((len(x), rows), np.float32)
    if len(x) == 0:
        return out
    inputs = None if weight.type.is_float else _Codes(x, activations)
    step = max(1, _WEIGHTS_AT_ONCE // columns)
    for start in range(0, rows, step):
        data = rows_of(weight)[start : start + step]
        shape = (len(data), columns)
        if inputs is None:
            chunk_sums = _float_chunk_sums(dequantize(weight.type, data.reshape(-1), shape), x)
        else:
            chunk_sums = inputs.chunk_sums(decompose(weight.type, data.reshape(-1), shape))
        out[:, start : start + step] = tree_sum(enumerate(chunk_sums)).T
    return out if bias is None else out + bias


class _Codes:
    """Rounded activations: `codes` [tokens, K], integers in float32; `scale` [blocks or chunks, 1, tokens]."""

    def __init__(self, x: FloatArray, activations: Activations) -> None:
        self.wide = activations == "int16"
        group, limit = (CHUNK, np.float32(32512)) if self.wide else (BLOCK, np.float32(127))
        groups = np.pad(x, [(0, 0), (0, -x.shape[1] % group)]).reshape(len(x), -1, group)
        largest = np.abs(groups).max(axis=2, keepdims=True)
        zero = largest < _SMALLEST
        codes = np.where(zero, np.float32(0), round_to_integer(groups * (limit / largest)))
        self.codes = codes.reshape(len(x), -1)[:, : x.shape[1]]
        self.scale = np.where(zero, np.float32(0), largest / limit)[:, :, 0].T[:, None, :]

    def chunk_sums(self, weights: Blocks) -> FloatArray:
        """The sum of each chunk, [chunks, rows, tokens]."""
        per_block = BLOCK // weights.sub
        per_chunk = CHUNK // weights.sub
        sub_blocks = self.codes.reshape(len(self.codes), -1, weights.sub)
        dots = _integer_dots(weights, sub_blocks, np.float64 if self.wide else np.float32)
        totals = sub_blocks.sum(axis=2).T[:, None, :]  # of codes; integers below 2^24, so exact
        scale = weights.scale.T[:, :, None]
        minimum = None if weights.minimum is None else weights.minimum.T[:, :, None]
        sums = np.zeros((-(-len(dots) // per_chunk), *dots.shape[1:]), np.float32)
        for block in range(min(CHUNK // BLOCK, len(dots) // per_block)):
            # This block of all chunks that have it (all, or all but the last); its sub-blocks j.
            parts = [slice(block * per_block + j, None, per_chunk) for j in range(per_block)]
            factors = [(dots[part], scale[part]) for part in parts]
            if minimum is not None:
                factors += [(totals[part], minimum[part]) for part in parts]
            chunks = slice(0, len(factors[0][0]))
            if self.wide:
                for value, factor in factors:
                    sums[chunks] = fma(value, factor, sums[chunks])
            else:
                u = factors[0][0] * factors[0][1]
                for value, factor in factors[1:]:
                    u = fma(value, factor, u)
                sums[chunks] = fma(u, self.scale[block :: CHUNK // BLOCK], sums[chunks])
        return sums * self.scale if self.wide else sums


def _integer_dots(weights: Blocks, sub_blocks: FloatArray, kind: type[np.float32 | np.float64]) -> FloatArray:
    """Σ q · code of each sub-block as float32, [sub-blocks, rows, tokens].

    `kind` holds every partial sum exactly (int8: 32 · 128 · 127 < 2^24; int16: 32 · 128 · 32512 < 2^53), so the order
    in which BLAS adds has no influence. Its zero may be −0, where an integer's is +0: hence the `+ 0`.
    """
    q = weights.codes.reshape(len(weights.codes), -1, weights.sub).transpose(1, 0, 2).astype(kind)
    dots: FloatArray = (q @ sub_blocks.transpose(1, 2, 0).astype(kind) + kind(0)).astype(np.float32)
    return dots


def _float_chunk_sums(weights: FloatArray, x: FloatArray) -> FloatArray:
    """The sum of each chunk of x · weightsᵀ, [chunks, rows, tokens]."""
    sums = np.zeros((-(-x.shape[1] // CHUNK), len(weights), len(x)), np.float32)
    for k in range(min(CHUNK, x.shape[1])):
        w_k, x_k = weights[:, k::CHUNK].T[:, :, None], x[:, k::CHUNK].T[:, None, :]
        sums[: len(w_k)] = fma(w_k, x_k, sums[: len(w_k)])
    return sums
