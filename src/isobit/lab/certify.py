"""The matrix of the promise: one input under every setting that must not change its bits.

Each case runs the same token ids in another way (threads, companions, chunks, instruction set, cached prefix, …);
the digest of its logits must equal that of the plain run. Where one differs, it is run again with an observer to
find the first operation, layer and token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from isobit import _native
from isobit.backends.base import Runner
from isobit.backends.cpu import CpuRunner
from isobit.backends.reference import ReferenceRunner
from isobit.engine import Engine, PagePool, Sequence
from isobit.errors import InputError
from isobit.lab.digests import FloatArray, Place, Trace, logits_sha256
from isobit.model import Model
from isobit.ops import KVCache, Program
from isobit.sampling.philox import draw

LONG = 300  # tokens of the chunk and thread cases: more than a chunk of the canonical order, more than a page
SHORT = 40  # of the batch and instruction set cases
REFERENCE = 3  # of the reference backend, which is slow
WANTED_EVERY = 10  # logits are compared at every 10th token; an earlier difference reaches them through the cache
CHUNKS = (1, 7, 16, 17, 128, LONG)
MAX_BATCH = 33
CACHE_PAGES = 64
STRANGERS_SEED = 20_240_501

Part = tuple[Sequence, list[int], list[int]]


@dataclass(frozen=True)
class CaseResult:
    """One line of the report. `sha256`: digest of the case's logits; `place`: set where `ok` is False."""

    name: str
    sha256: str
    ok: bool
    place: Place | None = None


@dataclass(frozen=True)
class Case:
    """A way to run the first `tokens` of the input.

    `split` yields the number of tokens of each pass; `strangers` is how many other sequences run along;
    `cached`: the first half was computed before, by a sequence that this one is forked from.
    """

    name: str
    tokens: int
    runner: Callable[[], Runner]
    chunk: int
    strangers: int = 0
    cached: bool = False
    flush_to_zero: bool = False


@dataclass
class Certifier:
    """Runs the cases of one model."""

    program: Program
    runner: CpuRunner
    cache: KVCache

    def run(self) -> Iterator[CaseResult]:
        """Yields a result per case."""
        expected: dict[int, str] = {}
        for case in self.cases():
            if case.tokens not in expected:
                expected[case.tokens] = self._digest(self._plain(case.tokens))
            sha256 = self._digest(case)
            ok = sha256 == expected[case.tokens]
            yield CaseResult(case.name, sha256, ok, None if ok else self._locate(case))

    def count(self) -> int:
        """Number of cases."""
        return sum(1 for _ in self.cases())

    def cases(self) -> Iterator[Case]:
        """The matrix."""
        same = lambda: self.runner  # noqa: E731
        for threads in range(1, _native.default_threads() + 4):
            yield Case(f"threads {threads}", LONG, self._variant(threads=threads), LONG)
        for chunk in CHUNKS:
            yield Case(f"chunk {'all' if chunk == LONG else chunk}", LONG, same, chunk)
        yield Case("cached prefix", LONG, same, LONG, cached=True)
        yield Case("cached prefix, chunk 17", LONG, same, 17, cached=True)
        yield Case("flush-to-zero on in the process", LONG, same, LONG, flush_to_zero=True)
        for batch in range(1, MAX_BATCH + 1):
            yield Case(f"batch {batch}", SHORT, same, SHORT, strangers=batch - 1)
        yield Case(f"batch {MAX_BATCH}, chunk 7", SHORT, same, 7, strangers=MAX_BATCH - 1)
        for isa in _native.available_isas():
            yield Case(f"instruction set {isa}", SHORT, self._variant(isa=isa), SHORT)
            yield Case(f"instruction set {isa}, chunk 7", SHORT, self._variant(isa=isa), 7)
        yield Case("reference backend", REFERENCE, self._reference, REFERENCE)

    def _plain(self, tokens: int) -> Case:
        return Case("plain", tokens, lambda: self.runner, tokens)

    def _variant(self, threads: int | None = None, isa: str | None = None) -> Callable[[], Runner]:
        return lambda: self.runner.variant(threads=threads, isa=isa)

    def _reference(self) -> Runner:
        return ReferenceRunner(self.program, self.runner.activations)

    def _digest(self, case: Case) -> str:
        return logits_sha256(self._logits(case))

    def _locate(self, case: Case) -> Place | None:
        traces = []
        for one in (self._plain(case.tokens), case):
            trace = Trace(self.program)
            for _ in self._logits(one, trace):
                pass
            traces.append(trace)
        return traces[0].first_difference(traces[1])

    def _logits(self, case: Case, trace: Trace | None = None) -> Iterator[FloatArray]:
        """The logits of every wanted token of the case."""
        runner = case.runner()
        engine = Engine(runner, self.cache, self.program.context_length)
        ids = input_tokens(case.tokens, self.program.vocabulary_size)
        sequence = Sequence(engine.pool)
        if case.cached:
            sequence = self._cached_half(engine, ids[: case.tokens // 2])
        try:
            with _FlushToZero(case.flush_to_zero):
                while len(sequence) < case.tokens:
                    part = ids[len(sequence) : len(sequence) + case.chunk]
                    wanted = [i for i in range(len(part)) if _is_wanted(len(sequence) + i, case.tokens)]
                    others = self._strangers(engine.pool, case.strangers, len(sequence))
                    yield _run_part(engine, (sequence, part, wanted), others, trace)
        finally:
            if runner is not self.runner:
                runner.close()

    def _strangers(self, pool: PagePool, count: int, salt: int) -> list[Part]:
        """Other sequences of 1 to 12 tokens each, drawn from a fixed seed; some want logits, some do not."""
        parts: list[Part] = []
        for i in range(count):
            number = draw(STRANGERS_SEED, salt * 64 + i)
            length = 1 + number % 12
            ids = [(number >> (8 + j)) % self.program.vocabulary_size for j in range(length)]
            parts.append((Sequence(pool), ids, [length - 1] if number & 1 << 60 else []))
        return parts

    def _cached_half(self, engine: Engine, ids: list[int]) -> Sequence:
        """A fork of a sequence that computed the ids in passes of 23 tokens with two companions."""
        first = Sequence(engine.pool)
        while len(first) < len(ids):
            part = ids[len(first) : len(first) + 23]
            _run_part(engine, (first, part, []), self._strangers(engine.pool, 2, len(first)), None)
        return first.fork()


def _is_wanted(position: int, tokens: int) -> bool:
    """Logits of the second half are compared, since a cached prefix gives no others."""
    every = WANTED_EVERY if tokens > WANTED_EVERY else 1
    return position >= tokens // 2 and (position % every == 0 or position == tokens - 1)


def _run_part(engine: Engine, mine: Part, others: list[Part], trace: Trace | None) -> FloatArray:
    """One pass over `mine`, somewhere in the middle of the others; returns its logits."""
    sequence, ids, offsets = mine
    place = len(others) // 2
    first_row = sum(len(part[1]) for part in others[:place])
    first_wanted = sum(len(part[2]) for part in others[:place])
    wanted = range(first_wanted, first_wanted + len(offsets))
    if trace is not None:
        trace.expect(len(sequence), range(first_row, first_row + len(ids)), wanted, offsets)
    logits = engine.forward([*others[:place], mine, *others[place:]], trace)
    for other, _, _ in others:
        other.release()
    return logits[wanted.start : wanted.stop]


def input_tokens(count: int, vocabulary_size: int) -> list[int]:
    """The token ids that certify runs: pseudo-random, the same on every machine."""
    return [draw(7, i) % vocabulary_size for i in range(count)]


class _FlushToZero:
    """Switches flush-to-zero on in this thread, as a library in the same process might."""

    def __init__(self, active: bool) -> None:
        self._active = active
        self._mode = _native.ieee_mode()

    def __enter__(self) -> None:
        if self._active:
            self._mode.__enter__()
            _native.flush_to_zero()

    def __exit__(self, *_: object) -> None:
        if self._active:
            self._mode.__exit__()


def certifier_for(model: Model) -> Certifier:
    """A certifier of a loaded model, with a cache large enough for the widest case."""
    if not isinstance(model.runner, CpuRunner):
        raise InputError("certify compares the CPU backend with all others; load the model with backend='cpu'")
    if model.context_length <= LONG:
        raise InputError(f"certify needs a context of more than {LONG} tokens; this one holds {model.context_length}")
    p = model.program
    kind = model.engine.pool.cache.keys.dtype.name
    cache = KVCache.allocate(
        p.num_layers, CACHE_PAGES, p.num_kv_heads, p.head_dim, "f16" if kind == "float16" else "f32"
    )
    return Certifier(p, model.runner, cache)
