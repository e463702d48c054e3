"""How far Isobit's logits are from the FP32 model of the same file, on a fixed English text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import isobit
from helpers.oracle import NUM_POSITIONS, Logits, llama_cpp_logits, mean_kl, oracle_logits, text_tokens

pytest.importorskip("transformers", reason="needs the extra `peers`")

ModelPath = Callable[[str], Path]
RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text(encoding="utf-8"))
INT8_BOUND = {
    "smollm2-135m": 5e-3,
    "gemma3-270m": 5e-3,
    "qwen2.5-coder-0.5b": 1e-3,
    "qwen2.5-coder-1.5b": 1e-3,
}
all_models = pytest.mark.parametrize("name", NUM_POSITIONS)


def isobit_logits(path: Path, ids: list[int], *, activations: str, cache: str) -> Logits:
    with isobit.load(str(path), activations=activations, cache=cache) as model:
        logits = model.logits(ids)
    assert logits.dtype == np.float32
    return logits


def distance(
    path: Path, name: str, *, activations: str, cache: str, positions: int | None = None
) -> tuple[float, float]:
    """Mean KL and top-1 agreement with the oracle over the first `positions` (default: all) tokens of the text."""
    ids = text_tokens(name, NUM_POSITIONS[name])
    reference = oracle_logits(path, ids)[:positions]
    return mean_kl(reference, isobit_logits(path, ids[:positions], activations=activations, cache=cache))


@all_models
def test_int16_with_f32_cache(name: str, model_path: ModelPath) -> None:
    kl, agreement = distance(model_path(name), name, activations="int16", cache="f32")
    assert kl < 1e-6
    assert agreement >= 0.999


@all_models
def test_int16_with_f16_cache(name: str, model_path: ModelPath) -> None:
    kl, _ = distance(model_path(name), name, activations="int16", cache="f16", positions=256)
    assert kl < 1e-5


@all_models
def test_int8(name: str, model_path: ModelPath) -> None:
    """int8 with the default cache: under its own bound, no further away than llama.cpp (recorded.json)."""
    kl, _ = distance(model_path(name), name, activations="int8", cache="f16")
    assert kl < INT8_BOUND[name]
    assert kl <= min(RECORDED["models"][name]["llama_cpp_mean_kl"].values())


@all_models
def test_int8_against_installed_llama_cpp(name: str, model_path: ModelPath) -> None:
    pytest.importorskip("llama_cpp", reason="no llama-cpp-python: only its recorded figures are used")
    path = model_path(name)
    ids = text_tokens(name, NUM_POSITIONS[name])
    peer = min(
        mean_kl(oracle_logits(path, ids), llama_cpp_logits(path, ids, flash_attention=flash))[0]
        for flash in (False, True)
    )
    kl, _ = distance(path, name, activations="int8", cache="f16")
    assert kl <= peer
