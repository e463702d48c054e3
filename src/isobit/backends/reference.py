"""The reference backend: docs/numerics.md as a program, plain and slow. Every other backend must give its bits.

The functions below are the operations of section 3, on float32 [tokens, width]. Sections are those of that page.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isobit.backends.arithmetic import (
    CHUNK,
    FloatArray,
    IntArray,
    fma,
    quiet,
    round_to_integer,
    sum_striped,
    tree_sum,
)
from isobit.backends.base import Activations, Observer
from isobit.backends.functions import exp, gelu, silu, sincos, tanh
from isobit.errors import InputError, NumericsError
from isobit.ops import (
    PAGE_SIZE,
    Add,
    Attention,
    Batch,
    Embed,
    GatedActivation,
    KVCache,
    KvWrite,
    Linear,
    Op,
    Program,
    RmsNorm,
    Rope,
    RopeTable,
    Scale,
    SelectRows,
    Softcap,
    Weight,
    check_batch,
)
from isobit.quants import Blocks, decompose, dequantize

BLOCK = 32
_SMALLEST = np.float32(2.0**-100)  # activations below it count as zero
_WEIGHTS_AT_ONCE = 1 << 19  # a matter of memory only

CacheArray = npt.NDArray[np.float16] | npt.NDArray[np.float32]


class _NonFiniteError(Exception):
    """A value that section 4 forbids, in this row of the operation's tokens."""

    def __init__(self, row: int, value: float) -> None:
        super().__init__(row, value)
        self.row, self.value = row, value


def _require_finite(values: FloatArray) -> None:
    """Raises _NonFiniteError for the lowest row of [rows, …] that holds an infinity or NaN."""
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise _NonFiniteError(int(bad[0, 0]), float(values[tuple(bad[0])]))


def _rows(weight: Weight) -> npt.NDArray[np.uint8]:
    """The bytes of a matrix, uint8 [rows, bytes of a row]."""
    return weight.data.reshape(weight.shape[0], -1)


@quiet
def embed(tokens: IntArray, weight: Weight) -> FloatArray:
    """Rows `tokens` of the matrix, dequantised."""
    data = np.ascontiguousarray(_rows(weight)[tokens]).reshape(-1)
    return dequantize(weight.type, data, (len(tokens), weight.shape[1]))


@quiet
def linear(x: FloatArray, weight: Weight, bias: FloatArray | None, activations: Activations) -> FloatArray:
    """x · weightᵀ + bias (sections 3.1 to 3.3), a few rows of the matrix at a time."""
    _require_finite(x)
    rows, columns = weight.shape
    out = np.empty((len(x), rows), np.float32)
    if len(x) == 0:
        return out
    inputs = None if weight.type.is_float else _Codes(x, activations)
    step = max(1, _WEIGHTS_AT_ONCE // columns)
    for start in range(0, rows, step):
        data = _rows(weight)[start : start + step]
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


@quiet
def rms_norm(x: FloatArray, weight: FloatArray, eps: float, heads: int = 1) -> FloatArray:
    """x / rms(x) · weight, over each of `heads` equal parts of the features."""
    parts = x.reshape(len(x), heads, x.shape[1] // heads)
    squares = sum_striped(parts, squares=True)
    _require_finite(squares)
    r = np.float32(1) / np.sqrt(squares / np.float32(parts.shape[2]) + np.float32(eps))
    y: FloatArray = (parts * r[:, :, None]) * weight
    return y.reshape(x.shape)


@quiet
def rope(x: FloatArray, positions: IntArray, heads: int, table: RopeTable) -> FloatArray:
    """Each head rotated by its token's position."""
    half = len(table.inv_freq)
    sin, cos = sincos(positions.astype(np.float32)[:, None] * table.inv_freq)
    c, s = ((values * np.float32(table.mscale))[:, None, :] for values in (cos, sin))
    y: FloatArray = x.reshape(len(x), heads, x.shape[1] // heads).copy()
    if table.style == "interleaved":
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    x0, x1 = y[:, :, first].copy(), y[:, :, second].copy()
    y[:, :, first] = fma(x0, c, -(x1 * s))
    y[:, :, second] = fma(x1, c, x0 * s)
    return y.reshape(x.shape)


@quiet
def scale(x: FloatArray, factor: float) -> FloatArray:
    """x · factor."""
    y: FloatArray = x * np.float32(factor)
    return y


@quiet
def softcap(x: FloatArray, cap: float) -> FloatArray:
    """cap · tanh(x / cap)."""
    y: FloatArray = tanh(x / np.float32(cap)) * np.float32(cap)
    return y


@quiet
def attention(q: FloatArray, keys: FloatArray, values: FloatArray, first: int, op: Attention) -> FloatArray:
    """One query, [heads, head_dim], over the keys and values it sees, [positions, kv_heads, head_dim].

    `first` is the position of keys[0]. Returns [heads, head_dim].
    """
    group = op.heads // keys.shape[1]
    keys, values = np.repeat(keys, group, axis=1), np.repeat(values, group, axis=1)
    dots = np.zeros((op.heads, len(keys)), np.float32)
    for d in range(q.shape[1]):
        dots = fma(q[:, d, None], keys[:, :, d].T, dots)
    scores = dots * np.float32(op.scale)
    if op.softcap is not None:
        scores = softcap(scores, op.softcap)
    weights = exp(scores - scores.max(axis=1, keepdims=True))
    sums: dict[int, FloatArray] = {}
    for i in range(len(values)):
        chunk = (first + i) // CHUNK
        sums[chunk] = fma(weights[:, i, None], values[i], sums.get(chunk, np.zeros_like(q)))
    result: FloatArray = tree_sum(sums.items()) / sum_striped(weights, first=first)[:, None]
    return result


class ReferenceRunner:
    """A program run by the functions above. Weights are decoded anew in each pass: slow, but no memory is held."""

    def __init__(self, program: Program, activations: Activations = "int8") -> None:
        if activations not in ("int8", "int16"):
            raise InputError(f"activations is {activations!r}; expected int8 or int16")
        self.program = program
        self.activations: Activations = activations
        self._closed = False

    @quiet
    def forward(self, batch: Batch, cache: KVCache, observer: Observer | None = None) -> FloatArray:
        """Runs the program; see `Runner.forward`."""
        if self._closed:
            raise InputError("this model was closed; load it again")
        check_batch(batch, self.program.vocabulary_size, cache)
        run = _Pass(self.program, self.activations, batch, cache)
        last = len(self.program.ops) - 1
        for index, op in enumerate(self.program.ops):
            try:
                written = run.execute(op)
                if index == last:
                    _require_finite(run.buffers["logits"])
            except _NonFiniteError as bad:
                raise self._error(index, int(run.rows[bad.row]), bad.value) from None
            if observer is not None:
                observer(index, written)
        return run.buffers["logits"]

    def close(self) -> None:
        """Nothing to release; `forward` refuses from now on."""
        self._closed = True

    def _error(self, index: int, token: int, value: float) -> NumericsError:
        layer = self.program.layer_of[index]
        place = f"layer {layer}" if layer >= 0 else "outside the layers"
        return NumericsError(
            f"{self.program.labels[index]} ({place}), token {token} of the batch: found {value}, expected finite "
            "numbers; the weights or their quantisation are at fault, try another file of the model"
        )


class _Pass:
    """One forward pass. `buffers`: float32 [rows, width] by name; `rows`: the batch rows that operations work on."""

    def __init__(self, program: Program, activations: Activations, batch: Batch, cache: KVCache) -> None:
        self.program, self.activations, self.batch, self.cache = program, activations, batch, cache
        self.buffers: dict[str, FloatArray] = {}
        self.rows: IntArray = np.arange(len(batch.tokens), dtype=np.int32)

    def execute(self, op: Op) -> FloatArray:
        """Runs one operation and returns what it wrote, [rows, width]."""
        if isinstance(op, KvWrite):
            return self._kv_write(op)
        name = op.x if isinstance(op, Rope | Scale | Softcap) else op.out
        self.buffers[name] = self._result(op)
        return self.buffers[name]

    def _result(self, op: Op) -> FloatArray:  # noqa: PLR0911 (one line per operation)
        b = self.buffers
        match op:
            case Embed():
                return embed(self.batch.tokens[self.rows], op.weight)
            case RmsNorm():
                return rms_norm(b[op.x], op.weight, op.eps, op.heads)
            case Linear():
                return linear(b[op.x], op.weight, op.bias, self.activations)
            case Rope():
                return rope(b[op.x], self.batch.positions[self.rows], op.heads, op.table)
            case Attention():
                return self._attention(op)
            case GatedActivation():
                activate = silu if op.activation == "silu" else gelu
                return activate(b[op.gate]) * b[op.up]
            case Add():
                return b[op.a] + b[op.b]
            case Scale():
                return scale(b[op.x], op.factor)
            case Softcap():
                return softcap(b[op.x], op.cap)
            case SelectRows():
                self.rows = self.rows[self.batch.wanted]
                return b[op.x][self.batch.wanted]
        raise AssertionError(f"no reference for {op}")

    def _kv_write(self, op: KvWrite) -> FloatArray:
        """Stores keys and values; returns them as stored, side by side."""
        positions = self.batch.positions[self.rows]
        pages = self.batch.page_tables[self.batch.sequences[self.rows], positions // PAGE_SIZE]
        slots = positions % PAGE_SIZE
        kind = self.cache.keys.dtype
        k, v = self.buffers[op.k].astype(kind), self.buffers[op.v].astype(kind)
        written = np.concatenate([k, v], axis=1).astype(np.float32)
        _require_finite(written)
        shape = (len(k), self.program.num_kv_heads, self.program.head_dim)
        self.cache.keys[op.layer][pages, :, :, slots] = k.reshape(shape)
        self.cache.values[op.layer][pages, :, slots] = v.reshape(shape)
        return written

    def _attention(self, op: Attention) -> FloatArray:
        q = self.buffers[op.q].reshape(len(self.rows), op.heads, self.program.head_dim)
        out = np.empty_like(q)
        for i, row in enumerate(self.rows):
            last = int(self.batch.positions[row])
            first = 0 if op.window is None else max(0, last - op.window + 1)
            seen = np.arange(first, last + 1)
            pages = self.batch.page_tables[self.batch.sequences[row], seen // PAGE_SIZE]
            keys, values = (
                array[op.layer][index].astype(np.float32)
                for array, index in (
                    (self.cache.keys, (pages, slice(None), slice(None), seen % PAGE_SIZE)),
                    (self.cache.values, (pages, slice(None), seen % PAGE_SIZE)),
                )
            )
            out[i] = attention(q[i], keys, values, first, op)
        return out.reshape(len(self.rows), op.heads * self.program.head_dim)
