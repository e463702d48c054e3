"""A ragged batch of tokens and the paged key/value cache that it reads and writes."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from isobit.errors import InputError
from isobit.ops.program import Program

PAGE_SIZE = 64
"""Positions in a page of the cache. A matter of memory only: it divides the 256 positions of a chunk of the
canonical order, and no bit depends on it."""

CacheType = Literal["f16", "f32"]


@dataclass(frozen=True)
class KVCache:
    """The page pool of one model: all keys and values of all sequences.

    `keys`   [layers, pages, kv_heads, head_dim, PAGE_SIZE], lanes of a vector are positions;
    `values` [layers, pages, kv_heads, PAGE_SIZE, head_dim], lanes of a vector are features; float16 or float32.
    """

    keys: npt.NDArray[np.float16] | npt.NDArray[np.float32]
    values: npt.NDArray[np.float16] | npt.NDArray[np.float32]

    @classmethod
    def allocate(cls, layers: int, pages: int, kv_heads: int, head_dim: int, dtype: CacheType) -> KVCache:
        """A pool of `pages` pages; memory is touched (and so really taken) only when written."""
        kind = np.dtype(np.float16 if dtype == "f16" else np.float32)
        keys = _reserve((layers, pages, kv_heads, head_dim, PAGE_SIZE), kind)
        values = _reserve((layers, pages, kv_heads, PAGE_SIZE, head_dim), kind)
        return cls(keys, values)

    @property
    def num_pages(self) -> int:
        """Pages in the pool."""
        return int(self.keys.shape[1])


@dataclass(frozen=True)
class Batch:
    """Tokens to run in one step: any number of sequences, each with any number of consecutive tokens.

    `tokens`, `positions`, `sequences`: int32 [tokens]; `sequences[t]` indexes `page_tables`. The tokens of one
    sequence are adjacent, in ascending position. `page_tables`: int32 [sequences, pages], the page of position p is
    `page_tables[s, p // PAGE_SIZE]`. `wanted`: int32, ascending rows whose logits are wanted (may be empty).
    """

    tokens: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    sequences: npt.NDArray[np.int32]
    page_tables: npt.NDArray[np.int32]
    wanted: npt.NDArray[np.int32]

    @classmethod
    def build(
        cls,
        parts: Sequence[tuple[Sequence[int], int, Sequence[int], Sequence[int]]],
    ) -> Batch:
        """Joins (token ids, first position, pages, wanted offsets into these ids) of several sequences."""
        width = max(len(pages) for _, _, pages, _ in parts)
        tables = np.zeros((len(parts), width), np.int32)
        tokens, positions, sequences, wanted = [], [], [], []
        base = 0
        for index, (ids, start, pages, offsets) in enumerate(parts):
            tables[index, : len(pages)] = pages
            tokens.append(np.asarray(ids, np.int32))
            positions.append(np.arange(start, start + len(ids), dtype=np.int32))
            sequences.append(np.full(len(ids), index, np.int32))
            wanted.append(np.asarray(offsets, np.int32) + np.int32(base))
            base += len(ids)
        join = np.concatenate
        return cls(join(tokens), join(positions), join(sequences), tables, join(wanted))


def _reserve(shape: tuple[int, ...], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Zeros, taken from the system in its smallest pages.

    NumPy asks for large ones, of which a first token would touch two in each layer: 240 MB where 2 MB are needed.
    """
    memory = mmap.mmap(-1, math.prod(shape) * kind.itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, kind).reshape(shape)


def check_batch(batch: Batch, program: Program, cache: KVCache) -> None:
    """Raises InputError where a batch or a cache does not fit the program, or breaks its own rules."""
    expected = (program.num_layers, cache.num_pages, program.num_kv_heads)
    if cache.keys.shape != (*expected, program.head_dim, PAGE_SIZE):
        raise InputError(f"the cache's keys are {cache.keys.shape}; this program needs another shape")
    if cache.values.shape != (*expected, PAGE_SIZE, program.head_dim) or cache.values.dtype != cache.keys.dtype:
        raise InputError(f"the cache's values are {cache.values.shape}; they do not fit keys or program")
    count = len(batch.tokens)
    if count == 0 or len(batch.positions) != count or len(batch.sequences) != count:
        raise InputError(f"a batch needs tokens, each with position and sequence; got {count} tokens")
    _check_range("token id", batch.tokens, program.vocabulary_size)
    _check_range("sequence", batch.sequences, len(batch.page_tables))
    _check_range("position", batch.positions, batch.page_tables.shape[1] * PAGE_SIZE)
    _check_range("page", batch.page_tables, cache.num_pages)
    _check_range("wanted row", batch.wanted, count)
    _check_order(batch)


def _check_order(batch: Batch) -> None:
    """Tokens of one sequence stand together, one position after the other."""
    starts = np.diff(batch.sequences, prepend=-1) != 0
    if len(np.unique(batch.sequences)) != np.count_nonzero(starts):
        raise InputError("the tokens of a sequence must be adjacent in a batch")
    if np.any((np.diff(batch.positions, prepend=0) != 1) & ~starts):
        raise InputError("the positions of a sequence's tokens must follow one another")


def _check_range(what: str, values: npt.NDArray[np.int32], limit: int) -> None:
    if values.size and (values.min() < 0 or values.max() >= limit):
        bad = int(values.min() if values.min() < 0 else values.max())
        raise InputError(f"{what} {bad} is outside 0 to {limit - 1}")
