"""Sampling: known vectors, hand-computed draws, ties, and the meaning of every setting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobit.errors import InputError
from isobit.sampling import SamplingParams, log_softmax, sample
from isobit.sampling.philox import draw, philox4x32


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the known answers of the Random123 distribution
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, expected) -> None:
    assert philox4x32(counter, key) == expected


def test_every_seed_is_its_own_stream() -> None:
    seeds = [-(2**63), -(2**32), -1, 0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
    streams = {tuple(draw(seed, position) for position in range(3)) for seed in seeds}
    assert len(streams) == len(seeds)  # −1 and 2^64 − 1 share their 64 bits and still differ


def test_greedy_takes_the_lowest_of_equals() -> None:
    assert sample(row(1, 3, 3, 2), SamplingParams(temperature=0), 5) == 1
    assert sample(row(1, 3, 3, 2), SamplingParams(top_k=1), 5) == 1


def test_the_draw_is_the_documented_integer_comparison() -> None:
    logits = row(0.0, math.log(3.0), -1.0, 0.5)
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, seed=7)
    weights = [math.floor(float(np.exp(np.float64(np.float32(v) - logits[1]))) * 2**40) for v in logits]
    for position in range(200):
        target = draw(7, position) * sum(weights) >> 64
        expected = next(i for i in range(4) if sum(weights[: i + 1]) > target)
        # exp is within an ulp of float64's here, so only a draw at a boundary could differ; none of these is
        assert sample(logits, params, position) == expected


def test_frequencies_follow_the_probabilities() -> None:
    logits = row(0.0, 1.0, 2.0)
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, seed=1)
    counts = np.bincount([sample(logits, params, p) for p in range(6000)], minlength=3) / 6000
    expected = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    assert np.abs(counts - expected).max() < 0.02


def test_top_k_border_ties_go_to_the_lowest_ids() -> None:
    logits = row(1, 2, 1, 2, 1)
    params = SamplingParams(temperature=1.0, top_k=3, top_p=1.0)
    seen = {sample(logits, params, p) for p in range(300)}
    assert seen == {0, 1, 3}


@pytest.mark.parametrize(("top_p", "kept"), [(0.5, {2}), (0.7, {1, 2}), (0.95, {0, 1, 2}), (1.0, {0, 1, 2, 3})])
def test_top_p_keeps_the_shortest_sufficient_prefix(top_p: float, kept: set[int]) -> None:
    logits = np.log(row(0.12, 0.3, 0.54, 0.04))
    params = SamplingParams(temperature=1.0, top_k=0, top_p=top_p)
    assert {sample(logits, params, p) for p in range(800)} == kept


def test_neutral_values_change_nothing() -> None:
    logits = np.random.default_rng(3).normal(0, 2, 1000).astype(np.float32)
    for position in range(50):
        plain = sample(logits, SamplingParams(1.0, 0, 1.0, 9), position)
        assert plain == sample(logits, SamplingParams(1.0, 1000, 1.0, 9), position)


@given(st.integers(2, 400), st.integers(0, 2**32 - 1))
def test_log_softmax_is_a_distribution(size: int, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 5, size).astype(np.float32)
    logprobs = log_softmax(logits)
    exact = logits.astype(np.float64) - np.logaddexp.reduce(logits.astype(np.float64))
    assert np.abs(logprobs - exact).max() < 4e-6
    assert logprobs.dtype == np.float32


def test_global_random_state_has_no_say() -> None:
    logits = np.random.default_rng(3).normal(0, 2, 100).astype(np.float32)
    params = SamplingParams(1.0, 0, 1.0, 5)
    np.random.seed(1)
    first = [sample(logits, params, p) for p in range(20)]
    np.random.seed(2)
    assert first == [sample(logits, params, p) for p in range(20)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"temperature": 1e-9}, "at least 0.001"),
        ({"temperature": "hot"}, "expected a number"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_k": 1.5}, "expected an integer"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": math.nan}, "top_p is nan"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"seed": -(2**63) - 1}, "expected an integer from"),
        ({"seed": True}, "seed is True"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("^", r"\^")):
        SamplingParams(**settings)  # type: ignore[arg-type]
