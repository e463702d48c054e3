"""The kernels for 64-bit Arm, cross-compiled and run under user-mode emulation, give the bits on record."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import digest_program as digest
import pytest

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
MISSING = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]

pytestmark = [
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"{' and '.join(MISSING)} not found; install g++-aarch64-linux-gnu and qemu-user-static (Debian)",
    ),
    pytest.mark.skipif(platform.machine() == "aarch64", reason="test_instruction_sets.py runs these kernels natively"),
]


@pytest.fixture(scope="module")
def binary() -> Path:
    return digest.build(digest.AARCH64)


def test_instruction_sets(binary: Path) -> None:
    assert digest.instruction_sets(binary, emulator=EMULATOR) == ["scalar", "neon", "neondot"]


@pytest.mark.parametrize("isa", ["scalar", "neon", "neondot"])
def test_bits_on_record(binary: Path, isa: str) -> None:
    lines, code = digest.run(binary, isa, emulator=EMULATOR)
    assert digest.differences(lines, digest.recorded()) == []
    assert code == 0, "a result depends on how a call is split over tokens"


def test_the_specimen_is_caught(binary: Path) -> None:
    lines, code = digest.run(binary, "specimen", emulator=EMULATOR)
    assert code == 1
    assert digest.differences(lines, digest.recorded())
