from __future__ import annotations

import argparse

import pytest

from isobit.cli.bench import aligned, integers, names, spread
from isobit.lab.bench.statistics import Spread
from isobit.lab.bench.works import Work, make_works


def test_spread() -> None:
    values = Spread.of([3.0, 1.0, 2.0, 10.0])
    assert (values.median, values.min, values.max, values.rounds) == (2.5, 1.0, 10.0, (3.0, 1.0, 2.0, 10.0))
    assert values.json() == {"median": 2.5, "min": 1.0, "max": 10.0, "rounds": [3.0, 1.0, 2.0, 10.0]}


def test_ratios_are_taken_round_by_round() -> None:
    """The whole second round is slow; the ratio of the medians (2 / 1.5) would be neither round's."""
    ours, peer = Spread.of([4.0, 1.0, 2.0]), Spread.of([2.0, 0.5, 1.5])
    ratio = ours.over(peer)
    assert ratio.rounds == (2.0, 2.0, 2.0 / 1.5)
    assert ratio.median == 2.0


def test_ratios_need_the_same_rounds() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Spread.of([1.0, 2.0]).over(Spread.of([1.0]))


def test_works() -> None:
    works = make_works(512, 64, [8, 1], [0, 100])
    assert works == [Work("pp", 512), Work("tg", 64), Work("tg", 64, 8), Work("tg", 64, 1, 100)]
    assert [work.label for work in works] == ["pp 512", "tg 64", "tg 64, batch 8", "tg 64, after 100"]
    assert [work.all_tokens for work in works] == [512, 64, 512, 64]
    assert [work.context for work in works] == [512, 64, 64, 164]


def test_arguments() -> None:
    assert integers(1)("1,8") == [1, 8]
    assert names("ik,llama.cpp,ik") == ["ik", "llama.cpp"]
    with pytest.raises(argparse.ArgumentTypeError, match="0 is not an integer of at least 1"):
        integers(1)("1,0")
    with pytest.raises(argparse.ArgumentTypeError, match=r"no peer 'gpt'; known are llama\.cpp, ik"):
        names("gpt")


def test_table() -> None:
    assert spread(Spread.of([1.0, 2.04, 3.0])) == "2.0 (1.0–3.0)"
    assert list(aligned([["a", "bb"], ["ccc", ""]])) == ["a    bb", "ccc"]
