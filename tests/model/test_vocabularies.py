"""Token ids equal to those that llama.cpp's vocabulary files expect, for every input in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.vocabularies import read_cases, vocabulary_folder
from isobit.errors import UnsupportedError
from isobit.formats.gguf import open_gguf
from isobit.text.tokenizer import load_tokenizer

WITH_CASES = [
    *("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm"),
    *("mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"),
]


@pytest.fixture(scope="session")
def folder() -> Path:
    return vocabulary_folder()


def test_every_vocabulary_file_is_tested(folder: Path) -> None:
    with_cases = {path.name.removesuffix(".gguf.inp") for path in folder.glob("*.inp")}
    assert with_cases == {f"ggml-vocab-{name}" for name in [*WITH_CASES, "bert-bge"]}


@pytest.mark.parametrize("name", WITH_CASES)
def test_ids_are_the_expected_ones(folder: Path, name: str) -> None:
    path = folder / f"ggml-vocab-{name}.gguf"
    with open_gguf(path) as file:
        tokenizer = load_tokenizer(file.metadata)
    cases = read_cases(path)
    assert len(cases) >= 46
    for text, expected in cases:
        ids = tokenizer.encode(text, add_special=False)
        assert ids == expected, text
        prefix = " " if name in {"llama-spm", "phi-3"} and text else ""
        assert tokenizer.decode(ids) == prefix + text


@pytest.mark.parametrize(
    ("name", "named"),
    [("bert-bge", "'bert'"), ("nomic-bert-moe", "'t5'"), ("aquila", "ggml.pre"), ("gpt-neox", "ggml.pre")],
)
def test_other_kinds_are_refused_by_name(folder: Path, name: str, named: str) -> None:
    with open_gguf(folder / f"ggml-vocab-{name}.gguf") as file, pytest.raises(UnsupportedError, match=named):
        load_tokenizer(file.metadata)
