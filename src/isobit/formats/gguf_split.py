"""Models split over several GGUF files named NAME-00001-of-00003.gguf."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from isobit.errors import FormatError
from isobit.formats.gguf_cursor import shown
from isobit.formats.gguf_part import Part, read_part
from isobit.formats.gguf_tensors import GGUFTensor

_PART_NAME = re.compile(r"(?P<prefix>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)
# Keys that each part has for itself.
_OWN_KEYS = {"split.no", "split.count", "split.tensors.count", "general.alignment"}


def read_parts(path: Path) -> list[Part]:
    """Reads the file and, when it is part of a split model, all its other parts; in order of their numbers.

    Raises FormatError for a missing part or parts that do not belong together, and what `read_part` raises.
    """
    opened = read_part(path)
    count = _split_key(opened, "split.count", default=1)
    name = _PART_NAME.fullmatch(path.name)
    named_count = int(name["count"]) if name else 1
    if count != named_count:
        raise FormatError(
            f"is {count}, but the file name {path.name!r} stands for {named_count} part(s), expected them to "
            f"agree as in NAME-00001-of-{count % 100000:05d}.gguf; restore the original file names",
            field="metadata 'split.count'",
            offset=opened.places.get("split.count"),
        )
    if name is None or (count == 1 and "split.no" not in opened.metadata):
        return [opened]
    number = int(name["number"])
    if not 1 <= number <= count:
        raise FormatError(
            f"{path.name!r} says part {number} of {count}; restore the original file name", field="file name"
        )
    paths = _paths_of_parts(path, name["prefix"], count)
    parts = [opened if other == path else read_part(other) for other in paths]
    _check_parts(parts)
    return parts


def _paths_of_parts(path: Path, prefix: str, count: int) -> list[Path]:
    """The paths of all parts; stops at the first that is missing, however many there should be."""
    paths = []
    for number in range(1, count + 1):
        part = path.with_name(f"{prefix}-{number:05d}-of-{count:05d}.gguf")
        if not part.is_file():
            raise FormatError(
                f"part {part.name!r} of the split model is missing; put all {count} parts in one folder",
                field="split parts",
            )
        paths.append(part)
    return paths


def merge_metadata(parts: Sequence[Part]) -> dict[str, object]:
    """The metadata of all parts; a key that several parts give must have one value, else FormatError."""
    merged = dict(parts[0].metadata)
    for part in parts[1:]:
        for key, value in part.metadata.items():
            if key in _OWN_KEYS:
                continue
            if key in merged and not _same(merged[key], value):
                raise FormatError(
                    f"in {part.path.name!r} differs from a part before it; the parts are not of one model",
                    field=f"metadata {shown(key)}",
                    offset=part.places[key],
                )
            merged.setdefault(key, value)
    return merged


def merge_tensors(parts: Sequence[Part]) -> dict[str, GGUFTensor]:
    """The tensors of all parts; FormatError when two parts hold the same tensor or the total is wrong."""
    merged: dict[str, GGUFTensor] = {}
    for part in parts:
        for name, tensor in part.tensors.items():
            if name in merged:
                raise FormatError(
                    f"stands in {part.path.name!r} and in a part before it", field=f"tensor {shown(name)}"
                )
            merged[name] = tensor
    expected = _split_key(parts[0], "split.tensors.count", default=len(merged))
    if expected != len(merged):
        raise FormatError(
            f"is {expected}, but the {len(parts)} part(s) hold {len(merged)} tensors; fetch the parts again",
            field="metadata 'split.tensors.count'",
            offset=parts[0].places.get("split.tensors.count"),
        )
    return merged


def _check_parts(parts: Sequence[Part]) -> None:
    """Each part must be the one that its file name says, and all must give the same totals."""
    for number, part in enumerate(parts):
        expected = {
            "split.no": number,
            "split.count": len(parts),
            "split.tensors.count": _split_key(parts[0], "split.tensors.count"),
        }
        for key, value in expected.items():
            if _split_key(part, key) != value:
                raise FormatError(
                    f"is {part.metadata[key]}, expected {value} in {part.path.name!r}; the file is misnamed "
                    f"or of another model",
                    field=f"metadata {key!r}",
                    offset=part.places.get(key),
                )


def _split_key(part: Part, key: str, default: int | None = None) -> int:
    value = part.metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FormatError(
            f"is {value!r:.60} in {part.path.name!r}, expected a number from 0; fetch the parts again",
            field=f"metadata {key!r}",
            offset=part.places.get(key),
        )
    return value


def _same(first: object, second: object) -> bool:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and first.tobytes() == second.tobytes()
    return type(first) is type(second) and first == second
