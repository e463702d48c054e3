"""The operations and the program: what a model is to a backend.

A program is a list of operations over named buffers. A buffer holds float32 features, [tokens, width].
The arithmetic of each operation, down to the order of additions, is in docs/numerics.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from isobit.quants import QuantType

FloatArray: TypeAlias = npt.NDArray[np.float32]


class Weight(Protocol):
    """A matrix as it lies in the model file (`formats.gguf.GGUFTensor` is one).

    `shape` is (rows, columns); `data` holds exactly its bytes, uint8, rows one after the other.
    """

    @property
    def name(self) -> str:
        """Name in the file."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, columns)."""
        ...

    @property
    def type(self) -> QuantType:
        """Weight type."""
        ...

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes."""
        ...

    @property
    def mapped(self) -> bool:
        """Whether the bytes lie in a read-only map of a file: pages let go of come back from there."""
        ...


@dataclass(frozen=True)
class RopeTable:
    """Frequencies of a rotary embedding: `inv_freq` float32 [rotary_dim / 2], radians per position."""

    inv_freq: FloatArray
    mscale: float = 1.0
    style: Literal["interleaved", "halves"] = "halves"


@dataclass(frozen=True)
class Embed:
    """out[t] = row tokens[t] of `weight`, dequantised."""

    out: str
    weight: Weight


@dataclass(frozen=True)
class RmsNorm:
    """out = x / rms(x) · weight, over all features or, with `heads` > 1, over each head's features."""

    out: str
    x: str
    weight: FloatArray
    eps: float
    heads: int = 1


@dataclass(frozen=True)
class Linear:
    """out = x · weightᵀ (+ bias). `precise`: x is rounded to int16 under either setting of activations."""

    out: str
    x: str
    weight: Weight
    bias: FloatArray | None = None
    precise: bool = False


@dataclass(frozen=True)
class Rope:
    """Rotates each head of `x` in place by the token's position."""

    x: str
    heads: int
    table: RopeTable


@dataclass(frozen=True)
class KvWrite:
    """Stores the keys and values of each token at its position in the cache of `layer`."""

    layer: int
    k: str
    v: str


@dataclass(frozen=True)
class Attention:
    """Causal grouped-query attention of `q` over the cache of `layer`.

    `window`: number of positions a query sees, itself included (None: all).
    """

    out: str
    q: str
    layer: int
    heads: int
    scale: float
    window: int | None = None
    softcap: float | None = None


@dataclass(frozen=True)
class GatedActivation:
    """out = activation(gate) · up."""

    out: str
    gate: str
    up: str
    activation: Literal["silu", "gelu"]


@dataclass(frozen=True)
class Add:
    """out = a + b (out may be a or b)."""

    out: str
    a: str
    b: str


@dataclass(frozen=True)
class Scale:
    """x = x · factor, in place (factor is rounded to float32)."""

    x: str
    factor: float


@dataclass(frozen=True)
class Softcap:
    """x = cap · tanh(x / cap), in place."""

    x: str
    cap: float


@dataclass(frozen=True)
class SelectRows:
    """out = the rows of `x` whose logits are wanted; all later operations work on those rows only."""

    out: str
    x: str


Op: TypeAlias = (
    Embed | RmsNorm | Linear | Rope | KvWrite | Attention | GatedActivation | Add | Scale | Softcap | SelectRows
)


@dataclass(frozen=True)
class Program:
    """A model as operations. The result is the buffer `logits` [wanted rows, vocabulary_size].

    `buffers` maps each buffer to its width. `layer_of[i]` is the layer of operation i (−1: before the first or
    after the last layer) and `labels[i]` its name in messages and traces, for example `layers.3.q_proj`.
    """

    architecture: str
    vocabulary_size: int
    context_length: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    ops: tuple[Op, ...]
    buffers: Mapping[str, int]
    layer_of: tuple[int, ...]
    labels: tuple[str, ...]
    windows: tuple[int | None, ...] = field(default=())
