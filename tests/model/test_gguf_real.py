"""The real model files, against the `gguf` package."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from isobit.formats import load_checkpoint, open_gguf, require_supported
from isobit.quants import dequantize

ModelPath = Callable[[str], Path]

MODELS = {
    "smollm2-135m": ("llama", 272, 49152),
    "gemma3-270m": ("gemma3", 236, 262144),
    "qwen2.5-coder-0.5b": ("qwen2", 291, 151936),
    "qwen2.5-coder-1.5b": ("qwen2", 339, 151936),
}


@pytest.mark.parametrize("name", MODELS)
def test_opens(model_path: ModelPath, name: str) -> None:
    architecture, num_tensors, num_tokens = MODELS[name]
    checkpoint = load_checkpoint(model_path(name))
    assert checkpoint.architecture == architecture
    assert len(checkpoint.tensors) == num_tensors
    tokens = checkpoint.value("tokenizer.ggml.tokens", list)
    assert len(tokens) == num_tokens
    assert all(type(token) is str for token in tokens)
    for tensor in checkpoint.tensors.values():
        require_supported(tensor)
        assert tensor.data.size == tensor.type.num_bytes(tensor.shape)
    checkpoint.close()


def test_large_vocabulary_opens_fast(model_path: ModelPath) -> None:
    """Best of five: other programs share the machine. About 0.1 s to 0.2 s are usual."""
    path = model_path("gemma3-270m")
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        open_gguf(path).close()
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.5


@pytest.mark.parametrize("name", ["smollm2-135m", "qwen2.5-coder-0.5b"])
def test_equals_the_gguf_package(model_path: ModelPath, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle = gguf.GGUFReader(model_path(name))
    with open_gguf(model_path(name)) as file:
        keys = [key for key in oracle.fields if not key.startswith("GGUF.")]
        assert list(file.metadata) == keys
        for key in keys:
            np.testing.assert_array_equal(file.metadata[key], oracle.fields[key].contents(), err_msg=key)
        assert list(file.tensors) == [tensor.name for tensor in oracle.tensors]
        for expected in oracle.tensors:
            found = file.tensors[expected.name]
            assert found.shape == tuple(int(size) for size in reversed(expected.shape))
            assert found.type.name == expected.tensor_type.name
            assert (found.offset, found.data.size) == (expected.data_offset, expected.n_bytes)
            start = expected.data.reshape(-1).view(np.uint8)[:1024]
            np.testing.assert_array_equal(found.data[:1024], start, err_msg=expected.name)


@pytest.mark.parametrize("name", MODELS)
def test_dequantized_weights_equal_the_gguf_package(model_path: ModelPath, name: str) -> None:
    """The first rows of one tensor of each weight type of the model."""
    with open_gguf(model_path(name)) as file:
        by_type = {tensor.type: tensor for tensor in file.tensors.values()}
        for kind, tensor in by_type.items():
            columns = tensor.shape[-1]
            row_bytes = kind.num_bytes((columns,))
            data = tensor.data[: 64 * row_bytes]
            rows = data.size // row_bytes
            expected = gguf.quants.dequantize(data.reshape(rows, row_bytes), gguf.GGMLQuantizationType[kind.name]).view(
                np.uint32
            )
            found = dequantize(kind, data, (rows, columns))
            np.testing.assert_array_equal(found.view(np.uint32), expected, err_msg=kind.name)
