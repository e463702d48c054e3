"""Abused GGUF files, one per known abuse. `python tests/attacks/corpus.py FOLDER` writes them all.

Each attack is a folder of files of which `opened` is opened; that must raise an error whose field contains
`field` at byte `offset` (None: not checked).
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from helpers.gguf_writer import Built, Tensor, Value, as_value, build

Pairs = list[tuple[str | bytes, object]]

METADATA: Pairs = [
    ("general.architecture", "llama"), ("general.alignment", 32), ("u8", Value("u8", 1)),
    ("i64", Value("i64", -1)), ("f64", Value("f64", 1.5)), ("flag", True),
    ("strings", ["one", "two", "three"]),
    ("floats", np.ones(3, np.float32)), ("flags", np.array([True, False])),
]  # fmt: skip
TENSORS = [Tensor("first", (2, 256), "Q4_K"), Tensor("second", (4, 32), "Q8_0"), Tensor("third", (32,))]
BASE = build(METADATA, TENSORS)
KEYS = {str(key): index for index, (key, _) in enumerate(METADATA)}
HUGE = [2**31, 2**32, 2**60, 2**63 - 1, 2**63, 2**64 - 1]


@dataclass(frozen=True)
class Attack:
    """Files by name; a file None is a directory, a file given as str is a symbolic link to that name."""

    name: str
    files: dict[str, bytes | str | None]
    field: str = ""
    offset: int | None = None
    unsupported: bool = False
    opened: str = "model.gguf"

    def write(self, folder: Path) -> Path:
        """Writes the files into an empty folder; returns the path to open."""
        for name, content in self.files.items():
            if content is None:
                (folder / name).mkdir()
            elif isinstance(content, str):
                (folder / name).symlink_to(content)
            else:
                (folder / name).write_bytes(content)
        return folder / self.opened


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def one(name: str, data: bytes, field: str = "", offset: int | None = None, unsupported: bool = False) -> Attack:
    return Attack(name, {"model.gguf": data}, field, offset, unsupported)


def patch(name: str, mark: str, new: bytes, field: str, at: str | None = None) -> Attack:
    """The base file overwritten at a mark; the error must point at the mark `at` (that one if not given)."""
    return one(name, BASE.patched(mark, new), field, BASE.marks[at or mark])


def attacks() -> list[Attack]:
    """All attacks; names are unique."""
    groups = [
        truncations(), not_gguf(), counts(), strings(), values(),
        alignments(), duplicates(), tables(), places(), splits(),
    ]  # fmt: skip
    return [attack for group in groups for attack in group]


def truncations() -> Iterator[Attack]:
    places = {f"before_{mark}": start for mark, start in BASE.marks.items() if start}
    places |= {f"inside_{mark}": start + 1 for mark, start in BASE.marks.items()}
    rng = random.Random(7)
    places |= {f"random_{index}": rng.randrange(len(BASE.data)) for index in range(40)}
    places["last_byte"] = len(BASE.data) - 1
    for name, size in places.items():
        yield one(f"truncated_{name}", BASE.data[:size])


def not_gguf() -> Iterator[Attack]:
    yield one("empty", b"", "header", 0)
    yield one("magic_only", b"GGUF", "header", 4)
    starts = {
        "ggml": b"GGML", "ggjt": b"tjgg", "reversed_magic": b"FUGG", "lower_case": b"gguf",
        "zip": b"PK\x03\x04", "elf": b"\x7fELF", "html": b"<!DOCTYPE html>",
        "lfs_pointer": b"version https://git-lfs", "zeros": bytes(4),
    }  # fmt: skip
    for name, start in starts.items():
        yield one(f"starts_as_{name}", start.ljust(200, b"\0"), "magic", 0)
    for version in (0, 1, 4, 2**31 - 1, 2**32 - 1):
        yield patch(f"version_{version}", "version", u32(version), "version")
    yield one("big_endian", build(METADATA, TENSORS, big_endian=True).data, "version", 4)
    yield Attack("directory", {"model.gguf": None}, "file")
    yield Attack("device", {"model.gguf": "/dev/zero"}, "file")


def counts() -> Iterator[Attack]:
    for count in HUGE:
        yield patch(f"tensor_count_{count}", "tensor_count", u64(count), "header tensor count")
        yield patch(f"metadata_count_{count}", "metadata_count", u64(count), "header metadata count")
    # As many as the file could hold, but does not.
    yield one("tensor_count_one_more", BASE.patched("tensor_count", u64(len(TENSORS) + 1)))
    yield one("metadata_count_one_more", BASE.patched("metadata_count", u64(len(METADATA) + 1)))
    yield one("metadata_count_one_less", BASE.patched("metadata_count", u64(len(METADATA) - 1)))
    yield one("metadata_count_0", BASE.patched("metadata_count", u64(0)))
    for key in ("strings", "floats", "flags"):
        mark = f"value{KEYS[key]}.count"
        for count in HUGE:
            yield patch(f"array_count_{key}_{count}", mark, u64(count), f"metadata '{key}' count")


def strings() -> Iterator[Attack]:
    text, array = KEYS["general.architecture"], KEYS["strings"]
    for length in [*HUGE, len(BASE.data)]:
        yield patch(f"key_length_{length}", "key0.length", u64(length), "metadata key 0 length")
        where = "metadata 'general.architecture' length"
        yield patch(f"string_length_{length}", f"value{text}.length", u64(length), where)
        where = "metadata 'strings'[1] length"
        yield patch(f"item_length_{length}", f"value{array}[1].length", u64(length), where)
        yield patch(f"tensor_name_length_{length}", "tensor1.name.length", u64(length), "tensor 1 name length")
    last = build([("s", ["one", "two"])])
    longer = last.patched("value0[1].length", u64(4))
    yield one("last_item_one_byte_longer", longer, "metadata 's'[1] length", last.marks["value0[1].length"])
    bad = {"lone_byte": b"\xff", "overlong": b"\xc0\xaf", "surrogate": b"\xed\xa0\x80", "cut": b"\xf0\x9f"}
    for name, raw in bad.items():
        yield patch(f"utf8_{name}_in_key", "key0", raw, "metadata key 0")
        yield patch(f"utf8_{name}_in_string", f"value{text}", raw, "metadata 'general.architecture'")
        yield patch(f"utf8_{name}_in_item", f"value{array}[2]", raw, "metadata 'strings'[2]")
        yield patch(f"utf8_{name}_in_tensor_name", "tensor1.name", raw, "tensor 1 name")
    yield one("utf8_cut_between_items", build([("s", [b"\xf0\x9f", b"\x98\x80"])]).data, "metadata 's'[0]")


def values() -> Iterator[Attack]:
    for kind in (13, 14, 255, 2**32 - 1):
        yield patch(f"value_type_{kind}", "value2.type", u32(kind), "metadata 'u8' type")
        mark = f"value{KEYS['floats']}"
        yield patch(f"item_type_{kind}", f"{mark}.item_type", u32(kind), "metadata 'floats' element type")
    for raw in (2, 128, 255):
        yield patch(f"bool_{raw}", f"value{KEYS['flag']}", bytes([raw]), "metadata 'flag'")
    flags = build([("flags", np.array([True, False, True]))])
    start = flags.marks["value0.count"] + 8
    broken = flags.data[: start + 2] + b"\x02" + flags.data[start + 3 :]
    yield one("bool_in_array", broken, "metadata 'flags'[2]", start + 2)
    array_of_arrays = u32(9) + u64(1) + u32(4) + u64(1) + u32(7)
    nested = build([("nested", Value("array", raw=array_of_arrays))])
    yield one("array_of_arrays", nested.data, unsupported=True)
    deep = build([("deep", Value("array", raw=(u32(9) + u64(1)) * 100_000))])
    yield one("array_nested_100000_deep", deep.data, unsupported=True)


def alignments() -> Iterator[Attack]:
    def aligned(name: str, value: object, field: str = "metadata 'general.alignment'") -> Attack:
        built = build([("general.alignment", value)], [Tensor("only", (8, 32))])
        return one(f"alignment_{name}", built.data, field, None if "tensor" in field else built.marks["key0.length"])

    for number in (0, 1, 2, 3, 4, 24, 33, 100, 2**32 - 1):
        yield aligned(str(number), number)
    yield aligned("2_to_31", 2**31, "tensor 'only' offset")
    yield aligned("2_to_63", Value("u64", 2**63), "tensor 'only' offset")
    yield aligned("negative", Value("i32", -32))
    for name, value in {"string": "32", "float": 32.0, "bool": True, "array": np.array([32])}.items():
        yield aligned(name, value)


def duplicates() -> Iterator[Attack]:
    def at(built: Built, mark: str) -> int:
        return built.marks[mark]

    built = build([("a", 1), ("b", 2), ("a", 1)])
    yield one("duplicate_key", built.data, "metadata key 2", at(built, "key2.length"))
    built = build([("", 1)])
    yield one("empty_key", built.data, "metadata key 0", at(built, "key0.length"))
    built = build([("k" * 65536, 1)])
    yield one("key_of_65536_bytes", built.data, "metadata key 0 length", at(built, "key0.length"))
    built = build([], [Tensor("x"), Tensor("y"), Tensor("x")])
    yield one("duplicate_tensor", built.data, "tensor 2 name", at(built, "tensor2.name.length"))
    built = build([], [Tensor("")])
    yield one("empty_tensor_name", built.data, "tensor 0 name", at(built, "tensor0.name.length"))
    built = build([], [Tensor("n" * 65)])
    yield one("tensor_name_of_65_bytes", built.data, "tensor 0 name length", at(built, "tensor0.name.length"))


def tables() -> Iterator[Attack]:
    for rank in (0, 5, 2**31, 2**32 - 1):
        yield patch(f"rank_{rank}", "tensor0.rank", u32(rank), "tensor 'first' dimension count")
    for axis in (0, 1):
        mark = f"tensor0.dimension{axis}"
        yield patch(f"dimension_{axis}_is_0", mark, u64(0), f"tensor 'first' dimension {axis}")
    shapes = {
        "product_2_to_64": (2**32, 2**32), "product_2_to_63": (2**62, 2), "largest_dimension": (2**64 - 1,),
        "largest_dimensions": (2**64 - 1,) * 4, "product_wraps_to_32": (2**32 * 32, 2**32, 1, 1),
    }  # fmt: skip
    for name, dimensions in shapes.items():
        built = build([], [Tensor("t", dimensions=dimensions)])
        yield one(name, built.data, "tensor 't' dimensions", built.marks["tensor0.dimension0"])
    for name, dimensions in {"too_large": (2**62,), "one_weight_too_many": (65,)}.items():
        built = build([], [Tensor("t", (64,), dimensions=dimensions)])
        yield one(f"data_{name}", built.data, "tensor 't' offset", built.marks["tensor0.offset"])
    for type_id in (4, 5, 42, 255, 2**31, 2**32 - 1):
        yield patch(f"type_{type_id}", "tensor0.type", u32(type_id), "tensor 'first' type")
    yield patch("row_of_half_a_block", "tensor0.dimension0", u64(128), "tensor 'first' dimensions", "tensor0.type")
    yield patch("row_of_33_in_blocks_of_32", "tensor1.dimension0", u64(33), "tensor 'second'", "tensor1.type")


def places() -> Iterator[Attack]:
    end = len(BASE.data) - BASE.marks["data0"]
    offsets = {
        "unaligned_1": 1, "unaligned_8": 8, "at_the_end": end, "last_row_beyond": end - 96, "far": 2**40,
        "wraps": 2**64 - 32, "largest": 2**64 - 1, "negative_wrap": 2**63,
    }  # fmt: skip
    for name, offset in offsets.items():
        yield patch(f"offset_{name}", "tensor2.offset", u64(offset), "tensor 'third' offset")
    for offset in (8, 24):
        built = build([], [Tensor("t", offset=offset)])
        yield one(f"unaligned_in_free_space_{offset}", built.data + bytes(64), "tensor 't' offset")
    yield patch("same_place", "tensor1.offset", u64(0), "tensor", "tensor1.offset")
    yield patch("overlap_of_the_last_bytes", "tensor1.offset", u64(256), "tensor 'second' offset")
    swapped = build([], [Tensor("a", offset=224), Tensor("b", offset=0)])
    yield one("overlap_in_reverse_order", swapped.data, "tensor 'a' offset", swapped.marks["tensor0.offset"])


def splits() -> Iterator[Attack]:
    first, second = "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"

    def part(number: object, count: object = 2, total: object = 2, name: str = "t") -> bytes:
        keys = {"split.no": number, "split.count": count, "split.tensors.count": total}
        return build([(key, as_value(value)) for key, value in keys.items()], [Tensor(name)]).data

    def split(name: str, files: dict[str, bytes | str | None], field: str, opened: str = first) -> Attack:
        return Attack(f"split_{name}", files, field, None, opened=opened)

    good = part(0, name="u")
    yield split("part_missing", {first: good}, "split parts")
    yield split("part_is_directory", {first: good, second: None}, "split parts")
    yield split("names_itself", {first: good, second: good}, "split.no")
    yield split("link_to_itself", {first: good, second: first}, "split.no")
    yield split("link_loop", {first: good, second: second}, "split parts")
    yield split("part_truncated", {first: good, second: part(1)[:100]}, "")
    yield split("part_is_not_gguf", {first: good, second: bytes(100)}, "magic")
    yield split("same_tensor_twice", {first: good, second: part(1, name="u")}, "tensor 'u'")
    for name, number in {"other": 1, "large": 2**31, "string": "0", "bool": False, "float": 0.0}.items():
        yield split(f"no_is_{name}", {first: part(number), second: part(1)}, "split.no")
    yield split("no_is_negative", {first: part(Value("i32", -1)), second: part(1)}, "split.no")
    for name, count in {
        "0": 0,
        "1": 1,
        "3": 3,
        "65535": 65535,
        "string": "2",
        "array": np.array([2]),
    }.items():
        yield split(f"count_is_{name}", {first: part(0, count), second: part(1)}, "split.count")
    for total in (0, 1, 3, 2**32 - 1):
        files = {first: part(0, 2, total, "u"), second: part(1, 2, total)}
        yield split(f"total_is_{total}", files, "split.tensors.count")
    yield split("many_parts", {"m-00001-of-65535.gguf": part(0, 65535)}, "parts", "m-00001-of-65535.gguf")
    yield split("part_0", {"m-00000-of-00002.gguf": good, second: part(1)}, "file name", "m-00000-of-00002.gguf")
    yield split("part_3_of_2", {"m-00003-of-00002.gguf": good}, "file name", "m-00003-of-00002.gguf")
    yield split("of_0", {"m-00001-of-00000.gguf": part(0, 0)}, "file name", "m-00001-of-00000.gguf")
    yield split("without_number_in_name", {"m.gguf": good}, "split.count", "m.gguf")


def main() -> None:
    """Writes the corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for attack in attacks():
        (folder / attack.name).mkdir(parents=True)
        attack.write(folder / attack.name)


if __name__ == "__main__":
    main()
