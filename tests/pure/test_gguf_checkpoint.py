"""Typed access to a model file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.gguf_writer import Tensor, write
from isobit.errors import FormatError, InputError, UnsupportedError
from isobit.formats import Checkpoint, load_checkpoint

METADATA: dict[str, object] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.rope.freq_base": 10000.0,
    "llama.flag": True,
    "llama.heads": np.array([4, 8], np.int32),
    "tokenizer.ggml.tokens": ["a", "b"],
}
TENSORS = [Tensor("token_embd.weight"), Tensor("odd.weight", (1, 256), "IQ2_XS")]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return load_checkpoint(write(tmp_path / "m.gguf", METADATA, TENSORS))


def test_values(checkpoint: Checkpoint) -> None:
    assert checkpoint.architecture == "llama"
    assert checkpoint.key("block_count", int) == 2
    assert checkpoint.key("rope.freq_base", float) == 10000.0
    assert checkpoint.key("flag", bool) is True
    assert checkpoint.key("heads", np.ndarray).tolist() == [4, 8]
    assert checkpoint.value("tokenizer.ggml.tokens", list) == ["a", "b"]


def test_defaults(checkpoint: Checkpoint) -> None:
    assert checkpoint.key("absent", int, 7) == 7
    assert checkpoint.key("absent", int, None) is None
    assert checkpoint.key("block_count", int, 7) == 2


def test_missing_key(checkpoint: Checkpoint) -> None:
    with pytest.raises(FormatError, match=r"'llama.block_counts': is missing, .*near matches: llama.block_count"):
        checkpoint.key("block_counts", int)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("llama.block_count", float, "is an integer 2, expected a float"),
        ("llama.flag", int, "is a bool True, expected an integer"),
        ("llama.heads", int, "is a ndarray, expected an integer"),
        ("tokenizer.ggml.tokens", str, "is a list of strings, expected a string"),
        ("general.architecture", list, "is a string 'llama', expected a list"),
    ],
)
def test_wrong_type(checkpoint: Checkpoint, name: str, kind: type, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        checkpoint.value(name, kind)
    with pytest.raises(FormatError, match=message):
        checkpoint.value(name, kind, None)


def test_tensors(checkpoint: Checkpoint) -> None:
    assert checkpoint.tensor("token_embd.weight").shape == (2, 32)
    assert checkpoint.optional_tensor("output.weight") is None
    with pytest.raises(FormatError, match=r"tensor 'token_embed.weight': is missing.*token_embd.weight"):
        checkpoint.tensor("token_embed.weight")
    for look_up in (checkpoint.tensor, checkpoint.optional_tensor):
        with pytest.raises(UnsupportedError, match=r"tensor 'odd.weight' has weight type IQ2_XS"):
            look_up("odd.weight")


def test_digest_and_close(checkpoint: Checkpoint) -> None:
    tensor = checkpoint.tensor("token_embd.weight")
    assert len(checkpoint.digest()) == 64
    checkpoint.close()
    checkpoint.close()
    assert tensor.data.size == 256
    with pytest.raises(InputError, match=r"is closed"):
        _ = checkpoint.file.tensors


@pytest.mark.parametrize("metadata", [{}, {"general.architecture": 3}, {"general.architecture": ""}])
def test_architecture_is_required(tmp_path: Path, metadata: dict[str, object]) -> None:
    with pytest.raises(FormatError, match=r"general.architecture"):
        load_checkpoint(write(tmp_path / "m.gguf", metadata))
