"""The packer: the layout of the kernels is written whole and byte by byte as it was defined."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.matrices import Matrix
from helpers.packing_cases import cases, packed_digest
from isobit import _native

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/packing/digests.json").read_text())
CASES = dict(cases())


@pytest.mark.parametrize("name", CASES)
def test_packed_bytes_are_those_of_the_plain_packer(name: str) -> None:
    assert packed_digest(CASES[name]) == GOLDEN[name]


def test_every_golden_has_a_case() -> None:
    assert CASES.keys() == GOLDEN.keys()


def test_a_changed_code_changes_the_packed_bytes() -> None:
    matrix = CASES["Q4_K 37x512"]
    data = matrix.data.copy()
    data[-1] ^= 0x10
    assert packed_digest(Matrix(matrix.name, matrix.shape, matrix.type, data)) != GOLDEN["Q4_K 37x512"]


def weights_of(raw: np.ndarray, threads: int) -> _native.Weights:
    """A store with one Q4_K matrix of 1024 columns, not packed yet."""
    weights = _native.Weights(threads)
    weights.add(raw, 12, raw.size // 576, 1024, pack=True, mapped=False)
    return weights


def random_bytes(rows: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, rows * 576, dtype=np.uint8)


def test_memory_that_is_no_file_is_never_released() -> None:
    """Pages of a NumPy array would not come back."""
    raw = random_bytes(4096)
    copy = raw.copy()
    weights_of(raw, 2).pack(None)
    assert np.array_equal(raw, copy)


def test_progress_is_told_in_bytes_of_the_file() -> None:
    raw = random_bytes(4096)
    calls: list[tuple[int, int]] = []
    weights = weights_of(raw, 1)
    assert weights.bytes == 0
    weights.pack(lambda done, total: calls.append((done, total)))
    assert calls
    assert all(0 < done <= total == raw.size for done, total in calls)
    assert raw.size <= weights.bytes < 1.05 * raw.size


def test_an_error_in_progress_ends_the_packing() -> None:
    def fail(_done: int, _total: int) -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        weights_of(random_bytes(4096), 1).pack(fail)
