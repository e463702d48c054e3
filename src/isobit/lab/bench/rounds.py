"""Rounds of measurements: each does every work with every engine once, so that what slows one slows all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from isobit import _native
from isobit.lab.bench.ours import Ours, multiply_adds, packed_bytes_per_token
from isobit.lab.bench.statistics import Spread
from isobit.lab.bench.works import Work

SETTLE_SECONDS = 0.05
"""Before each measurement: an engine's idle threads may spin for a few milliseconds before they sleep."""


class Engine(Protocol):
    """What can be measured: ours or a peer."""

    name: str

    def run(self, work: Work) -> float:
        """Seconds of one run."""
        ...


@dataclass(frozen=True)
class Result:
    """Tokens per second of a work by each engine; the first is ours.

    `ratios`: ours over each peer's, round by round. `scaling`: ours over that of batch 1, all sequences together.
    `rate`: prefill, integer operations per second; decode, bytes of weights read per second. `share`: of the ceiling.
    """

    work: Work
    speeds: dict[str, Spread]
    ratios: dict[str, Spread]
    scaling: Spread | None
    rate: Spread
    share: Spread

    def json(self) -> dict[str, Any]:
        """As JSON values, in tera-operations and gigabytes per second."""
        prefill = self.work.kind == "pp"
        rate = self.rate.times(1e-12 if prefill else 1e-9)
        return {
            "label": self.work.label,
            "kind": self.work.kind,
            "tokens": self.work.tokens,
            "batch": self.work.batch,
            "depth": self.work.depth,
            "tokens_per_second": {name: speed.json() for name, speed in self.speeds.items()},
            "ratio_to_peer": {name: ratio.json() for name, ratio in self.ratios.items()},
            "scaling_over_batch_1": self.scaling.json() if self.scaling else None,
            "tops" if prefill else "gb_per_second": rate.json(),
            "share_of_dot_peak" if prefill else "share_of_plain_read": self.share.json(),
        }


@dataclass(frozen=True)
class Report:
    """All of a run. Ceilings are per second: bytes of a plain read, integer and binary32 operations."""

    results: list[Result]
    read: Spread
    dot: Spread
    fma: Spread
    bytes_per_token: int

    def json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "ceilings": {
                "read_bytes": self.bytes_per_token,
                "read_gb_per_second": self.read.times(1e-9).json(),
                "dot_tops": self.dot.times(1e-12).json(),
                "fma_tflops": self.fma.times(1e-12).json(),
            },
            "weight_bytes_per_token": self.bytes_per_token,
            "works": [result.json() for result in self.results],
        }


class _Times:
    """Seconds of each work and engine, and the ceilings, round by round."""

    def __init__(self, ours: Ours) -> None:
        self._threads, self._isa = ours.runner.threads, ours.runner.isa
        self.bytes_per_token = packed_bytes_per_token(ours.model)
        self.seconds: dict[tuple[Work, str], list[float]] = {}
        self.read: list[float] = []
        self.dot: list[float] = []
        self.fma: list[float] = []

    def ceilings(self) -> None:
        """The best of a few tries: a ceiling is what the machine can do."""
        time.sleep(SETTLE_SECONDS)
        self.read.append(_native.measure_read(self.bytes_per_token, self._threads, self._isa)[0])
        self.dot.append(_native.measure_dot(self._threads, self._isa)[0])
        self.fma.append(_native.measure_fma(self._threads, self._isa)[0])

    def run(self, engine: Engine, work: Work) -> None:
        """One measurement."""
        time.sleep(SETTLE_SECONDS)
        self.seconds.setdefault((work, engine.name), []).append(engine.run(work))

    def speed(self, work: Work, name: str) -> Spread:
        """Tokens per second."""
        return Spread.of([work.all_tokens / seconds for seconds in self.seconds[work, name]])


def measure(
    ours: Ours,
    peers: Sequence[Engine],
    works: Sequence[Work],
    reps: int,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Measures every work with every engine in each of `reps` rounds, after one that only warms up.

    `progress(done, total)` counts runs. Raises InputError for a work that does not fit our cache, PeerError.
    """
    ours.check(list(works))
    times, engines = _Times(ours), [ours, *peers]
    done, total = 0, (reps + 1) * len(works) * len(engines)
    for turn in range(reps + 1):
        if turn:
            times.ceilings()
        for work in works:
            for i in range(len(engines)):
                engine = engines[(turn + i) % len(engines)]  # nobody is always first
                if turn:
                    times.run(engine, work)
                else:
                    engine.run(work)  # takes memory, fills caches to their depth
                done += 1
                if progress:
                    progress(done, total)
    return _report(ours, peers, works, times)


def _report(ours: Ours, peers: Sequence[Engine], works: Sequence[Work], times: _Times) -> Report:
    ceilings = {"read": Spread.of(times.read), "dot": Spread.of(times.dot), "fma": Spread.of(times.fma)}
    results = []
    for work in works:
        own = times.speed(work, ours.name)
        speeds = {ours.name: own, **{peer.name: times.speed(work, peer.name) for peer in peers}}
        ratios = {peer.name: own.over(speeds[peer.name]) for peer in peers}
        single = Work("tg", work.tokens)
        scaling = own.over(times.speed(single, ours.name)) if work.batch > 1 and single in works else None
        if work.kind == "pp":
            operations = 2 * multiply_adds(ours.model.program, work.tokens, 1)
            rate, ceiling = own.times(operations / work.tokens), ceilings["dot"]
        else:
            rate, ceiling = own.times(times.bytes_per_token / work.batch), ceilings["read"]
        results.append(Result(work, speeds, ratios, scaling, rate, rate.over(ceiling)))
    return Report(results, **ceilings, bytes_per_token=times.bytes_per_token)
