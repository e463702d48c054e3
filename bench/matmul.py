"""How near one matrix comes to the machine's ceilings, for every weight type, rounding and instruction set.

    python bench/matmul.py [--rows N --columns N] [--type Q4_K …] [--isa avx2 …] [-t THREADS] [--json]

Prefill: a linear operation on 512 tokens, operations per second (2 for a multiplication with its addition) as a share
of the instruction set's integer dot products in registers; for F32, F16 and BF16 of its fused multiply-adds.
int16 multiplies twice, so half is all there is. Decode: one token through copies of the matrix, more than fits in a
cache, bytes of packed weights per second as a share of a plain read of as many. Times are those of
the whole pass: the rounding of the tokens and a look whether the results are finite are in them. Weights are random.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.matrices import random_matrix
from isobit import _native
from isobit.backends.cpu import CpuRunner
from isobit.ops import Batch, Embed, KVCache, Linear, Program
from isobit.quants.table import SUPPORTED_NAMES, TYPES_BY_NAME

SHAPES = ((1536, 8960), (896, 4864))  # columns, rows: gate and up of Qwen2.5 1.5B and 0.5B
TOKENS = 512
DECODE_BYTES = 128e6
VOCABULARY = 32
PAGES = TOKENS // 64
COLUMNS = "{:<12} {:<7} {:<6} {:<11} {:>8} {:>6} {:>8} {:>6}"


@dataclass(frozen=True)
class Row:
    """One line. `tops` and `gb_per_second` are the best of the repetitions; shares are of the ceilings."""

    columns: int
    rows: int
    type: str
    activations: str
    isa: str
    tops: float
    share_of_peak: float
    gb_per_second: float
    share_of_read: float


def program(kind: str, columns: int, rows: int, copies: int) -> Program:
    """Embeds tokens and multiplies them with `copies` matrices, each with memory of its own."""
    weight = random_matrix(kind, rows, columns, spread=0.01)
    embed = Embed("x", replace(random_matrix("F32", VOCABULARY, columns), name="embedding"))
    linears = [Linear("logits", "x", replace(weight, name=f"w{i}")) for i in range(copies)]
    ops = (embed, *linears)
    labels = tuple(["embed"] + ["w"] * copies)
    buffers = {"x": columns, "logits": rows}
    return Program("one", VOCABULARY, 64 * PAGES, 1, 1, 16, ops, buffers, (-1,) * len(ops), labels)


def pass_seconds(runner: CpuRunner, tokens: int, reps: int) -> float:
    """The least seconds of a pass over `tokens` tokens.

    Not those of the linear stages: where other programs run too, a stage's clock may start after other threads have.
    """
    cache = KVCache.allocate(1, PAGES, 1, 16, "f16")
    ids = np.random.default_rng(0).integers(0, VOCABULARY, tokens).tolist()
    batch = Batch.build([(ids, 0, list(range(PAGES)), [tokens - 1])])
    runner.forward(batch, cache)
    times = []
    for _ in range(reps):
        started = time.perf_counter()
        runner.forward(batch, cache)
        times.append(time.perf_counter() - started)
    return min(times)


def measure(kind: str, shape: tuple[int, int], isas: list[str], threads: int | None, reps: int) -> Iterator[Row]:
    columns, rows = shape
    if columns % TYPES_BY_NAME[kind].block_size:  # a K type has no such matrix
        return
    single = CpuRunner(program(kind, columns, rows, 1), threads=threads)
    copies = max(2, round(DECODE_BYTES / single.packed_bytes))
    many = CpuRunner(program(kind, columns, rows, copies), threads=threads)
    integer = kind not in ("F32", "F16", "BF16")
    for isa in isas:
        peak = (_native.measure_dot if integer else _native.measure_fma)(single.threads, isa)[0]
        read = _native.measure_read(many.packed_bytes, single.threads, isa)[0]
        for activations in ("int8", "int16") if integer else ("int8",):
            seconds = [
                pass_seconds(runner.variant(isa=isa, activations=activations), tokens, reps)
                for runner, tokens in ((single, TOKENS), (many, 1))
            ]
            operations = 2 * columns * rows * TOKENS / seconds[0]
            rate = many.packed_bytes / seconds[1]
            shares = operations / peak, rate / read
            name = activations if integer else "float"
            yield Row(columns, rows, kind, name, isa, operations / 1e12, shares[0], rate / 1e9, shares[1])


def show(row: Row) -> None:
    shape = f"{row.columns}×{row.rows}"
    prefill = f"{row.tops:.3f}", f"{row.share_of_peak:.0%}"
    decode = f"{row.gb_per_second:.1f}", f"{row.share_of_read:.0%}"
    print(COLUMNS.format(shape, row.type, row.activations, row.isa, *prefill, *decode), flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    isas = _native.available_isas()
    parser.add_argument("--rows", type=int, help="of the matrix (default: two shapes of Qwen2.5)")
    parser.add_argument("--columns", type=int)
    parser.add_argument("--type", nargs="+", choices=SUPPORTED_NAMES, default=SUPPORTED_NAMES)
    parser.add_argument("--isa", nargs="+", choices=isas, default=[isa for isa in isas if isa != "scalar"])
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    chosen = parser.parse_args()
    if (chosen.rows is None) != (chosen.columns is None):
        parser.error("--rows and --columns go together")
    return chosen


def main() -> None:
    chosen = options()
    shapes = [(chosen.columns, chosen.rows)] if chosen.rows else SHAPES
    if not chosen.json:
        print(COLUMNS.format("matrix", "type", "", "isa", "TOPS", "", "GB/s", ""))
    rows = []
    for shape in shapes:
        for kind in chosen.type:
            if shape[0] % TYPES_BY_NAME[kind].block_size:
                continue  # no file has such a matrix: 896 columns are not whole blocks of 256
            for row in measure(kind, shape, chosen.isa, chosen.threads, chosen.reps):
                rows.append(row)
                if not chosen.json:
                    show(row)
    if chosen.json:
        print(json.dumps({"rows": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()
