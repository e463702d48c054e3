"""Mutates valid GGUF files at random; reading one must end in a clean open or in an error of Isobit's own.

`python tests/fuzz/fuzz_gguf.py --seconds N --seed S` runs for N seconds and prints how often which happened.
A file that breaks the rule is kept (its path is printed) and the exit code is 1. With `--atheris` the
mutations are guided by coverage, if the package atheris is installed.
"""

from __future__ import annotations

import argparse
import collections
import random
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from helpers.gguf_writer import Built, Tensor, Value, build
from isobit.errors import FormatError, UnsupportedError
from isobit.formats import open_gguf, require_supported
from isobit.quants import QUANT_TYPES, SUPPORTED_NAMES, decompose, dequantize

_NUMBERS = [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 32, 33, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1]
_NUMBERS += [2**32, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]
_MAX_WEIGHTS = 1 << 20


def seed_files() -> list[Built]:
    """A plain small file, and one with every value type and every weight type."""
    plain = build({"general.architecture": "llama", "n": 1}, [Tensor("a", (2, 32)), Tensor("b", (1, 256), "Q4_K")])
    metadata: dict[str, object] = {
        "general.architecture": "llama", "general.alignment": 64, "text": "naïve 😀", "words": ["a", "", "ß"],
        "flag": True, "flags": np.array([True, False]),
        "split.count": Value("u16", 1), "split.no": Value("u16", 0),
    }  # fmt: skip
    for number, kind in enumerate(["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"]):
        metadata |= {kind: Value(kind, number), f"{kind}s": Value("array", [1, 2, 3], kind)}
    for kind in ("f32", "f64"):
        metadata |= {kind: Value(kind, 0.5), f"{kind}s": Value("array", [0.5, 1.5], kind)}
    tensors = [Tensor(kind.name, (2, kind.block_size), kind.name) for kind in QUANT_TYPES]
    return [plain, build(metadata, tensors, alignment=64), build(metadata, [], version=2)]


def mutate(built: Built, rng: random.Random) -> bytes:
    """One to four random changes, most of them aimed at the structures of the file."""
    data = bytearray(built.data)
    marks = list(built.marks.values())
    for _ in range(rng.randint(1, 4)):
        place = rng.choice(marks) if rng.random() < 0.7 else rng.randrange(len(data) + 1)
        _change(data, min(place, len(data)), rng)
    return bytes(data)


def _change(data: bytearray, place: int, rng: random.Random) -> None:
    action = rng.randrange(8)
    length = rng.choice([1, 1, 2, 4, 8, rng.randint(1, 64)])
    if action == 0 and place < len(data):
        data[place] ^= 1 << rng.randrange(8)
    elif action == 1:
        data[place : place + length] = rng.randbytes(length)
    elif action in {2, 3}:
        form, mask = rng.choice([("<I", 2**32 - 1), ("<Q", 2**64 - 1)])
        new = struct.pack(form, _number(data, place, rng) & mask)
        data[place : place + len(new)] = new
    elif action == 4:
        del data[place : place + length]
    elif action == 5:
        data[place:place] = rng.randbytes(length)
    elif action == 6:
        source = rng.randrange(len(data) + 1)
        data[place : place + length] = data[source : source + length]
    elif rng.random() < 0.2:
        del data[place:]


def _number(data: bytearray, place: int, rng: random.Random) -> int:
    """An interesting number, or one near the number that stands there."""
    if rng.random() < 0.6:
        return rng.choice(_NUMBERS)
    return int.from_bytes(data[place : place + 8], "little") + rng.choice([-32, -8, -1, 1, 8, 32])


def check(path: Path) -> str:
    """Opens a file and touches all of it; returns how that ended. Any other exception is a fault."""
    try:
        with open_gguf(path) as file:
            for value in file.metadata.values():
                repr(value)
            tensors = list(file.tensors.values())
    except (FormatError, UnsupportedError) as error:
        return type(error).__name__
    for tensor in tensors:
        int(tensor.data.sum())
        try:
            require_supported(tensor)
        except UnsupportedError:
            assert tensor.type.name not in SUPPORTED_NAMES
            continue
        if tensor.data.size < _MAX_WEIGHTS:
            assert dequantize(tensor.type, tensor.data, tensor.shape).shape == tensor.shape
        if not tensor.type.is_float:
            assert decompose(tensor.type, tensor.data, tensor.shape).codes.shape == tensor.shape
    return "clean open"


def fuzz(folder: Path, seed: int, *, iterations: int | None = None, seconds: float | None = None) -> dict[str, int]:
    """Runs until `iterations` or `seconds` are over; returns how often each end was seen."""
    rng = random.Random(seed)
    seeds = seed_files()
    path = folder / "fuzzed.gguf"
    ends: collections.Counter[str] = collections.Counter()
    stop = time.monotonic() + (float("inf") if seconds is None else seconds)
    while time.monotonic() < stop and (iterations is None or ends.total() < iterations):
        path.write_bytes(mutate(rng.choice(seeds), rng))
        ends[check(path)] += 1
    return dict(ends)


def _fuzz_guided(folder: Path, seconds: float, seed: int) -> None:
    import atheris

    corpus = folder / "corpus"
    corpus.mkdir()
    for index, built in enumerate(seed_files()):
        (corpus / str(index)).write_bytes(built.data)
    path = folder / "fuzzed.gguf"

    def test_one_input(data: bytes) -> None:
        path.write_bytes(data)
        check(path)

    atheris.instrument_all()
    options = [sys.argv[0], f"-max_total_time={int(seconds)}", f"-seed={seed}", str(corpus)]
    atheris.Setup(options, test_one_input)
    atheris.Fuzz()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", action="store_true", help="coverage-guided")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-gguf-"))
    if options.atheris:
        _fuzz_guided(folder, options.seconds, options.seed)
        return
    try:
        ends = fuzz(folder, options.seed, seconds=options.seconds)
    except Exception:
        print(f"seed {options.seed}: the file that failed is {folder / 'fuzzed.gguf'}", file=sys.stderr)
        raise
    (folder / "fuzzed.gguf").unlink(missing_ok=True)
    folder.rmdir()
    print(f"seed {options.seed}: {sum(ends.values())} files: {ends}")


if __name__ == "__main__":
    main()
