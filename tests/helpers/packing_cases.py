"""The matrices whose packed bytes are stored in tests/golden/packing, and the digest of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import product

from helpers.matrices import HALVES, Matrix, random_matrix
from isobit import _native
from isobit.quants import TYPES_BY_NAME

# Whole tiles and ragged ones; one chunk of 256 columns, several, and a short last one.
ROWS = (1, 16, 37)
COLUMNS = (32, 224, 256, 512, 800)


def cases() -> Iterator[tuple[str, Matrix]]:
    """Name and matrix: every weight type in every shape that it can have."""
    for kind, rows, columns in product(("F32", "F16", "BF16", *HALVES), ROWS, COLUMNS):
        if columns % TYPES_BY_NAME[kind].block_size == 0:
            yield f"{kind} {rows}x{columns}", random_matrix(kind, rows, columns, seed=rows + columns, hostile=True)


def packed_digest(matrix: Matrix) -> str:
    """sha256 of the packed bytes, shortened."""
    packed = _native.pack(matrix.data, matrix.type.ggml_id, *matrix.shape)
    return hashlib.sha256(packed).hexdigest()[:16]
