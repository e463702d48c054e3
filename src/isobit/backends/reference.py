"""The reference backend: docs/numerics.md as a program, plain and slow. Every other backend must give its bits.

The functions below are the operations of section 3, on float32 [tokens, width]. Sections are those of that page.
"""

from __future__ import annotations

import numpy as np

from isobit.backends.arithmetic import (
    CHUNK,
    FloatArray,
    IntArray,
    NonFiniteError,
    fma,
    quiet,
    require_finite,
    sum_striped,
    tree_sum,
)
from isobit.backends.base import Activations, Observer
from isobit.backends.functions import exp, gelu, silu, sincos, tanh
from isobit.backends.reference_linear import linear, rows_of
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
from isobit.quants import dequantize


@quiet
def embed(tokens: IntArray, weight: Weight) -> FloatArray:
    """Rows `tokens` of the matrix, dequantised."""
    data = np.ascontiguousarray(rows_of(weight)[tokens]).reshape(-1)
    return dequantize(weight.type, data, (len(tokens), weight.shape[1]))


@quiet
def rms_norm(x: FloatArray, weight: FloatArray, eps: float, heads: int = 1) -> FloatArray:
    """x / rms(x) · weight, over each of `heads` equal parts of the features."""
    parts = x.reshape(len(x), heads, x.shape[1] // heads)
    squares = sum_striped(parts, squares=True)
    require_finite(squares)
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
    """cap · tanh(x / cap); x must be finite (section 4)."""
    require_finite(x)
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
    require_finite(scores)
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
        check_batch(batch, self.program, cache)
        run = _Pass(self.program, self.activations, batch, cache)
        last = len(self.program.ops) - 1
        for index, op in enumerate(self.program.ops):
            try:
                written = run.execute(op)
                if index == last:
                    require_finite(run.buffers["logits"])
            except NonFiniteError as bad:
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
                return linear(b[op.x], op.weight, op.bias, "int16" if op.precise else self.activations)
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
        require_finite(written)
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
            try:
                out[i] = attention(q[i], keys, values, first, op)
            except NonFiniteError as bad:  # its row is a head
                raise NonFiniteError(i, bad.value) from None
        return out.reshape(len(self.rows), op.heads * self.program.head_dim)
