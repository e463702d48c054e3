"""The CPU runner in a hostile process: flush-to-zero, observers that raise, many runners, closing."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from random_programs import Floats, Shape, copy_of, random_batch, random_cache, random_program

from isobit import _native
from isobit.backends.cpu import CpuRunner
from isobit.errors import InputError, UnsupportedError
from isobit.ops import Batch, KVCache, Program

pytestmark = pytest.mark.timeout(120)  # a deadlock shows as a failure
THREADS = (1, 2, 3)


@pytest.fixture(scope="module")
def case() -> tuple[Program, Batch, KVCache]:
    random = np.random.default_rng(8)
    shape = Shape(seed=8)
    program = random_program(shape)
    batch, pages = random_batch(random, [(0, 9), (70, 3), (250, 8)], shape.vocabulary, "all")
    # Cached values so small that sums of them are subnormal.
    cache = random_cache(random, program, pages, "f32")
    cache.values[...] *= np.float32(2.0**-130)
    return program, batch, cache


def outputs(runner: CpuRunner, batch: Batch, cache: KVCache) -> list[Floats]:
    """What each operation wrote, and the logits."""
    written: list[Floats] = []
    logits = runner.forward(batch, copy_of(cache), lambda _, rows: written.append(rows.copy()))
    return [*written, logits]


def same(found: list[Floats], expected: list[Floats]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


def flushes_to_zero() -> bool:
    """Whether the calling thread computes with flush-to-zero."""
    return bool(np.float32(1e-40) * np.float32(1) == 0)


def in_a_thread(work: Callable[[], None]) -> None:
    """Runs `work` in a thread that ends: its control register dies with it."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("isa", _native.available_isas())
def test_flush_to_zero_in_the_process_changes_nothing(case, isa: str, threads: int) -> None:
    program, batch, cache = case
    outside = CpuRunner(program, threads=threads, isa=isa)
    expected = outputs(outside, batch, cache)
    smallest = np.finfo(np.float32).smallest_normal
    assert any(((rows != 0) & (np.abs(rows) < smallest)).any() for rows in expected), "no subnormal to lose"

    def hostile() -> None:
        assert not flushes_to_zero()
        _native.flush_to_zero()
        assert flushes_to_zero()
        inside = CpuRunner(program, threads=threads, isa=isa)  # its threads inherit the mode
        assert same(outputs(inside, batch, cache), expected)
        assert same(outputs(outside, batch, cache), expected)
        assert flushes_to_zero(), "the mode of the caller must come back"
        inside.close()

    in_a_thread(hostile)
    outside.close()


def test_ieee_mode() -> None:
    def hostile() -> None:
        _native.flush_to_zero()
        with _native.ieee_mode():
            assert not flushes_to_zero()
        assert flushes_to_zero()

    in_a_thread(hostile)


def running_threads() -> int:
    gc.collect()  # runners that other tests have left behind
    return len(os.listdir("/proc/self/task"))


def settles_at(count: int) -> bool:
    """Whether that many threads run: a thread that was joined may stay in the list for a moment."""
    return any(len(os.listdir("/proc/self/task")) == count or os.sched_yield() for _ in range(100_000))


def test_threads_end_with_close(case) -> None:
    program, batch, cache = case
    before = running_threads()
    runners = [CpuRunner(program, threads=4) for _ in range(5)]
    assert running_threads() >= before + 15
    for runner in runners:
        runner.forward(batch, copy_of(cache))
        runner.close()
    assert settles_at(before), f"{running_threads() - before} threads are left of closed runners"


def test_many_runners_leak_no_threads(case) -> None:
    program, batch, cache = case
    before = running_threads()
    for cycle in range(150):
        runner = CpuRunner(program, threads=1 + cycle % 4)
        if cycle % 10 == 0:
            runner.forward(batch, copy_of(cache))
        if cycle % 3:
            runner.close()
        del runner
    assert settles_at(before), f"{running_threads() - before} threads leaked"


def test_close_twice_and_use_after_close(case) -> None:
    program, batch, cache = case
    runner = CpuRunner(program, threads=2)
    variant = runner.variant(threads=1, activations="int16")
    runner.close()
    runner.close()
    with pytest.raises(InputError, match="closed"):
        runner.forward(batch, copy_of(cache))
    assert variant.forward(batch, copy_of(cache)).shape == (len(batch.wanted), program.vocabulary_size)
    variant.close()


def test_close_releases_the_packed_weights_with_their_last_user(case) -> None:
    program, _, _ = case
    runner = CpuRunner(program, threads=1)
    packed = weakref.ref(runner._weights)
    variant = runner.variant(threads=1)
    runner.close()
    assert packed() is not None
    variant.close()
    assert packed() is None
    with pytest.raises(InputError, match="closed"):
        runner.variant(threads=1)


class Interrupted(BaseException):
    """Like KeyboardInterrupt, not an Exception."""


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("kind", [ValueError, Interrupted])
def test_an_observer_that_raises(case, threads: int, kind: type[BaseException]) -> None:
    program, batch, cache = case
    runner = CpuRunner(program, threads=threads)
    expected = outputs(runner, batch, cache)
    for at in (0, len(program.ops) // 2, len(program.ops) - 1):
        calls = []

        def observer(index: int, _: Floats, at: int = at, calls: list[int] = calls) -> None:
            calls.append(index)
            if index == at:
                raise kind(f"at {at}")

        with pytest.raises(kind, match=f"at {at}"):
            runner.forward(batch, copy_of(cache), observer)
        assert calls == list(range(at + 1)), "not called again after it has raised"
        assert same(outputs(runner, batch, cache), expected)
    runner.close()


def test_two_callers_at_once(case) -> None:
    """Python threads that share a runner take turns: neither spoils the other's result."""
    program, batch, cache = case
    runner = CpuRunner(program, threads=2)
    expected = runner.forward(batch, copy_of(cache)).tobytes()
    start = threading.Barrier(4)

    def work() -> list[bool]:
        start.wait()
        return [runner.forward(batch, copy_of(cache)).tobytes() == expected for _ in range(100)]

    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(work) for _ in range(4)]
        assert all(all(result.result()) for result in results)
    runner.close()


@pytest.mark.parametrize("threads", THREADS)
def test_an_observer_that_calls_forward(case, threads: int) -> None:
    program, batch, cache = case
    runner = CpuRunner(program, threads=threads)
    with pytest.raises(InputError, match="observer"):
        runner.forward(batch, copy_of(cache), lambda *_: runner.forward(batch, copy_of(cache)))
    runner.forward(batch, copy_of(cache))
    runner.close()


def test_an_observer_that_closes(case) -> None:
    program, batch, cache = case
    runner = CpuRunner(program, threads=2)
    with pytest.raises(InputError, match="observer"):
        runner.forward(batch, copy_of(cache), lambda *_: runner.close())
    runner.forward(batch, copy_of(cache))
    runner.close()


def test_results_are_copies(case) -> None:
    program, batch, cache = case
    runner = CpuRunner(program, threads=1)
    first = runner.forward(batch, copy_of(cache))
    kept = first.copy()
    runner.forward(Batch.build([([1], 0, [0], [0])]), copy_of(cache))
    runner.close()
    del runner
    assert first.tobytes() == kept.tobytes()


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_wrong_number_of_threads(case, threads: int) -> None:
    with pytest.raises(InputError, match=str(threads)):
        CpuRunner(case[0], threads=threads)


def test_wrong_instruction_set_and_head_dim() -> None:
    program = random_program(Shape(seed=1, hidden=64, head_dim=16, group=2))
    with pytest.raises(InputError, match=r"'mmx'.*scalar"):
        CpuRunner(program, isa="mmx")
    odd = random_program(Shape(seed=1, hidden=64, head_dim=24, kv_heads=2, group=2))
    with pytest.raises(UnsupportedError, match="24"):
        CpuRunner(odd)
