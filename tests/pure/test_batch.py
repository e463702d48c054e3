"""What a batch must be: every rule that is broken is an error with its name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isobit.errors import InputError
from isobit.ops import Batch, KVCache, Program, check_batch

PROGRAM = Program("test", 100, 1000, 2, 1, 16, (), {}, (), ())
CACHE = KVCache.allocate(2, 3, 1, 16, "f16")


def batch(**changes: list[int]) -> Batch:
    good = Batch.build([([5, 6, 7], 0, [0], [2]), ([8], 70, [1, 2], [0])])
    return replace(good, **{name: np.array(values, np.int32) for name, values in changes.items()})


def test_a_good_batch_passes() -> None:
    check_batch(batch(), PROGRAM, CACHE)
    check_batch(batch(wanted=[]), PROGRAM, CACHE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": []}, "needs tokens"),
        ({"tokens": [1, 2, 3]}, "needs tokens"),
        ({"tokens": [1, 2, 3, 100]}, "token id 100 is outside 0 to 99"),
        ({"tokens": [1, -2, 3, 4]}, "token id -2"),
        ({"positions": [0, 1, 2, 128]}, "position 128"),
        ({"sequences": [0, 0, 0, 2]}, "sequence 2"),
        ({"wanted": [4]}, "wanted row 4"),
        ({"positions": [2, 1, 0, 70]}, "follow one another"),
        ({"positions": [0, 2, 3, 70]}, "follow one another"),
        ({"sequences": [0, 1, 0, 1]}, "adjacent"),
    ],
)
def test_broken_rules(changes: dict[str, list[int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_batch(batch(**changes), PROGRAM, CACHE)


def test_pages_outside_the_pool() -> None:
    tables = np.array([[0, 3], [1, 2]], np.int32)
    with pytest.raises(InputError, match="page 3"):
        check_batch(replace(batch(), page_tables=tables), PROGRAM, CACHE)


@pytest.mark.parametrize("shape", [(1, 3, 1, 16), (2, 3, 2, 16), (2, 3, 1, 32)])
def test_a_cache_of_another_model(shape: tuple[int, int, int, int]) -> None:
    with pytest.raises(InputError, match="cache's keys"):
        check_batch(batch(), PROGRAM, KVCache.allocate(*shape, "f16"))
