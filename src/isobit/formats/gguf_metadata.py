"""The key/value section of a GGUF file. Source: the GGUF format document of the ggml project."""

from __future__ import annotations

import struct

from isobit.errors import UnsupportedError
from isobit.formats.gguf_cursor import Cursor, shown

_BOOL, _STRING, _ARRAY = 7, 8, 9
# Value type id -> NumPy name; bool, string and array are handled apart.
_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_STRUCTS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_MAX_KEY_BYTES = 65535
# The shortest pair: key length (8), one byte of key, type (4), one byte of value.
MIN_PAIR_SIZE = 14


def read_metadata(cursor: Cursor, count: int) -> tuple[dict[str, object], dict[str, int]]:
    """Reads `count` key/value pairs; returns the values and the byte offset of each key.

    Numbers become int or float, bools bool, strings str, arrays of strings list[str], other arrays read-only
    NumPy arrays. Raises FormatError, or UnsupportedError for arrays of arrays.
    """
    metadata: dict[str, object] = {}
    places: dict[str, int] = {}
    for index in range(count):
        start = cursor.position
        key = cursor.string(f"metadata key {index}", _MAX_KEY_BYTES)
        if not key:
            raise cursor.error("is empty, expected a name", f"metadata key {index}", start)
        if key in metadata:
            raise cursor.error(f"{shown(key)} stands in the metadata twice", f"metadata key {index}", start)
        metadata[key] = _read_value(cursor, f"metadata {shown(key)}")
        places[key] = start
    return metadata, places


def _read_value(cursor: Cursor, field: str) -> object:
    start = cursor.position
    kind = cursor.u32(f"{field} type")
    if kind in _STRUCTS:
        form = struct.Struct(_STRUCTS[kind])
        return form.unpack_from(cursor.buffer, cursor.take(form.size, field))[0]
    if kind == _BOOL:
        return _read_bool(cursor, field)
    if kind == _STRING:
        return cursor.string(field)
    if kind == _ARRAY:
        return _read_array(cursor, field)
    raise cursor.error(f"value type is {kind}, expected 0 to 12", f"{field} type", start)


def _read_bool(cursor: Cursor, field: str) -> bool:
    start = cursor.take(1, field)
    value = cursor.buffer[start]
    if value > 1:
        raise cursor.error(f"bool is {value}, expected 0 or 1", field, start)
    return value == 1


def _read_array(cursor: Cursor, field: str) -> object:
    start = cursor.position
    kind = cursor.u32(f"{field} element type")
    if kind == _ARRAY:
        raise UnsupportedError(
            f"{field} at byte {start} is an array of arrays, which no known model uses; expected an array of "
            f"numbers, bools or strings (in {cursor.path})"
        )
    if kind == _STRING:
        return cursor.strings(cursor.count(8, f"{field} count"), field)
    if kind == _BOOL:
        return _read_bools(cursor, field)
    if kind not in _NUMBERS:
        raise cursor.error(f"element type is {kind}, expected 0 to 12", f"{field} element type", start)
    item_size = int(_NUMBERS[kind][2])
    return cursor.array(_NUMBERS[kind], cursor.count(item_size, f"{field} count"), field)


def _read_bools(cursor: Cursor, field: str) -> object:
    count = cursor.count(1, f"{field} count")
    first = cursor.position
    values = cursor.array("<u1", count, field)
    if count and values.max() > 1:
        index = int((values > 1).argmax())
        raise cursor.error(f"bool is {values[index]}, expected 0 or 1", f"{field}[{index}]", first + index)
    return values.view("?")
