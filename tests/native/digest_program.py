"""Builds and runs the digest program of native/tests, which hashes what every kernel gives.

As a program it prints the lines of the scalar kernels, which `digest_isobit-1.txt` records:
    python tests/native/digest_program.py > tests/native/digest_isobit-1.txt
Record them anew when the program's cases change. A change of the kernels' bits is a new numerics id.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import platformdirs

NATIVE = Path(__file__).parents[2] / "native"
RECORDED = Path(__file__).with_name("digest_isobit-1.txt")
AARCH64 = NATIVE / "tests" / "aarch64.cmake"
UNUSED = {"bindings", "executor", "steps", "thread_pool", "guard"}  # sources that the program does not run

Lines = dict[str, str]
"""Hash by `operation case`."""


def find_tool(name: str) -> str | None:
    """A program of the virtual environment or of the system."""
    return shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def build(toolchain: Path | None = None) -> Path:
    """The program's path. Kept in the user's cache under a hash of compiler and sources: built once for each."""
    target = platformdirs.user_cache_path("isobit") / "digest" / _key(toolchain)
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="isobit-digest-") as folder:
        _compile(Path(folder), toolchain)
        # Copied first: the temporary folder may lie on another file system, where renaming is not atomic.
        partial = target.with_suffix(f".{os.getpid()}")
        shutil.copy2(Path(folder) / "digest", partial)
    os.replace(partial, target)
    return target


def _key(toolchain: Path | None) -> str:
    compiler = "aarch64-linux-gnu-g++" if toolchain else os.environ.get("CXX", "c++")
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    content = hashlib.sha256(version + (b"cross" if toolchain else b""))
    for path in sorted(p for p in NATIVE.rglob("*") if p.is_file() and p.stem not in UNUSED):
        content.update(f"{path.relative_to(NATIVE)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return content.hexdigest()[:24]


def _compile(folder: Path, toolchain: Path | None) -> None:
    cmake = find_tool("cmake")
    assert cmake, "cmake is needed to build native/tests"
    configure = [cmake, "-S", str(NATIVE / "tests"), "-B", str(folder)]
    if ninja := find_tool("ninja"):
        configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    if toolchain:
        configure.append(f"-DCMAKE_TOOLCHAIN_FILE={toolchain}")
    for command in (configure, [cmake, "--build", str(folder), "--parallel", str(os.cpu_count() or 1)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


def run(binary: Path, isa: str, *, emulator: str | None = None) -> tuple[Lines, int]:
    """The lines of one instruction set, and the exit code."""
    command = [*([emulator] if emulator else []), str(binary), isa]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode in {0, 1}, f"exit code {done.returncode}: {done.stderr[-4000:]}"
    lines: Lines = {}
    for line in done.stdout.splitlines():
        name, operation, case, digest = line.split(" ")
        assert name == isa
        assert f"{operation} {case}" not in lines, f"two cases are called {operation} {case}"
        lines[f"{operation} {case}"] = digest
    return lines, done.returncode


def instruction_sets(binary: Path, *, emulator: str | None = None) -> list[str]:
    """The names that the program knows on this processor."""
    command = [*([emulator] if emulator else []), str(binary), "--list"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def recorded() -> Lines:
    """The lines on record for the numerics id isobit-1."""
    lines: Lines = {}
    for line in RECORDED.read_text().splitlines():
        case, digest = line.rsplit(" ", 1)
        lines[case] = digest
    return lines


def differences(found: Lines, expected: Lines) -> list[str]:
    """The cases whose hash differs, or that only one side has."""
    return sorted(case for case in found.keys() | expected.keys() if found.get(case) != expected.get(case))


if __name__ == "__main__":
    for recorded_case, recorded_hash in run(build(), "scalar")[0].items():
        print(recorded_case, recorded_hash)
