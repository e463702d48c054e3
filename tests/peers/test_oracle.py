"""The measuring instruments themselves: divergence, agreement, perplexity, and an oracle that stays put."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.oracle import NUM_POSITIONS, mean_kl, oracle_logits, perplexity, text_tokens

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text(encoding="utf-8"))


def test_mean_kl_by_hand() -> None:
    reference = np.log(np.array([[0.5, 0.5], [0.9, 0.1]], np.float32))
    candidate = np.log(np.array([[0.25, 0.75], [0.9, 0.1]], np.float32)) + np.float32(3.0)
    kl, agreement = mean_kl(reference, candidate)
    assert kl == pytest.approx((0.5 * math.log(2) + 0.5 * math.log(2 / 3)) / 2, rel=1e-6)
    assert agreement == 0.5


@pytest.mark.parametrize("noise", [1e-1, 1e-3, 3e-4])
def test_mean_kl_resolves_small_noise(noise: float) -> None:
    """Independent noise of standard deviation s on every logit gives a divergence of s²/2."""
    rng = np.random.default_rng(5)
    reference = rng.normal(size=(40, 5000)).astype(np.float32)
    candidate = (reference + rng.normal(scale=noise, size=reference.shape)).astype(np.float32)
    assert mean_kl(reference, candidate)[0] == pytest.approx(noise**2 / 2, rel=0.02)
    assert abs(mean_kl(reference, reference)[0]) < 1e-15


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)),
        (np.zeros((1, 2), np.float32), np.array([[0, np.nan]], np.float32)),
    ],
)
def test_mean_kl_refuses(reference: np.ndarray, candidate: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected"):
        mean_kl(reference, candidate)


def test_perplexity_by_hand() -> None:
    logits = np.log(np.array([[0.5, 0.5], [0.2, 0.8], [0.3, 0.7]], np.float32))
    assert perplexity(logits, [0, 1]) == pytest.approx(1 / math.sqrt(0.5 * 0.8), rel=1e-6)


@pytest.mark.parametrize("name", NUM_POSITIONS)
def test_oracle_has_not_drifted(name: str, model_path: Callable[[str], Path]) -> None:
    """Another version of `transformers` may read the file differently without a word: perplexity would tell.

    The recorded value was confirmed by an engine that shares no code with it: llama.cpp's is within 1.2 %.
    """
    pytest.importorskip("transformers", reason="needs the extra `peers`")
    ids = text_tokens(name, NUM_POSITIONS[name])
    assert perplexity(oracle_logits(model_path(name), ids), ids[1:]) == pytest.approx(
        RECORDED["models"][name]["oracle_perplexity"], rel=1e-4
    )
