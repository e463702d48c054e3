"""Every kernel of every instruction set of this processor gives the bits on record for the numerics id."""

from __future__ import annotations

import subprocess
from pathlib import Path

import digest_program as digest
import pytest

from isobit import _native
from isobit.quants import SUPPORTED_NAMES, TYPES_BY_NAME

OPERATIONS = {
    "exp", "sigmoid", "silu", "gelu", "tanh", "sin", "cos", "log", "sum_striped", "rms_norm", "quantize_int8",
    "quantize_int16", "rope", "kv_write", "attention", "silu_mul", "gelu_mul", "add", "scale", "softcap",
}  # fmt: skip
LINEAR = {f"linear/{name}/int8" for name in SUPPORTED_NAMES} | {
    f"linear/{name}/int16" for name in SUPPORTED_NAMES if not TYPES_BY_NAME[name].is_float
}


@pytest.fixture(scope="module")
def binary() -> Path:
    return digest.build()


def test_the_program_covers_every_operation_and_weight_type(binary: Path) -> None:
    lines, _ = digest.run(binary, "scalar")
    assert {case.split(" ")[0] for case in lines} == OPERATIONS | LINEAR
    assert digest.instruction_sets(binary) == _native.available_isas()


@pytest.mark.parametrize("isa", _native.available_isas())
def test_bits_on_record(binary: Path, isa: str) -> None:
    lines, code = digest.run(binary, isa)
    assert digest.differences(lines, digest.recorded()) == []
    assert code == 0, "a result depends on how a call is split over tokens"


@pytest.mark.skipif(len(_native.available_isas()) < 2, reason="the specimen needs more than scalar kernels")
def test_the_specimen_is_caught(binary: Path) -> None:
    """The kernel whose order depends on the number of tokens: both checks of the program must see it."""
    lines, code = digest.run(binary, "specimen")
    different = digest.differences(lines, digest.recorded())
    assert code == 1, "the split over tokens went unnoticed"
    assert {case.split(" ")[0] for case in different} == {
        operation for operation in LINEAR if not TYPES_BY_NAME[operation.split("/")[1]].is_float
    }
    assert not any(",tokens=1," in case for case in different)


def test_an_unknown_instruction_set_is_refused(binary: Path) -> None:
    done = subprocess.run([binary, "mmx"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "mmx" in done.stderr
