"""Every abused file is refused with a clear error, at once and without a large allocation."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from attacks.corpus import BASE, Attack, attacks
from isobit.errors import FormatError, IsobitError, UnsupportedError
from isobit.formats import open_gguf

ATTACKS = attacks()


def test_names_are_unique() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) > 200


def test_the_base_file_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(BASE.data)
    with open_gguf(path) as file:
        assert list(file.tensors) == ["first", "second", "third"]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack_is_refused(attack: Attack, tmp_path: Path) -> None:
    path = attack.write(tmp_path)
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises(IsobitError) as caught:
            open_gguf(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 1.0
    assert peak < 10_000_000
    check(attack, caught.value)


def check(attack: Attack, error: IsobitError) -> None:
    message = str(error)
    assert "\n" not in message
    assert len(message) < 700
    if attack.unsupported:
        assert type(error) is UnsupportedError
        return
    assert type(error) is FormatError
    assert attack.field in error.field
    if attack.offset is not None:
        assert error.offset == attack.offset
    if attack.name.startswith("truncated"):
        assert error.offset is not None
