"""Bounds-checked reading of little-endian values from a memory-mapped file."""

from __future__ import annotations

import mmap
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from isobit import _native
from isobit.errors import FormatError

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def shown(name: str) -> str:
    """The name as error messages show it: quoted, and not longer than a line."""
    return repr(name) if len(name) <= 80 else f"{name[:77]!r}..."


class Cursor:
    """A position in a mapped file; every read first checks that the bytes exist.

    `field` arguments name, for error messages, what is being read. `path` is the file's name for messages.
    """

    def __init__(self, buffer: mmap.mmap, path: str) -> None:
        self.buffer = buffer
        self.size = len(buffer)
        self.position = 0
        self.path = path

    def error(self, message: str, field: str, offset: int | None = None) -> FormatError:
        """A FormatError about this file; `offset` defaults to the current position."""
        return FormatError(
            f"{message} (in {self.path})", field=field, offset=self.position if offset is None else offset
        )

    def take(self, num_bytes: int, field: str) -> int:
        """Steps over `num_bytes` and returns where they start; FormatError when the file ends before."""
        start = self.position
        if num_bytes > self.size - start:
            raise self.error(
                f"needs {num_bytes} bytes, but only {self.size - start} are left; the file is truncated "
                f"or the length is wrong",
                field,
            )
        self.position = start + num_bytes
        return start

    def u32(self, field: str) -> int:
        """An unsigned 32-bit integer."""
        (value,) = _U32.unpack_from(self.buffer, self.take(4, field))
        return int(value)

    def u64(self, field: str) -> int:
        """An unsigned 64-bit integer."""
        (value,) = _U64.unpack_from(self.buffer, self.take(8, field))
        return int(value)

    def count(self, min_item_size: int, field: str) -> int:
        """A 64-bit count of items of at least `min_item_size` bytes each, bounded by what is left."""
        start = self.position
        count = self.u64(field)
        possible = (self.size - self.position) // min_item_size
        if count > possible:
            raise self.error(
                f"is {count}, but the {self.size - self.position} bytes left hold at most {possible}; "
                f"the file is truncated or the count is wrong",
                field,
                start,
            )
        return count

    def string(self, field: str, max_bytes: int | None = None) -> str:
        """A 64-bit length and that many bytes of UTF-8; FormatError above `max_bytes`."""
        start = self.position
        length = self.u64(f"{field} length")
        left = self.size - self.position
        if length > left:
            raise self.error(
                f"is {length}, but only {left} bytes are left; the file is truncated or the length is wrong",
                f"{field} length",
                start,
            )
        if max_bytes is not None and length > max_bytes:
            raise self.error(f"is {length}, expected at most {max_bytes} bytes", f"{field} length", start)
        first = self.take(length, field)
        return self._decode(first, self.position, field)

    def strings(self, count: int, field: str) -> list[str]:
        """`count` strings. Read natively: vocabularies have hundreds of thousands of entries."""
        result, self.position = _native.read_strings(np.frombuffer(self.buffer, np.uint8), self.position, count)
        if len(result) < count:  # something is wrong with the next one: the plain way names the fault
            self.string(f"{field}[{len(result)}]")
            raise AssertionError("the plain way must find the fault that the native one found")
        return result

    def array(self, dtype: str, count: int, field: str) -> npt.NDArray[Any]:
        """`count` numbers of a little-endian `dtype`, copied into a read-only array of the native order."""
        kind = np.dtype(dtype)
        start = self.take(count * kind.itemsize, field)
        values = np.frombuffer(self.buffer, kind, count, start).astype(kind.newbyteorder("="))
        values.flags.writeable = False
        return values

    def _decode(self, start: int, stop: int, field: str) -> str:
        try:
            return str(self.buffer[start:stop], "utf-8")
        except UnicodeDecodeError as bad:
            seen = self.buffer[start + bad.start : min(start + bad.start + 4, stop)].hex(" ")
            raise self.error(
                f"is not UTF-8: bytes {seen} ({bad.reason}); the file is damaged", field, start + bad.start
            ) from None
