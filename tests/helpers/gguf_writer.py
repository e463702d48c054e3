"""A small GGUF writer for tests: whole files, split files, and files broken on purpose.

`build` returns the bytes together with `marks`: the offset of every structure by name, so that a test can cut
or overwrite exactly there.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from isobit.quants import type_by_name

VALUE_TYPES = {
    "u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7, "string": 8, "array": 9,
    "u64": 10, "i64": 11, "f64": 12,
}  # fmt: skip
_FORMS = {
    "u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "f32": "f", "bool": "B", "u64": "Q",
    "i64": "q", "f64": "d",
}  # fmt: skip

_ITEM_NAMES = {
    "b1": "bool", "u1": "u8", "i1": "i8", "u2": "u16", "i2": "i16", "u4": "u32", "i4": "i32", "u8": "u64",
    "i8": "i64", "f4": "f32", "f8": "f64",
}  # fmt: skip


@dataclass(frozen=True)
class Value:
    """A metadata value of a given type. kind: a name in VALUE_TYPES or, for broken files, a number.

    For arrays `kind` is "array" and `item` the element type. raw: bytes instead of the encoded value.
    """

    kind: str | int
    value: object = None
    item: str | int = "u32"
    raw: bytes | None = None


@dataclass(frozen=True)
class Tensor:
    """A tensor: shape in NumPy order, data random unless given; the other fields overrule what is written."""

    name: str | bytes
    shape: tuple[int, ...] = (2, 32)
    type: str = "F32"
    data: bytes | None = None
    dimensions: tuple[int, ...] | None = None
    type_id: int | None = None
    offset: int | None = None


@dataclass
class Built:
    """The bytes of a file and where its structures start. `marks` is in the order of the file."""

    data: bytes
    marks: dict[str, int] = field(default_factory=dict)

    def patched(self, mark: str, new: bytes) -> bytes:
        """The file with the bytes at a mark overwritten."""
        start = self.marks[mark]
        return self.data[:start] + new + self.data[start + len(new) :]


@dataclass
class _Writer:
    big_endian: bool = False
    out: bytearray = field(default_factory=bytearray)
    marks: dict[str, int] = field(default_factory=dict)

    def number(self, form: str, value: object, mark: str | None = None) -> None:
        if mark is not None:
            self.marks[mark] = len(self.out)
        self.out += struct.pack((">" if self.big_endian else "<") + form, value)

    def string(self, text: str | bytes, mark: str) -> None:
        encoded = text.encode() if isinstance(text, str) else text
        self.number("Q", len(encoded), f"{mark}.length")
        self.marks[mark] = len(self.out)
        self.out += encoded

    def value(self, value: Value, mark: str) -> None:
        self.number("I", _id(value.kind), f"{mark}.type")
        self.marks[mark] = len(self.out)
        if value.raw is not None:
            self.out += value.raw
        elif value.kind == "array":
            self.array(value, mark)
        else:
            self.item(value.kind, value.value, mark)

    def array(self, value: Value, mark: str) -> None:
        items = list(value.value)  # type: ignore[call-overload]
        self.number("I", _id(value.item), f"{mark}.item_type")
        self.number("Q", len(items), f"{mark}.count")
        for index, item in enumerate(items):
            self.item(value.item, item, f"{mark}[{index}]")

    def item(self, kind: str | int, value: object, mark: str) -> None:
        if kind == "string":
            assert isinstance(value, (str, bytes))
            self.string(value, mark)
        else:
            self.number(_FORMS[str(kind)], value)


def as_value(value: object) -> Value:
    """The usual type of a Python or NumPy value: u32 for int, f32 for float, arrays by their dtype."""
    if isinstance(value, Value):
        return value
    if isinstance(value, np.ndarray):
        return Value("array", value.tolist(), _ITEM_NAMES[value.dtype.str[1:]])
    if isinstance(value, list):
        return Value("array", value, "string")
    kinds: dict[type, str] = {bool: "bool", int: "u32", float: "f32", str: "string", bytes: "string"}
    return Value(kinds[type(value)], value)


def build(
    metadata: Mapping[str, object] | Sequence[tuple[str | bytes, object]],
    tensors: Sequence[Tensor] = (),
    *,
    version: int = 3,
    alignment: int = 32,
    big_endian: bool = False,
    seed: int = 0,
) -> Built:
    """Writes a file. `metadata` may be pairs, to write a key twice; `general.alignment` is not added."""
    writer = _Writer(big_endian)
    pairs = list(metadata.items()) if isinstance(metadata, Mapping) else list(metadata)
    writer.marks["magic"] = 0
    writer.out += b"GGUF"
    writer.number("I", version, "version")
    writer.number("Q", len(tensors), "tensor_count")
    writer.number("Q", len(pairs), "metadata_count")
    for index, (key, value) in enumerate(pairs):
        writer.string(key, f"key{index}")
        writer.value(as_value(value), f"value{index}")
    filled = [_with_data(tensor, seed + index) for index, tensor in enumerate(tensors)]
    end = 0
    for index, tensor in enumerate(filled):
        _write_entry(writer, tensor, f"tensor{index}", end)
        end += _padded(len(tensor.data or b""), alignment)
    if filled:
        writer.out += bytes(-len(writer.out) % alignment)
    for index, tensor in enumerate(filled):
        writer.marks[f"data{index}"] = len(writer.out)
        data = tensor.data or b""
        writer.out += data + bytes(_padded(len(data), alignment) - len(data))
    return Built(bytes(writer.out), writer.marks)


def write(path: Path, *args: object, **settings: object) -> Path:
    """`build` into a file; returns the path."""
    path.write_bytes(build(*args, **settings).data)  # type: ignore[arg-type]
    return path


def write_split(
    folder: Path, name: str, metadata: Mapping[str, object], parts: Sequence[Sequence[Tensor]]
) -> list[Path]:
    """A split model: one file for each list of tensors, the metadata in the first."""
    total = sum(len(tensors) for tensors in parts)
    paths = []
    for number, tensors in enumerate(parts):
        keys = {
            "split.no": Value("u16", number),
            "split.count": Value("u16", len(parts)),
            "split.tensors.count": Value("i32", total),
        }
        path = folder / f"{name}-{number + 1:05d}-of-{len(parts):05d}.gguf"
        paths.append(write(path, {**(metadata if number == 0 else {}), **keys}, tensors, seed=100 * number))
    return paths


def random_bytes(count: int, seed: int) -> bytes:
    """Reproducible random bytes."""
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8).tobytes()


def _write_entry(writer: _Writer, tensor: Tensor, mark: str, offset: int) -> None:
    writer.string(tensor.name, f"{mark}.name")
    dimensions = tuple(reversed(tensor.shape)) if tensor.dimensions is None else tensor.dimensions
    writer.number("I", len(dimensions), f"{mark}.rank")
    for axis, dimension in enumerate(dimensions):
        writer.number("Q", dimension, f"{mark}.dimension{axis}")
    type_id = type_by_name(tensor.type).ggml_id if tensor.type_id is None else tensor.type_id
    writer.number("I", type_id, f"{mark}.type")
    writer.number("Q", offset if tensor.offset is None else tensor.offset, f"{mark}.offset")


def _with_data(tensor: Tensor, seed: int) -> Tensor:
    if tensor.data is not None:
        return tensor
    return replace(tensor, data=random_bytes(type_by_name(tensor.type).num_bytes(tensor.shape), seed))


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _id(kind: str | int) -> int:
    return kind if isinstance(kind, int) else VALUE_TYPES[kind]
