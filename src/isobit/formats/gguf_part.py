"""Opening one GGUF file: mapping, header, metadata and tensor table."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from isobit.errors import FormatError, InputError, ModelNotFoundError
from isobit.formats.gguf_cursor import Cursor
from isobit.formats.gguf_metadata import MIN_PAIR_SIZE, read_metadata
from isobit.formats.gguf_tensors import MIN_ENTRY_SIZE, GGUFTensor, read_tensors

_MAGIC = b"GGUF"
_HEADER_SIZE = 24
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, eq=False)
class Part:
    """One file, read and checked.

    alignment: of tensor data, bytes. places: the byte offset of each metadata key. buffer: the read-only
    map, kept alive by the tensors' views.
    """

    path: Path
    version: int
    alignment: int
    metadata: Mapping[str, object]
    places: Mapping[str, int]
    tensors: Mapping[str, GGUFTensor]
    buffer: mmap.mmap


def read_part(path: Path) -> Part:
    """Reads and checks one file; raises as `open_gguf` does."""
    cursor = Cursor(_map(path), str(path))
    version = _read_version(cursor)
    tensor_count = cursor.count(MIN_ENTRY_SIZE, "header tensor count")
    pair_count = cursor.count(MIN_PAIR_SIZE, "header metadata count")
    metadata, places = read_metadata(cursor, pair_count)
    alignment = _alignment(cursor, metadata, places)
    tensors = read_tensors(cursor, tensor_count, alignment)
    return Part(path, version, alignment, metadata, places, tensors, cursor.buffer)


def _map(path: Path) -> mmap.mmap:
    """Maps the file; only regular files, since opening a pipe could wait for ever."""
    try:
        _check_regular(path)
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size < _HEADER_SIZE:
                raise _too_short(stream.read(_HEADER_SIZE), size, path)
            return mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ)
    except FormatError:
        raise
    except FileNotFoundError:
        raise ModelNotFoundError(f"there is no file {path}; check the path") from None
    except (OSError, ValueError) as reason:
        raise InputError(f"cannot read {path}: {reason}") from reason


def _check_regular(path: Path) -> None:
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise FormatError(f"{path} is {kind}, expected a GGUF file; give the path of one", field="file")


def _too_short(first: bytes, size: int, path: Path) -> FormatError:
    seen = f"{size} bytes ({first!r})" if size else "empty"
    return FormatError(
        f"{path} is {seen}, expected a GGUF file of at least {_HEADER_SIZE} bytes; fetch it again",
        field="header",
        offset=size,
    )


def _read_version(cursor: Cursor) -> int:
    magic = cursor.buffer[: len(_MAGIC)]
    if magic != _MAGIC:
        raise cursor.error(f"the file starts with {magic!r}, expected {_MAGIC!r}: it is not a GGUF file", "magic", 0)
    cursor.position = len(_MAGIC)
    version = cursor.u32("version")
    if version and version & 0xFFFF == 0:
        raise cursor.error(
            "the file is big-endian, expected little-endian; convert it or fetch the little-endian file",
            "version",
            len(_MAGIC),
        )
    if version not in {2, 3}:
        raise cursor.error(f"is {version}, expected 2 or 3; convert the model again", "version", len(_MAGIC))
    return version


def _alignment(cursor: Cursor, metadata: Mapping[str, object], places: Mapping[str, int]) -> int:
    """The alignment that the file asks for: a power of two and, as the format demands, a multiple of 8."""
    key = "general.alignment"
    value = metadata.get(key, _DEFAULT_ALIGNMENT)
    if type(value) is not int or value < 8 or value & (value - 1):
        raise cursor.error(f"is {value!r:.60}, expected a power of two of at least 8", f"metadata {key!r}", places[key])
    return value
