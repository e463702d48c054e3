"""Small random programs, caches and batches: the shapes of real models in miniature, with weights of every type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from isobit.ops import (
    PAGE_SIZE,
    Add,
    Attention,
    Batch,
    CacheType,
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
)
from isobit.quants import SUPPORTED_NAMES, TYPES_BY_NAME, QuantType, dequantize

Floats = npt.NDArray[np.float32]
Random = np.random.Generator

# Byte offsets of the binary16 numbers of a block.
HALVES = {
    "F16": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Matrix:
    """A weight as a file would hold it."""

    name: str
    shape: tuple[int, ...]
    type: QuantType
    data: npt.NDArray[np.uint8]
    mapped: bool = False


def float_matrix(name: str, values: Floats) -> Matrix:
    """An F32 weight."""
    return Matrix(name, values.shape, TYPES_BY_NAME["F32"], np.ascontiguousarray(values).view(np.uint8).reshape(-1))


def random_matrix(random: Random, name: str, shape: tuple[int, int], kind: QuantType) -> Matrix:
    """Random bytes with finite scales, so large that x · Wᵀ is about as large as x; a tenth of the scales are odd."""
    if kind.name in {"F32", "BF16"}:
        values = (random.normal(size=shape) / np.sqrt(shape[1])).astype(np.float32)
        values[random.random(shape) < 0.05] = random.choice(np.array([0.0, -0.0, 1e-40, -1e-40], np.float32))
        if kind.name == "F32":
            return float_matrix(name, values)
        high_halves = np.ascontiguousarray(values.view(np.uint16).reshape(*shape, 2)[:, :, 1])
        return Matrix(name, shape, kind, high_halves.view(np.uint8).reshape(-1))
    data = random.integers(0, 256, kind.num_bytes(shape), dtype=np.uint8)
    blocks = data.reshape(-1, kind.type_size)
    _set_halves(blocks, kind, np.ones((len(blocks), len(HALVES[kind.name])), np.float16))
    spread = 1.0 if kind.is_float else float(dequantize(kind, data, shape).std())
    count = (len(blocks), len(HALVES[kind.name]))
    scales = (random.normal(size=count) / (spread * np.sqrt(shape[1]))).astype(np.float16)
    odd = np.array([0.0, -0.0, 2.0**-24, -(2.0**-24), 2.0**-15], np.float16)
    _set_halves(blocks, kind, np.where(random.random(count) < 0.1, random.choice(odd, count), scales))
    return Matrix(name, shape, kind, data)


def _set_halves(blocks: npt.NDArray[np.uint8], kind: QuantType, halves: npt.NDArray[np.float16]) -> None:
    for i, offset in enumerate(HALVES[kind.name]):
        blocks[:, offset : offset + 2] = np.ascontiguousarray(halves[:, i]).view(np.uint8).reshape(-1, 2)


@dataclass(frozen=True)
class Shape:
    """The choices that make a random program."""

    seed: int
    layers: int = 2
    hidden: int = 256
    intermediate: int = 288
    kv_heads: int = 2
    group: int = 3
    head_dim: int = 32
    vocabulary: int = 37
    style: Literal["interleaved", "halves"] = "halves"
    rotary_pairs: int | None = None
    windows: tuple[int | None, ...] = (None, 70)
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    activation: Literal["silu", "gelu"] = "silu"
    head_norms: bool = False
    biases: bool = False


@dataclass
class Builder:
    """Collects operations with their labels."""

    shape: Shape
    random: Random
    ops: list[Op] = field(default_factory=list)
    layer_of: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    buffers: dict[str, int] = field(default_factory=dict)
    layer: int = -1

    def add(self, label: str, op: Op) -> None:
        """Appends an operation."""
        self.ops.append(op)
        self.layer_of.append(self.layer)
        self.labels.append(f"layers.{self.layer}.{label}" if self.layer >= 0 else label)

    def vector(self, count: int, centre: float) -> Floats:
        """A norm's weights or a bias."""
        return (centre + 0.3 * self.random.normal(size=count)).astype(np.float32)

    def norm(self, out: str, x: str, heads: int = 1) -> None:
        """An RMS norm."""
        self.buffers.setdefault(out, self.buffers[x])
        eps = float(self.random.choice([1e-5, 1e-6]))
        self.add(f"{out}_norm", RmsNorm(out, x, self.vector(self.buffers[x] // heads, 1.0), eps, heads))

    def linear(self, out: str, x: str, rows: int) -> None:
        """A matrix of a random type that its columns allow."""
        columns = self.buffers[x]
        self.buffers[out] = rows
        kinds = [TYPES_BY_NAME[n] for n in SUPPORTED_NAMES if columns % TYPES_BY_NAME[n].block_size == 0]
        kind = kinds[self.random.integers(len(kinds))]
        weight = random_matrix(self.random, f"{self.layer}.{out}", (rows, columns), kind)
        bias = self.vector(rows, 0.0) if self.shape.biases and self.random.random() < 0.7 else None
        # Neighbours that share x but round it differently must not share what they rounded.
        self.add(f"{out}_proj", Linear(out, x, weight, bias, precise=bool(self.random.random() < 0.3)))

    def program(self) -> Program:
        """What was collected."""
        s = self.shape
        return Program(
            "random",
            s.vocabulary,
            4096,
            s.layers,
            s.kv_heads,
            s.head_dim,
            tuple(self.ops),
            self.buffers,
            tuple(self.layer_of),
            tuple(self.labels),
            s.windows,
        )


def random_program(shape: Shape, embedding: Floats | None = None) -> Program:
    """A decoder with all kinds of operations; `embedding` [vocabulary, hidden] replaces the random, hostile one."""
    random = np.random.default_rng(shape.seed)
    b = Builder(shape, random, buffers={"h": shape.hidden})
    pairs = shape.rotary_pairs or shape.head_dim // 2
    mscale = float(np.float32(random.choice([1.0, 1.1])))
    table = RopeTable((10000.0 ** -(np.arange(pairs) / pairs)).astype(np.float32), mscale, shape.style)
    values = hostile_embedding(random, shape.vocabulary, shape.hidden) if embedding is None else embedding
    b.add("embed", Embed("h", float_matrix("embedding", values)))
    b.add("embed_scale", Scale("h", 1.3))
    for b.layer in range(shape.layers):
        _attention_block(b, table)
        _mlp_block(b)
    b.layer = -1
    b.buffers["last"] = shape.hidden
    b.add("select", SelectRows("last", "h"))
    b.norm("final", "last")
    b.linear("logits", "final", shape.vocabulary)
    if shape.logit_softcap is not None:
        b.add("logit_softcap", Softcap("logits", shape.logit_softcap))
    return b.program()


def _attention_block(b: Builder, table: RopeTable) -> None:
    s = b.shape
    heads = s.kv_heads * s.group
    b.norm("n", "h")
    b.linear("q", "n", heads * s.head_dim)
    b.linear("k", "n", s.kv_heads * s.head_dim)
    b.linear("v", "n", s.kv_heads * s.head_dim)
    if s.head_norms:
        b.norm("q", "q", heads)
        b.norm("k", "k", s.kv_heads)
    b.add("q_rope", Rope("q", heads, table))
    b.add("k_rope", Rope("k", s.kv_heads, table))
    b.add("kv_write", KvWrite(b.layer, "k", "v"))
    b.buffers["attended"] = heads * s.head_dim
    window = s.windows[b.layer]
    scale = float(s.head_dim) ** -0.5
    b.add("attention", Attention("attended", "q", b.layer, heads, scale, window, s.attention_softcap))
    b.linear("o", "attended", s.hidden)
    b.add("attention_residual", Add("h", "h", "o"))


def _mlp_block(b: Builder) -> None:
    s = b.shape
    b.norm("n", "h")
    b.linear("gate", "n", s.intermediate)
    b.linear("up", "n", s.intermediate)
    b.add("activation", GatedActivation("gate", "gate", "up", s.activation))
    b.linear("down", "gate", s.hidden)
    b.add("mlp_residual", Add("h", "h", "down"))


def hostile_embedding(random: Random, vocabulary: int, hidden: int) -> Floats:
    """Ordinary rows, then some of zeros, subnormals, huge and mixed magnitudes."""
    rows = random.normal(size=(vocabulary, hidden)).astype(np.float32)
    rows[1] = np.where(random.random(hidden) < 0.5, np.float32(0.0), np.float32(-0.0))
    rows[2] = random.integers(-99, 99, hidden) * np.float32(1e-45)
    rows[3] *= np.float32(1e16)
    rows[4] *= np.exp2(random.integers(-120, 50, hidden)).astype(np.float32)
    rows[5, :] = np.float32(-0.0)
    rows[5, hidden // 2] = np.float32(1e17)
    return rows


def random_batch(
    random: Random, parts: Iterable[tuple[int, int]], vocabulary: int, wanted: Literal["some", "all", "none"] = "some"
) -> tuple[Batch, int]:
    """A ragged batch of sequences (first position, tokens) over pages in random order, and the pages in the pool."""
    parts = list(parts)
    need = [-(-(start + count) // PAGE_SIZE) for start, count in parts]
    pages = sum(need) + 3
    order = [int(page) for page in random.permutation(pages)]
    rows = []
    for (start, count), pages_here in zip(parts, need, strict=True):
        taken, order = order[:pages_here], order[pages_here:]
        share = {"some": 0.4, "all": 1.0, "none": 0.0}[wanted]
        offsets = [i for i in range(count) if random.random() < share]
        rows.append((random.integers(0, vocabulary, count).tolist(), start, taken, offsets))
    return Batch.build(rows), pages


def random_cache(random: Random, program: Program, pages: int, kind: CacheType) -> KVCache:
    """A pool that holds numbers everywhere: what earlier steps wrote, and what other sequences left behind."""
    cache = KVCache.allocate(program.num_layers, pages, program.num_kv_heads, program.head_dim, kind)
    for array in (cache.keys, cache.values):
        array[...] = random.normal(size=array.shape).astype(array.dtype)
    return cache


def copy_of(cache: KVCache) -> KVCache:
    """The same contents in other memory."""
    return KVCache(cache.keys.copy(), cache.values.copy())
