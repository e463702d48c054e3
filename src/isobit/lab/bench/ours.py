"""Isobit as one of the engines that are measured."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from isobit.backends.cpu import CpuRunner
from isobit.engine.pages import Sequence, pages_for
from isobit.errors import InputError
from isobit.lab.bench.works import SEED, Work
from isobit.model import Model
from isobit.ops import PAGE_SIZE, Embed, Linear, Program, SelectRows


class Ours:
    """A loaded model, run by the engine's own forward pass, without sampling. `name` stands in the results."""

    def __init__(self, model: Model, name: str = "isobit") -> None:
        self.name = name
        if not isinstance(model.runner, CpuRunner):
            raise InputError("only the CPU backend can be measured; load the model with backend='cpu'")
        self.model = model
        self.runner = model.runner
        self._pasts: dict[int, Sequence] = {}  # by depth; kept from round to round
        self._random = np.random.default_rng(SEED)
        model.engine.past.release()

    @property
    def settings(self) -> dict[str, Any]:
        """What chooses the kernels."""
        model = self.model
        return {
            "numerics": model.numerics,
            "threads": self.runner.threads,
            "isa": self.runner.isa,
            "chunk": model.engine.chunk,
        }

    def check(self, works: list[Work]) -> None:
        """Raises InputError where the cache cannot hold what is to be measured."""
        context, pages = self.model.context_length, self.model.engine.pool.cache.num_pages
        kept = sum(pages_for(depth) for depth in {work.depth for work in works})
        for work in works:
            new = work.batch * (pages_for(work.context) - work.depth // PAGE_SIZE)  # full pages are shared
            if work.context > context or kept + new > pages:
                raise InputError(
                    f"{work.label} needs {work.batch} × {work.context} tokens of cache"
                    f"{f' beside {kept} kept pages' if kept else ''}, the context holds {context}; "
                    "ask for fewer tokens, or load the model with a larger context (-c)"
                )

    def run(self, work: Work) -> float:
        """Seconds of one run."""
        past = self._past(work.depth)
        sequences = [past.fork() for _ in range(work.batch)]
        try:
            return self._prefill(sequences[0], work.tokens) if work.kind == "pp" else self._decode(sequences, work)
        finally:
            for sequence in sequences:
                sequence.release()

    def close(self) -> None:
        """Gives the cache back; the model stays open."""
        for past in self._pasts.values():
            past.release()
        self._pasts.clear()

    def _past(self, depth: int) -> Sequence:
        if depth not in self._pasts:
            past = Sequence(self.model.engine.pool)
            self._prefill(past, depth)
            self._pasts[depth] = past
        return self._pasts[depth]

    def _tokens(self, count: int) -> list[int]:
        return [int(i) for i in self._random.integers(0, self.model.program.vocabulary_size, count)]

    def _prefill(self, sequence: Sequence, count: int) -> float:
        ids, engine = self._tokens(count), self.model.engine
        started = time.perf_counter()
        for start in range(0, count, engine.chunk):
            part = ids[start : start + engine.chunk]
            engine.forward([(sequence, part, [len(part) - 1] if start + len(part) == count else [])])
        return time.perf_counter() - started

    def _decode(self, sequences: list[Sequence], work: Work) -> float:
        steps = [self._tokens(work.batch) for _ in range(work.tokens)]
        started = time.perf_counter()
        for ids in steps:
            self.model.engine.forward([(s, [i], [0]) for s, i in zip(sequences, ids, strict=True)])
        return time.perf_counter() - started


def packed_bytes_per_token(model: Model) -> int:
    """Bytes of weights that a step of decode reads: every packed matrix once, and a row of the embeddings."""
    assert isinstance(model.runner, CpuRunner)
    rows = sum(op.weight.data.nbytes // op.weight.shape[0] for op in model.program.ops if isinstance(op, Embed))
    return model.runner.packed_bytes + rows


def multiply_adds(program: Program, tokens: int, wanted: int) -> int:
    """Multiplications, each with its addition, in the matrices of a pass over `tokens` tokens."""
    total, rows = 0, tokens
    for op in program.ops:
        if isinstance(op, SelectRows):
            rows = wanted
        elif isinstance(op, Linear):
            total += rows * math.prod(op.weight.shape)
    return total
