"""The packer: the layout of the kernels is written whole and byte by byte as it was defined."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.matrices import Matrix
from helpers.packing_cases import cases, packed_digest

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
