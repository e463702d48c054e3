"""Digests of logits, and of what each operation wrote for each token."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from isobit.ops import Program, SelectRows

FloatArray = npt.NDArray[np.float32]


def logits_sha256(parts: Iterable[FloatArray]) -> str:
    """sha256 over the little-endian float32 logits [tokens, vocabulary], in order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part, "<f4").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Place:
    """Where two runs part: the first operation that differs, its layer (−1: none) and the token's position."""

    operation: str
    layer: int
    token: int

    def __str__(self) -> str:
        return f"first difference in {self.operation}, token {self.token}"


@dataclass
class Trace:
    """An observer that keeps a digest of each operation's output for the tokens of one sequence.

    Before each pass `expect` names the rows of the batch that belong to the sequence.
    """

    program: Program
    rows: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _tokens: range = range(0)
    _wanted: range = range(0)
    _position: int = 0
    _offsets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        ops = self.program.ops
        self._select = next(i for i, op in enumerate(ops) if isinstance(op, SelectRows))

    def expect(self, position: int, tokens: range, wanted: range, offsets: list[int]) -> None:
        """The sequence's rows are `tokens`, from `position` on; its wanted rows are `wanted`, at `offsets`."""
        self._position, self._tokens, self._wanted, self._offsets = position, tokens, wanted, offsets

    def __call__(self, op: int, output: FloatArray) -> None:
        """Called by the backend after operation `op`."""
        if op < self._select:
            places = [(row, self._position + i) for i, row in enumerate(self._tokens)]
        else:
            places = [(row, self._position + o) for row, o in zip(self._wanted, self._offsets, strict=True)]
        for row, position in places:
            self.rows[op, position] = hashlib.sha256(output[row].tobytes()).digest()

    def first_difference(self, other: Trace) -> Place | None:
        """The earliest operation of the earliest token that differs, among what both have seen."""
        both = self.rows.keys() & other.rows.keys()
        differing = [(position, op) for op, position in both if self.rows[op, position] != other.rows[op, position]]
        if not differing:
            return None
        position, op = min(differing)
        return Place(self.program.labels[op], self.program.layer_of[op], position)
