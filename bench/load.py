"""Loading as a new user meets it: time to the first token, memory, the overhead of a command, too many threads.

    python bench/load.py [--runs N] [--json]

Each time is that of a process, from its start to what is read from its standard output; each memory the peak that
the system notes for it. Medians of N runs (default 5), with the file in the system's cache. Needs the models
smollm2-135m, qwen2.5-coder-0.5b and qwen2.5-coder-1.5b (`isobit pull`). Exit code 1 where a limit is missed.
Limits hold on two idle cores. On a virtual machine the first run may wait for the host to hand out memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import isobit
from isobit.cli.inspect import memory_needed
from isobit.formats import load_checkpoint
from isobit.hub import resolve
from isobit.model import Model
from isobit.models import build_program
from isobit.text.tokenizer import load_tokenizer

TEXT = "The way from the bytes of a file to the first token of an answer is shorter than it looks, for a reader."
PROMPT_TOKENS = 16
NEW_TOKENS = 16
SPEED_PROMPT = 256
SPEED_TOKENS = 32
MB = 1_000_000
COLUMNS = "{:<60} {:>10} {:>10} {:>16}  {}"


@dataclass(frozen=True)
class Row:
    """One line of the table: the median of `runs`, which may be at most `limit` (None: for information)."""

    what: str
    unit: str
    median: float
    limit: float | None
    runs: list[float]

    @property
    def missed(self) -> bool:
        return self.limit is not None and self.median > self.limit


@dataclass(frozen=True)
class Process:
    """Seconds from the start to the first byte on stdout and to the end; peak resident memory in bytes.

    The system counts the memory of the starting process as well, which is smaller here.
    """

    first: float
    end: float
    peak: int


def run_command(name: str, prompt: str, tokens: int) -> Process:
    argv = [sys.executable, "-m", "isobit.cli.main", "run", name, prompt, "--raw", "--temp", "0", "-n", str(tokens)]
    start = time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 1)
        first = time.perf_counter() - start
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with exit code {process.returncode}")
    return Process(first, time.perf_counter() - start, usage.ru_maxrss * 1024)


def prompt_for(path: Path) -> str:
    """A text of exactly PROMPT_TOKENS tokens."""
    checkpoint = load_checkpoint(path)
    tokenizer = load_tokenizer(checkpoint.metadata)
    checkpoint.close()
    for end in range(1, len(TEXT)):
        if len(tokenizer.encode(TEXT[:end])) == PROMPT_TOKENS:
            return TEXT[:end]
    raise SystemExit(f"no beginning of the text has {PROMPT_TOKENS} tokens for {path}")


def cache_bytes(path: Path, tokens: int) -> int:
    """Of the pages that hold `tokens` tokens."""
    checkpoint = load_checkpoint(path)
    needed = memory_needed(build_program(checkpoint), checkpoint.file.num_bytes, tokens)
    checkpoint.close()
    return needed.kv_cache_bytes


def row(what: str, unit: str, limit: float | None, runs: list[float]) -> Row:
    return Row(what, unit, statistics.median(runs), limit, runs)


def loading(name: str, runs: int, *, first: float | None = None, end: float | None = None) -> Iterator[Row]:
    """Time and memory of `isobit run`."""
    path = resolve(name)
    size = path.stat().st_size
    with path.open("rb") as file:  # into the system's cache
        while file.read(1 << 24):
            pass
    prompt = prompt_for(path)
    seen = [run_command(name, prompt, NEW_TOKENS) for _ in range(runs)]
    cache = cache_bytes(path, PROMPT_TOKENS + NEW_TOKENS)
    yield row(f"{name}: start to first token of a {PROMPT_TOKENS}-token prompt", "s", first, [p.first for p in seen])
    yield row(f"{name}: `isobit run -n {NEW_TOKENS}`, everything", "s", end, [p.end for p in seen])
    allowed = size * 1.15 + cache + 150 * MB
    peaks = [p.peak / MB for p in seen]
    yield row(f"{name}: peak memory (file {size / MB:.0f}, cache {cache / MB:.0f})", "MB", allowed / MB, peaks)


def seconds(model: Model) -> tuple[float, float]:
    """Prefill of SPEED_PROMPT tokens; decode of SPEED_TOKENS more."""
    model.engine.past.release()
    start = time.perf_counter()
    chunks = model.stream([100 + i % 500 for i in range(SPEED_PROMPT)], max_tokens=SPEED_TOKENS + 1, temperature=0)
    next(chunks)
    first = time.perf_counter()
    count = sum(1 for _ in chunks)
    return first - start, (time.perf_counter() - first) / count * SPEED_TOKENS


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """A process that never rests."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def slowdown(name: str, runs: int) -> Iterator[Row]:
    """More threads than cores, and a core that another process wants too, against one thread per core."""
    cores = len(os.sched_getaffinity(0))
    with isobit.load(name, threads=cores) as model, model.variant(threads=cores + 1) as many:
        seconds(model)
        pairs = [(seconds(model), seconds(many)) for _ in range(runs)]
        with busy_core():
            busy = [seconds(model) for _ in range(runs)]
    for index, kind in enumerate(("prefill", "decode")):
        ratios = [more[index] / usual[index] for usual, more in pairs]
        yield row(f"{name}: {kind} time, {cores + 1} threads on {cores} cores / {cores} threads", "x", 1.5, ratios)
        idle = statistics.median(usual[index] for usual, _ in pairs)
        ratios = [b[index] / idle for b in busy]
        yield row(f"{name}: {kind} time, {cores} threads and a busy process / without it", "x", None, ratios)


def show(line: Row) -> None:
    limit = "" if line.limit is None else f"{line.limit:.2f}" if line.unit != "MB" else f"{line.limit:.0f}"
    digits = 0 if line.unit == "MB" else 2
    spread = f"{min(line.runs):.{digits}f} to {max(line.runs):.{digits}f}"
    value = f"{line.median:.{digits}f} {line.unit}"
    print(COLUMNS.format(line.what, value, limit, spread, "missed" if line.missed else ""), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="of which the median counts (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = parser.parse_args()
    parts: list[Callable[[], Iterator[Row]]] = [
        lambda: loading("smollm2-135m", options.runs, end=0.8),
        lambda: loading("qwen2.5-coder-1.5b", options.runs, first=1.5),
        lambda: slowdown("smollm2-135m", options.runs),
        lambda: slowdown("qwen2.5-coder-0.5b", options.runs),
    ]
    if not options.json:
        print(COLUMNS.format("", "median", "at most", "runs", ""))
    rows = []
    for part in parts:
        for line in part():
            rows.append(line)
            if not options.json:
                show(line)
    if options.json:
        print(json.dumps({"rows": [asdict(line) | {"missed": line.missed} for line in rows]}))
    return int(any(line.missed for line in rows))


if __name__ == "__main__":
    sys.exit(main())
