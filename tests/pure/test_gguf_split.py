"""Models in several files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from helpers.gguf_writer import Tensor, Value, write, write_split
from isobit.errors import FormatError
from isobit.formats import open_gguf

METADATA: dict[str, object] = {"general.architecture": "llama", "tokenizer.ggml.tokens": ["a", "b"]}
PARTS = [[Tensor("a")], [Tensor("b", (2, 256), "Q6_K"), Tensor("c")], [Tensor("d", (4,), "F16")]]


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return write_split(tmp_path, "model", METADATA, PARTS)


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_any_part_opens_all(paths: list[Path], opened: int) -> None:
    with open_gguf(paths[opened]) as file:
        assert file.paths == tuple(paths)
        assert list(file.tensors) == ["a", "b", "c", "d"]
        assert file.metadata["tokenizer.ggml.tokens"] == ["a", "b"]
        assert file.num_bytes == sum(path.stat().st_size for path in paths)
        assert file.digest() == hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
        for name, path in zip("abcd", [paths[0], paths[1], paths[1], paths[2]], strict=True):
            tensor = file.tensors[name]
            assert path.read_bytes()[tensor.offset :][: tensor.data.size] == tensor.data.tobytes()


def test_first_part_may_hold_only_metadata(tmp_path: Path) -> None:
    paths = write_split(tmp_path, "m", METADATA, [[], [Tensor("a")]])
    with open_gguf(paths[1]) as file:
        assert list(file.tensors) == ["a"]


def test_missing_part(paths: list[Path]) -> None:
    paths[1].unlink()
    with pytest.raises(FormatError, match=r"part 'model-00002-of-00003.gguf' .* is missing; put all 3"):
        open_gguf(paths[0])


def test_renamed_part(paths: list[Path]) -> None:
    renamed = paths[0].rename(paths[0].with_name("model.gguf"))
    with pytest.raises(FormatError, match=r"split.count' at byte \d+: is 3, .*'model.gguf'"):
        open_gguf(renamed)


def test_name_of_a_part_without_split_keys(tmp_path: Path) -> None:
    path = write(tmp_path / "m-00001-of-00002.gguf", METADATA)
    with pytest.raises(FormatError, match=r"is 1, but the file name .* stands for 2"):
        open_gguf(path)


def test_single_part(tmp_path: Path) -> None:
    for keys in ({}, {"split.no": 0, "split.count": 1, "split.tensors.count": 1}):
        path = write(tmp_path / "m-00001-of-00001.gguf", {**METADATA, **keys}, [Tensor("a")])
        with open_gguf(path) as file:
            assert list(file.tensors) == ["a"]


def rewrite(path: Path, tensors: list[Tensor], *, no: int = 1, count: int = 3, total: int = 4) -> None:
    keys = {
        "split.no": Value("u16", no),
        "split.count": Value("u16", count),
        "split.tensors.count": Value("i32", total),
    }
    write(path, keys, tensors)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"no": 0}, "'split.no' at byte 24: is 0, expected 1"),
        ({"count": 4}, "'split.count' at byte .*: is 4, expected 3"),
        ({"total": 5}, "'split.tensors.count' at byte .*: is 5, expected 4"),
    ],
)
def test_parts_that_disagree(paths: list[Path], changes: dict[str, int], message: str) -> None:
    rewrite(paths[1], PARTS[1], **changes)
    with pytest.raises(FormatError, match=message):
        open_gguf(paths[0])


def test_wrong_total(paths: list[Path]) -> None:
    rewrite(paths[1], PARTS[1][:1])
    with pytest.raises(FormatError, match=r"split.tensors.count' at byte .*: is 4, but the 3 .* hold 3"):
        open_gguf(paths[0])


def test_tensor_in_two_parts(paths: list[Path]) -> None:
    rewrite(paths[1], [Tensor("a"), Tensor("c")])
    with pytest.raises(FormatError, match=r"tensor 'a': stands in 'model-00002-of-00003.gguf'"):
        open_gguf(paths[0])


def test_parts_of_different_models(tmp_path: Path, paths: list[Path]) -> None:
    keys = {"split.no": 1, "split.count": 3, "split.tensors.count": 4, "general.architecture": "qwen2"}
    write(paths[1], keys, PARTS[1])
    with pytest.raises(FormatError, match=r"'general.architecture' at byte .*not of one model"):
        open_gguf(paths[0])


def test_damage_in_another_part_names_that_part(paths: list[Path]) -> None:
    paths[2].write_bytes(paths[2].read_bytes()[:-40])
    with pytest.raises(FormatError, match=r"tensor 'd' offset.*00003-of-00003"):
        open_gguf(paths[0])
