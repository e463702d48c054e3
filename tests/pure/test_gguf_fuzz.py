"""A fixed number of random mutations per test run; tests/fuzz/fuzz_gguf.py goes on as long as one likes."""

from __future__ import annotations

from pathlib import Path

from fuzz.fuzz_gguf import check, fuzz, seed_files


def test_seed_files_are_valid(tmp_path: Path) -> None:
    for built in seed_files():
        path = tmp_path / "seed.gguf"
        path.write_bytes(built.data)
        assert check(path) == "clean open"


def test_mutated_files(tmp_path: Path) -> None:
    ends = fuzz(tmp_path, seed=20240607, iterations=5000)
    assert sum(ends.values()) == 5000
    # Mutations that are all refused, or all accepted, would test little.
    assert min(ends["FormatError"], ends["clean open"]) > 500
