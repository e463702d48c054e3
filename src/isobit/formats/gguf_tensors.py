"""The tensor table of a GGUF file: read, and checked against the file before any data is touched."""

from __future__ import annotations

import itertools
import math
import mmap
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isobit.errors import UnsupportedError
from isobit.formats.gguf_cursor import Cursor, shown
from isobit.quants import SUPPORTED_NAMES, TYPES_BY_ID, QuantType

_MAX_NAME_BYTES = 64
_MAX_DIMENSIONS = 4
_MAX_INT64 = 2**63 - 1
# The shortest entry: name length 8, name 1, dimension count 4, one dimension 8, type 4, offset 8.
MIN_ENTRY_SIZE = 33


@dataclass(frozen=True, eq=False)
class GGUFTensor:
    """One tensor of a file.

    shape: NumPy order, (rows, columns); the reverse of ggml's. type: may be unsupported, see
    `require_supported`. data: read-only uint8 view [bytes] of the mapped file. offset: where its first byte
    stands in the file (in its part, for split files).
    """

    name: str
    shape: tuple[int, ...]
    type: QuantType
    data: npt.NDArray[np.uint8]
    offset: int

    @property
    def mapped(self) -> bool:
        """Whether `data` lies in the file's read-only map."""
        base = self.data.base
        source = base.obj if isinstance(base, memoryview) else base
        return isinstance(source, mmap.mmap) and not self.data.flags.writeable


def require_supported(tensor: GGUFTensor) -> GGUFTensor:
    """Returns the tensor; raises UnsupportedError when Isobit does not compute with its weight type."""
    if not tensor.type.supported:
        raise UnsupportedError(
            f"tensor {tensor.name!r} has weight type {tensor.type.name}, which is not supported; expected "
            f"one of {', '.join(SUPPORTED_NAMES)}. Use another quantization of this model"
        )
    return tensor


@dataclass(frozen=True)
class _Entry:
    """A row of the table; `relative` is the data's offset from the start of the data section."""

    name: str
    shape: tuple[int, ...]
    type: QuantType
    relative: int
    relative_at: int
    num_bytes: int


def read_tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, GGUFTensor]:
    """Reads and checks the table of `count` tensors that starts at the cursor; raises FormatError.

    alignment: of tensor data, in bytes.
    """
    entries: dict[str, _Entry] = {}
    for index in range(count):
        start = cursor.position
        entry = _read_entry(cursor, index)
        if entry.name in entries:
            raise cursor.error(f"tensor {shown(entry.name)} stands in the file twice", f"tensor {index} name", start)
        entries[entry.name] = entry
    data_start = -(-cursor.position // alignment) * alignment
    for entry in entries.values():
        _check_place(cursor, entry, data_start, alignment)
    _check_overlap(cursor, list(entries.values()))
    return {entry.name: _view(cursor, entry, data_start) for entry in entries.values()}


def _read_entry(cursor: Cursor, index: int) -> _Entry:
    start = cursor.position
    name = cursor.string(f"tensor {index} name", _MAX_NAME_BYTES)
    if not name:
        raise cursor.error("is empty, expected a name", f"tensor {index} name", start)
    shape = _read_shape(cursor, f"tensor {shown(name)}")
    type_at = cursor.position
    type_id = cursor.u32(f"tensor {shown(name)} type")
    if type_id not in TYPES_BY_ID:
        raise cursor.error(
            f"type id is {type_id}, no known weight type; the file is damaged or newer than Isobit",
            f"tensor {shown(name)} type",
            type_at,
        )
    kind = TYPES_BY_ID[type_id]
    if shape[-1] % kind.block_size:
        raise cursor.error(
            f"shape is {shape}, expected rows of whole {kind.name} blocks of {kind.block_size} weights",
            f"tensor {shown(name)} dimensions",
            type_at,
        )
    relative_at = cursor.position
    relative = cursor.u64(f"tensor {shown(name)} offset")
    return _Entry(name, shape, kind, relative, relative_at, kind.num_bytes(shape))


def _read_shape(cursor: Cursor, field: str) -> tuple[int, ...]:
    start = cursor.position
    rank = cursor.u32(f"{field} dimension count")
    if not 1 <= rank <= _MAX_DIMENSIONS:
        raise cursor.error(f"is {rank}, expected 1 to {_MAX_DIMENSIONS}", f"{field} dimension count", start)
    first = cursor.position
    dimensions = [cursor.u64(f"{field} dimension {axis}") for axis in range(rank)]
    if 0 in dimensions:
        axis = dimensions.index(0)
        raise cursor.error("is 0, expected at least 1", f"{field} dimension {axis}", first + 8 * axis)
    if math.prod(dimensions) > _MAX_INT64:
        raise cursor.error(
            f"the product of {dimensions} exceeds the largest 64-bit integer", f"{field} dimensions", first
        )
    return tuple(reversed(dimensions))


def _check_place(cursor: Cursor, entry: _Entry, data_start: int, alignment: int) -> None:
    field = f"tensor {shown(entry.name)} offset"
    if entry.relative % alignment:
        raise cursor.error(
            f"is {entry.relative}, expected a multiple of the alignment {alignment}", field, entry.relative_at
        )
    end = data_start + entry.relative + entry.num_bytes
    if end > cursor.size:
        raise cursor.error(
            f"is {entry.relative}: the {entry.num_bytes} bytes of data end at byte {end}, but the file ends "
            f"at {cursor.size}; the file is truncated or the table is wrong",
            field,
            entry.relative_at,
        )


def _check_overlap(cursor: Cursor, entries: list[_Entry]) -> None:
    entries.sort(key=lambda entry: entry.relative)
    for before, after in itertools.pairwise(entries):
        end = before.relative + before.num_bytes
        if after.relative < end:
            raise cursor.error(
                f"is {after.relative}, inside tensor {shown(before.name)}, whose data ends at {end}",
                f"tensor {shown(after.name)} offset",
                after.relative_at,
            )


def _view(cursor: Cursor, entry: _Entry, data_start: int) -> GGUFTensor:
    offset = data_start + entry.relative
    data = np.frombuffer(cursor.buffer, np.uint8, entry.num_bytes, offset)
    return GGUFTensor(entry.name, entry.shape, entry.type, data, offset)
