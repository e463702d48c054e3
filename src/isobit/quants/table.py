"""Every weight type a GGUF file can name, with its block layout in bytes.

Ids, names and sizes are those of ggml's type enumeration (the GGUF format document lists them). Ids that ggml
retired before GGUF existed (4, 5) are left out, so they count as unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from isobit.errors import InputError


@dataclass(frozen=True)
class QuantType:
    """A weight type: `block_size` weights are stored together in `type_size` bytes."""

    name: str
    ggml_id: int
    block_size: int
    type_size: int
    supported: bool

    @property
    def bits_per_weight(self) -> float:
        """Stored bits per weight, scales and minima included."""
        return 8 * self.type_size / self.block_size

    @property
    def is_float(self) -> bool:
        """True for F32, F16, BF16 and F64: weights stored as they are, without a scale."""
        return self.name in {"F32", "F16", "BF16", "F64"}

    def num_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this `shape` (NumPy order, rows of `shape[-1]` weights).

        Raises InputError when a row is not a whole number of blocks.
        """
        if not shape or shape[-1] % self.block_size:
            raise InputError(
                f"a {self.name} tensor has shape {shape}, expected its rows (last dimension) to be "
                f"a multiple of the block size {self.block_size}"
            )
        return math.prod(shape) // self.block_size * self.type_size


def _make_table() -> tuple[QuantType, ...]:
    supported = {
        "F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2),
        "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24),
        "Q8_0": (8, 32, 34),
        "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
        "Q6_K": (14, 256, 210),
        "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136),
    }  # fmt: skip
    refused = {
        "Q8_1": (9, 32, 40), "Q8_K": (15, 256, 292),
        "IQ1_S": (19, 256, 50), "IQ1_M": (29, 256, 56),
        "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74), "IQ2_S": (22, 256, 82),
        "IQ3_XXS": (18, 256, 98), "IQ3_S": (21, 256, 110),
        "I8": (24, 1, 1), "I16": (25, 1, 2), "I32": (26, 1, 4), "I64": (27, 1, 8), "F64": (28, 1, 8),
        "Q4_0_4_4": (31, 32, 18), "Q4_0_4_8": (32, 32, 18), "Q4_0_8_8": (33, 32, 18),
        "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66),
        "IQ4_NL_4_4": (36, 32, 18), "IQ4_NL_4_8": (37, 32, 18), "IQ4_NL_8_8": (38, 32, 18),
        "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36), "Q1_0": (41, 128, 18),
    }  # fmt: skip
    types = [QuantType(name, *row, supported=True) for name, row in supported.items()]
    types += [QuantType(name, *row, supported=False) for name, row in refused.items()]
    return tuple(sorted(types, key=lambda entry: entry.ggml_id))


QUANT_TYPES: tuple[QuantType, ...] = _make_table()
"""All known types in the order of their ids."""

TYPES_BY_ID: Mapping[int, QuantType] = MappingProxyType({entry.ggml_id: entry for entry in QUANT_TYPES})
TYPES_BY_NAME: Mapping[str, QuantType] = MappingProxyType({entry.name: entry for entry in QUANT_TYPES})
SUPPORTED_NAMES: tuple[str, ...] = tuple(entry.name for entry in QUANT_TYPES if entry.supported)


def type_by_name(name: str) -> QuantType:
    """The type of that name, in capitals as ggml writes it; raises InputError for an unknown name."""
    if name not in TYPES_BY_NAME:
        raise InputError(f"unknown weight type {name!r}, expected one of {', '.join(TYPES_BY_NAME)}")
    return TYPES_BY_NAME[name]
