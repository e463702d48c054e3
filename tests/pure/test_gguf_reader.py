"""Whole GGUF files: values, tensors, life time of views, clear refusals."""

from __future__ import annotations

import gc
import hashlib
import os
import warnings
from pathlib import Path

import gguf
import numpy as np
import pytest

from helpers.gguf_writer import Tensor, Value, build, write
from isobit.errors import FormatError, InputError, ModelNotFoundError, UnsupportedError
from isobit.formats import open_gguf, require_supported
from isobit.quants import QUANT_TYPES, SUPPORTED_NAMES

METADATA: dict[str, object] = {
    "general.architecture": "llama",
    "u8": Value("u8", 255), "i8": Value("i8", -128), "u16": Value("u16", 65535), "i16": Value("i16", -32768),
    "u32": 2**32 - 1, "i32": Value("i32", -(2**31)), "u64": Value("u64", 2**64 - 1),
    "i64": Value("i64", -(2**63)), "f32": 0.1, "f64": Value("f64", 0.1),
    "yes": True, "no": False, "empty": "", "text": "naïve 😀 \0 end",
    "strings": ["a", "", "ß", "😀"], "no strings": [],
    "bools": np.array([True, False]),
    "floats": np.arange(5, dtype=np.float32), "no floats": np.zeros(0, np.float32),
    "doubles": np.array([1e300, -0.0]), "bytes": np.array([0, 255], np.uint8),
    "longs": np.array([-(2**63), 2**63 - 1]),
}  # fmt: skip
TENSORS = [Tensor("a", (3, 5), "F32"), Tensor("b.weight", (2, 3, 512), "Q4_K"), Tensor("c", (7,), "F16")]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "model.gguf", METADATA, TENSORS)


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_values_and_types(tmp_path: Path, version: int) -> None:
    with open_gguf(write(tmp_path / "m.gguf", METADATA, version=version)) as file:
        assert file.version == version
        assert list(file.metadata) == list(METADATA)
        for key, given in METADATA.items():
            found, expected = file.metadata[key], given.value if isinstance(given, Value) else given
            if key == "f32":
                expected = float(np.float32(0.1))
            if isinstance(expected, np.ndarray):
                assert isinstance(found, np.ndarray)
                assert found.dtype == expected.dtype
                assert not found.flags.writeable
                np.testing.assert_array_equal(found, expected)
            else:
                assert type(found) is type(expected)
                assert found == expected


def test_tensors(model: Path) -> None:
    raw = model.read_bytes()
    with open_gguf(str(model)) as file:
        assert file.alignment == 32
        assert list(file.tensors) == ["a", "b.weight", "c"]
        assert file.tensors["b.weight"].shape == (2, 3, 512)
        for tensor, given in zip(file.tensors.values(), TENSORS, strict=True):
            assert tensor.type.name == given.type
            assert tensor.offset % 32 == 0
            assert tensor.data.dtype == np.uint8
            assert not tensor.data.flags.writeable
            assert tensor.data.size == tensor.type.num_bytes(given.shape)
            assert raw[tensor.offset : tensor.offset + tensor.data.size] == tensor.data.tobytes()


def test_agrees_with_the_gguf_package(model: Path) -> None:
    with open_gguf(model) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle = gguf.GGUFReader(model)
        assert [tensor.name for tensor in oracle.tensors] == list(file.tensors)
        for expected in oracle.tensors:
            found = file.tensors[expected.name]
            assert found.shape == tuple(int(n) for n in reversed(expected.shape))
            assert found.type.ggml_id == expected.tensor_type
            assert found.offset == expected.data_offset
            np.testing.assert_array_equal(found.data, expected.data.reshape(-1).view(np.uint8))
        for key, field in oracle.fields.items():
            if key in file.metadata:
                np.testing.assert_array_equal(file.metadata[key], field.contents())


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_alignment(tmp_path: Path, alignment: int) -> None:
    metadata = {"general.alignment": alignment}
    with open_gguf(write(tmp_path / "m.gguf", metadata, TENSORS, alignment=alignment)) as file:
        assert file.alignment == alignment
        assert all(tensor.offset % alignment == 0 for tensor in file.tensors.values())


def test_file_without_tensors_or_metadata(tmp_path: Path) -> None:
    with open_gguf(write(tmp_path / "m.gguf", {})) as file:
        assert (dict(file.metadata), dict(file.tensors)) == ({}, {})


def test_views_outlive_the_file(model: Path) -> None:
    file = open_gguf(model)
    data = file.tensors["b.weight"].data
    before = data.tobytes()
    file.close()
    file.close()
    with pytest.raises(InputError, match=r"'model.gguf' is closed"):
        _ = file.tensors
    assert file.metadata["general.architecture"] == "llama"
    del file
    gc.collect()
    assert data.tobytes() == before


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_closing_unmaps_when_no_view_is_left(model: Path) -> None:
    file = open_gguf(model)
    view = file.tensors["a"].data
    file.close()
    assert str(model) in Path("/proc/self/maps").read_text()
    del view
    assert str(model) not in Path("/proc/self/maps").read_text()


def test_unsupported_types_are_listed_but_not_used(tmp_path: Path) -> None:
    refused = [kind for kind in QUANT_TYPES if not kind.supported]
    tensors = [Tensor(kind.name, (2, kind.block_size), kind.name) for kind in refused]
    with open_gguf(write(tmp_path / "m.gguf", {}, tensors)) as file:
        assert [tensor.type for tensor in file.tensors.values()] == refused
        for tensor in file.tensors.values():
            with pytest.raises(UnsupportedError) as caught:
                require_supported(tensor)
            assert f"tensor '{tensor.name}' has weight type {tensor.type.name}" in str(caught.value)
            assert ", ".join(SUPPORTED_NAMES) in str(caught.value)


def test_supported_types(tmp_path: Path) -> None:
    tensors = [Tensor(name, (3, 256), name) for name in SUPPORTED_NAMES]
    with open_gguf(write(tmp_path / "m.gguf", {}, tensors)) as file:
        assert [require_supported(tensor).type.name for tensor in file.tensors.values()] == list(SUPPORTED_NAMES)


def test_digest(model: Path) -> None:
    with open_gguf(model) as file:
        assert file.digest() == hashlib.sha256(model.read_bytes()).hexdigest()
    assert len(file.digest()) == 64  # known from before
    closed = open_gguf(model)
    closed.close()
    with pytest.raises(InputError, match="is closed"):
        closed.digest()


def test_missing_and_unreadable_files(tmp_path: Path, model: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no file .*absent.gguf"):
        open_gguf(tmp_path / "absent.gguf")
    with pytest.raises(InputError, match="cannot read"):
        open_gguf(model / "inside")
    with pytest.raises(InputError, match="cannot read"):
        open_gguf("nul\0byte")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(FormatError, match="not a regular file"):
        open_gguf(tmp_path / "pipe.gguf")


def test_other_formats_and_versions(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(60))
    with pytest.raises(FormatError, match=r"magic at byte 0: .*PK\\x03\\x04.*not a GGUF file"):
        open_gguf(path)
    for version in (0, 1, 4, 0x00020001):
        write(path, {}, version=version)
        with pytest.raises(FormatError, match=f"version at byte 4: is {version}, expected 2 or 3"):
            open_gguf(path)
    path.write_bytes(build(METADATA, TENSORS, big_endian=True).data)
    with pytest.raises(FormatError, match="big-endian"):
        open_gguf(path)


def test_error_tells_field_offset_and_file(tmp_path: Path) -> None:
    built = build({"a": 1, "b": True})
    path = tmp_path / "m.gguf"
    path.write_bytes(built.patched("value1", b"\x02"))
    with pytest.raises(FormatError) as caught:
        open_gguf(path)
    assert caught.value.field == "metadata 'b'"
    assert caught.value.offset == built.marks["value1"]
    assert str(path) in str(caught.value)


def test_long_names_do_not_flood_messages(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", [("k" * 60000, Value("bool", raw=b"\x07"))])
    with pytest.raises(FormatError) as caught:
        open_gguf(path)
    assert len(str(caught.value)) < 500
