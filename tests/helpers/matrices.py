"""Random weight matrices of every type, as they would lie in a file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isobit.quants import TYPES_BY_NAME, QuantType

# Byte offsets of the f16 numbers of a block.
HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,),
}  # fmt: skip


@dataclass(frozen=True)
class Matrix:
    """A `Weight`."""

    name: str
    shape: tuple[int, ...]
    type: QuantType
    data: npt.NDArray[np.uint8]
    mapped: bool = False


def float_matrix(values: npt.ArrayLike, name: str = "w") -> Matrix:
    """An F32 matrix of given values [rows, columns]."""
    array = np.ascontiguousarray(values, np.float32)
    return Matrix(name, array.shape, TYPES_BY_NAME["F32"], array.reshape(-1).view(np.uint8))


def random_matrix(
    kind_name: str, rows: int, columns: int, seed: int = 0, *, spread: float = 1.0, hostile: bool = False
) -> Matrix:
    """Random codes; the f16 numbers are normal with deviation `spread` or, if `hostile`, any finite pattern."""
    rng = np.random.default_rng(seed)
    kind = TYPES_BY_NAME[kind_name]
    if kind.is_float:
        values = rng.normal(0, spread, (rows, columns)).astype(np.float32)
        pattern = values.view(np.uint32)
        data = {"F32": pattern, "F16": values.astype(np.float16), "BF16": (pattern >> 16).astype(np.uint16)}[kind_name]
        return Matrix("w", (rows, columns), kind, data.reshape(-1).view(np.uint8).copy())
    blocks = rng.integers(0, 256, (rows * columns // kind.block_size, kind.type_size), dtype=np.uint8)
    for offset in HALVES[kind_name]:
        halves = rng.normal(0, spread, len(blocks)).astype(np.float16)
        if hostile:
            finite = rng.integers(0, 0x7C00, len(blocks)) | rng.integers(0, 2, len(blocks)) << 15
            halves = finite.astype(np.uint16).view(np.float16)
        blocks[:, offset : offset + 2] = halves.view(np.uint8).reshape(-1, 2)
    return Matrix("w", (rows, columns), kind, blocks.reshape(-1))
