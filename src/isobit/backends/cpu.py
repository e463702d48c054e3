"""The CPU backend: a program becomes the steps of a native session, and a forward pass is one native call."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from isobit import _native
from isobit.backends.base import Activations, Observer, Progress
from isobit.errors import InputError, NumericsError, UnsupportedError
from isobit.ops import (
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

MAX_HEAD_DIM = 256


class CpuRunner:
    """A program ready to run on the CPU.

    `threads` counts the calling one; `isa` is one of `_native.available_isas()` (None: the best). Neither changes a
    bit of any result; the unlisted `specimen`, wrong on purpose, is for tests of certify.
    `weights`: those of another runner of the same program, to share them.
    """

    def __init__(
        self,
        program: Program,
        activations: Activations = "int8",
        threads: int | None = None,
        isa: str | None = None,
        weights: PackedWeights | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.program = program
        self._turn = threading.Lock()  # a session's buffers serve one pass at a time
        self._owner: int | None = None  # the thread whose turn it is
        self.activations: Activations = activations
        self.isa = _checked_isa(isa)
        self.threads = _checked_threads(threads)
        if program.head_dim % 16 or program.head_dim > MAX_HEAD_DIM:
            raise UnsupportedError(
                f"head_dim is {program.head_dim}; the CPU backend needs a multiple of 16, at most {MAX_HEAD_DIM}"
            )
        packed = weights or PackedWeights(self.threads)
        self._weights: PackedWeights | None = packed
        self._session: _native.Session | None = _native.Session(packed.native, self.isa, self.threads)
        self._buffers = _SessionBuilder(self._session, packed, program, activations == "int16").buffers
        packed.pack(progress)

    def variant(
        self,
        *,
        activations: Activations | None = None,
        threads: int | None = None,
        isa: str | None = None,
    ) -> CpuRunner:
        """The same program and packed weights under other settings."""
        if self._weights is None:
            raise InputError("this model was closed; load it again")
        return CpuRunner(
            self.program,
            activations or self.activations,
            threads or self.threads,
            isa or self.isa,
            self._weights,
        )

    def forward(self, batch: Batch, cache: KVCache, observer: Observer | None = None) -> npt.NDArray[np.float32]:
        """Runs the program; see `Runner.forward`. Calls from several threads take turns."""
        with self._own_turn():
            return self._forward(batch, cache, observer)

    @contextmanager
    def _own_turn(self) -> Iterator[None]:
        """One caller at a time; an observer, which is inside of a pass, would wait for itself."""
        me = threading.get_ident()
        if self._owner == me:
            raise InputError("an observer cannot run or close the model that it watches; use a variant of it")
        with self._turn:
            self._owner = me
            try:
                yield
            finally:
                self._owner = None

    def _forward(self, batch: Batch, cache: KVCache, observer: Observer | None) -> npt.NDArray[np.float32]:
        if self._session is None:
            raise InputError("this model was closed; load it again")
        check_batch(batch, self.program, cache)
        watch = self._watch(batch, cache, observer) if observer else None
        try:
            return self._session.forward(
                batch.tokens,
                batch.positions,
                batch.sequences,
                batch.page_tables,
                batch.wanted,
                cache.keys.view(np.uint16) if cache.keys.dtype == np.float16 else cache.keys,
                cache.values.view(np.uint16) if cache.values.dtype == np.float16 else cache.values,
                self._buffers["logits"],
                watch,
            )
        except _native.NonFiniteError as error:
            op, row = error.args
            selected = self._selected(op)
            token = int(batch.wanted[row]) if selected else row
            raise NumericsError(
                f"{self.program.labels[op]}, token {token} of the batch: found an infinity or NaN, expected finite "
                "numbers; the weights or their quantisation are at fault, try another file of the model"
            ) from None

    def _selected(self, op: int) -> bool:
        """Whether operation `op` works on the wanted rows only."""
        return any(isinstance(o, SelectRows) for o in self.program.ops[: op + 1])

    def start_profile(self) -> None:
        """Measures the stages of the passes from now on; see `profile`."""
        self._open_session().start_profile()

    def profile(self) -> list[tuple[list[int], float]]:
        """Of each stage the operation of each of its steps, and the seconds that its passes have taken."""
        return self._open_session().profile()

    def _open_session(self) -> _native.Session:
        if self._session is None:
            raise InputError("this model was closed; load it again")
        return self._session

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed matrices, each counted once; what a step over all of them reads."""
        if self._weights is None:
            raise InputError("this model was closed; load it again")
        return self._weights.native.bytes

    def close(self) -> None:
        """Ends the threads and releases the packed weights; waits for a pass that is running."""
        with self._own_turn():
            self._session = None
            self._weights = None  # variants that share them keep them

    def _watch(self, batch: Batch, cache: KVCache, observer: Observer) -> _native.NativeObserver:
        """Hands each operation's output to `observer`."""
        session = self._session
        assert session is not None

        def watch(index: int) -> None:
            op = self.program.ops[index]
            rows = len(batch.wanted) if self._selected(index) else len(batch.tokens)
            if isinstance(op, KvWrite):
                dtype = cache.keys.dtype
                both = [session.rows(self._buffers[name], rows) for name in (op.k, op.v)]
                with np.errstate(over="ignore"):  # an overflow is reported as an error after the pass
                    stored = np.concatenate(both, axis=1).astype(dtype).astype(np.float32)
                observer(index, stored)
            else:
                name = op.x if isinstance(op, Rope | Scale | Softcap) else op.out
                observer(index, session.rows(self._buffers[name], rows))

        return watch


def _checked_isa(isa: str | None) -> str:
    if isa is None:
        return _native.default_isa()
    if not _native.has_isa(isa):
        listed = ", ".join(_native.available_isas())
        raise InputError(f"instruction set {isa!r} is not available here; choose from {listed}")
    return isa


def _checked_threads(threads: int | None) -> int:
    if threads is None:
        return _native.default_threads()
    if not 1 <= threads <= 1024:
        raise InputError(f"threads is {threads}; expected 1 to 1024")
    return threads


class PackedWeights:
    """The matrices of a program in the layout of the kernels, each packed once however often it is used."""

    def __init__(self, threads: int) -> None:
        self.native = _native.Weights(threads)
        self._indices: dict[tuple[str, bool], int] = {}

    def index(self, weight: Weight, pack: bool) -> int:
        """The native index of a matrix; `pack` is False where only rows are looked up."""
        key = (weight.name, pack)
        if key not in self._indices:
            rows, columns = weight.shape
            self._indices[key] = self.native.add(weight.data, weight.type.ggml_id, rows, columns, pack, weight.mapped)
        return self._indices[key]

    def pack(self, progress: Progress | None) -> None:
        """Packs what was asked for and is not packed yet; pages of the file are released on the way."""
        self.native.pack(functools.partial(progress, "load") if progress else None)


def _selected_buffers(program: Program) -> set[str]:
    """Buffers that nothing writes before the rows are selected: they need room for those rows only."""
    select = next((i for i, op in enumerate(program.ops) if isinstance(op, SelectRows)), len(program.ops))
    before = {getattr(op, "out", None) for op in program.ops[:select]}
    return program.buffers.keys() - before


class _SessionBuilder:
    """Translates operations to native steps."""

    def __init__(
        self,
        session: _native.Session,
        weights: PackedWeights,
        program: Program,
        two_pass: bool,
    ) -> None:
        self.two_pass = two_pass
        self.session = session
        self.weights = weights
        self.program = program
        selected = _selected_buffers(program)
        self.buffers = {name: session.add_buffer(width, name in selected) for name, width in program.buffers.items()}
        self._angles: dict[int, int] = {}
        self._rounded: tuple[str, bool] | None = None  # the buffer whose rounded form is at hand; whether to int16
        for index, op in enumerate(program.ops):
            self._add(index, op)
        session.check_finite(len(program.ops) - 1, self.buffers["logits"])

    def _angle_buffer(self, index: int, table: RopeTable) -> int:
        """Angles are computed once per pass and frequency table."""
        if id(table) not in self._angles:
            buffer = self.session.add_buffer(2 * len(table.inv_freq), False)
            vector = self.session.add_vector(table.inv_freq)
            self.session.rope_angles(index, vector, table.mscale, buffer)
            self._angles[id(table)] = buffer
        return self._angles[id(table)]

    def _linear(self, index: int, op: Linear) -> None:
        weight = self.weights.index(op.weight, pack=True)
        integer = op.weight.type.block_size > 1
        two_pass = op.precise or self.two_pass
        first = not (integer and self._rounded == (op.x, two_pass))
        b = self.buffers
        self.session.linear(index, b[op.out], b[op.x], weight, op.bias, two_pass, first)
        self._rounded = (op.x, two_pass) if integer and op.out != op.x else None

    def _add(self, index: int, op: Op) -> None:
        s, b = self.session, self.buffers
        if isinstance(op, Linear):
            self._linear(index, op)
            return
        self._rounded = None
        if isinstance(op, Embed):
            s.embed(index, b[op.out], self.weights.index(op.weight, pack=False))
        elif isinstance(op, RmsNorm):
            s.rms_norm(index, b[op.out], b[op.x], s.add_vector(op.weight), op.eps, op.heads)
        elif isinstance(op, Rope):
            angles = self._angle_buffer(index, op.table)
            style = op.table.style == "interleaved"
            s.rope(index, b[op.x], op.heads, style, len(op.table.inv_freq), angles)
        elif isinstance(op, KvWrite):
            p = self.program
            s.kv_write(index, b[op.k], b[op.v], op.layer, p.num_kv_heads, p.head_dim)
        elif isinstance(op, Attention):
            self._attention(index, op)
        elif isinstance(op, GatedActivation):
            s.gated(index, b[op.out], b[op.gate], b[op.up], op.activation == "gelu")
        elif isinstance(op, Add):
            s.add(index, b[op.out], b[op.a], b[op.b])
        elif isinstance(op, Scale):
            s.scale(index, b[op.x], op.factor)
        elif isinstance(op, Softcap):
            s.softcap(index, b[op.x], op.cap)
        else:
            s.select_rows(index, b[op.out], b[op.x])

    def _attention(self, index: int, op: Attention) -> None:
        p, b = self.program, self.buffers
        self.session.attention(
            index,
            b[op.out],
            b[op.q],
            op.layer,
            op.heads,
            p.num_kv_heads,
            p.head_dim,
            op.scale,
            op.window or 0,
            op.softcap or 0.0,
        )
