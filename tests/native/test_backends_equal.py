"""The CPU backend against the NumPy reference, bit for bit, after every operation of random programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import (
    Floats,
    Shape,
    copy_of,
    float_matrix,
    hostile_embedding,
    random_batch,
    random_cache,
    random_matrix,
    random_program,
)

from isobit import _native
from isobit.backends.base import Activations, Runner
from isobit.backends.cpu import CpuRunner
from isobit.backends.reference import ReferenceRunner
from isobit.errors import NumericsError
from isobit.ops import Batch, CacheType, Embed, KVCache, Linear, Program, SelectRows
from isobit.quants import SUPPORTED_NAMES, TYPES_BY_NAME

ISAS = _native.available_isas()
SETTINGS: list[tuple[Activations, CacheType]] = [("int8", "f16"), ("int8", "f32"), ("int16", "f16"), ("int16", "f32")]
ALL_THREADS = (1, 2, 3)


class Trace:
    """What a runner wrote, operation by operation; `error` is (label, token) where it stopped."""

    def __init__(self, runner: Runner, program: Program, batch: Batch, cache: KVCache) -> None:
        self.cache = copy_of(cache)
        self.written: list[Floats] = []
        self.error: tuple[str, int] | None = None
        self.logits: Floats | None = None
        try:
            self.logits = runner.forward(batch, self.cache, lambda _, rows: self.written.append(rows.copy()))
        except NumericsError as error:
            self.error = place_of(error, program)


def place_of(error: NumericsError, program: Program) -> tuple[str, int]:
    """The operation's label and the token that a message names."""
    labels = [label for label in program.labels if re.search(rf"(?<![\w.]){re.escape(label)}(?![\w.])", str(error))]
    token = re.search(r"token (\d+) of the batch", str(error))
    assert token, f"no token in {error}"
    assert len(set(labels)) == 1, f"labels {labels} in {error}"
    return labels[0], int(token[1])


def assert_same_bits(found: Floats, expected: Floats, place: str) -> None:
    """Equal as bits, except that one NaN is as good as another."""
    assert found.shape == expected.shape, place
    assert found.dtype == expected.dtype, place
    unsigned = np.uint16 if found.dtype == np.float16 else np.uint32
    same = (found.view(unsigned) == expected.view(unsigned)) | (np.isnan(found) & np.isnan(expected))
    if not same.all():
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        pytest.fail(f"{place}: {(~same).sum()} differ, first at {at}: {found[at]!r}, expected {expected[at]!r}")


def assert_same(found: Trace, expected: Trace, program: Program, who: str) -> None:
    assert found.error == expected.error, who
    for index, rows in enumerate(expected.written):
        assert_same_bits(found.written[index], rows, f"{who}: {program.labels[index]}")
    if expected.logits is None:
        return
    assert found.logits is not None, who
    assert len(found.written) == len(program.ops)
    assert_same_bits(found.logits, expected.logits, f"{who}: logits")
    for array in ("keys", "values"):
        assert_same_bits(getattr(found.cache, array), getattr(expected.cache, array), f"{who}: cache")


def check(
    program: Program,
    batch: Batch,
    cache: KVCache,
    activations: Activations,
    threads: tuple[int, ...] = ALL_THREADS,
) -> Trace:
    """All instruction sets and numbers of threads against the reference, whose trace is returned."""
    expected = Trace(ReferenceRunner(program, activations), program, batch, cache)
    first = CpuRunner(program, activations, threads=1, isa="scalar")
    for isa in ISAS:
        for count in threads:
            runner = first.variant(isa=isa, threads=count)
            found = Trace(runner, program, batch, cache)
            assert_same(found, expected, program, f"{isa}, {count} threads, {activations}")
            runner.close()
    first.close()
    return expected


shapes = st.builds(
    Shape,
    seed=st.integers(0, 2**32 - 1),
    layers=st.just(2),
    hidden=st.sampled_from([64, 256, 288, 512, 1024]),
    intermediate=st.sampled_from([32, 256, 544, 800]),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 8),
    head_dim=st.sampled_from([16, 32, 48, 64, 128]),
    vocabulary=st.integers(8, 50),
    style=st.sampled_from(["interleaved", "halves"]),
    rotary_pairs=st.sampled_from([None, None, 3, 8]),
    windows=st.tuples(*[st.sampled_from([None, None, 1, 64, 300])] * 2),
    attention_softcap=st.sampled_from([None, 2.5, 50.0]),
    logit_softcap=st.sampled_from([None, 30.0]),
    activation=st.sampled_from(["silu", "gelu"]),
    head_norms=st.booleans(),
    biases=st.booleans(),
)
parts = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 60, 63, 200, 254, 256, 510, 640]), st.integers(1, 9)), min_size=1, max_size=4
)


@pytest.mark.parametrize(("activations", "cache_type"), SETTINGS)
def test_random_programs(activations: Activations, cache_type: CacheType) -> None:
    complete = []

    @settings(max_examples=12, deadline=None, derandomize=True, database=None)
    @given(shape=shapes, parts=parts, wanted=st.sampled_from(["some", "some", "all", "none"]))
    def run(shape: Shape, parts: list[tuple[int, int]], wanted) -> None:
        random = np.random.default_rng(shape.seed)
        program = random_program(shape)
        batch, pages = random_batch(random, parts, shape.vocabulary, wanted)
        cache = random_cache(random, program, pages, cache_type)
        trace = check(program, batch, cache, activations)
        complete.append(trace.logits is not None)

    run()
    assert sum(complete) > len(complete) / 2, "most examples should reach their logits"


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize("name", SUPPORTED_NAMES)
def test_every_weight_type(name: str, activations: Activations) -> None:
    """Embedding rows and products of several chunks, rows that fill no tile, hostile inputs."""
    kind = TYPES_BY_NAME[name]
    random = np.random.default_rng(kind.ggml_id)
    columns = {1: 777, 32: 1312, 256: 1280}[kind.block_size]
    vocabulary, rows = 40, 53
    table = random_matrix(random, "table", (vocabulary, columns), kind)
    inputs = float_matrix("inputs", hostile_embedding(random, vocabulary, columns))
    bias = random.normal(size=rows).astype(np.float32)
    program = Program(
        "linear", vocabulary, 64, 1, 1, 16,
        (
            Embed("rows", table),
            Embed("x", inputs),
            Linear("y", "x", random_matrix(random, "matrix", (rows, columns), kind), bias),
            Linear("from_rows", "rows", random_matrix(random, "other", (16, columns), kind)),
            SelectRows("last", "x"),
            Linear("logits", "last", random_matrix(random, "output", (vocabulary, columns), kind)),
        ),
        {"rows": columns, "x": columns, "y": rows, "from_rows": 16, "last": columns, "logits": vocabulary},
        (-1,) * 6, ("rows", "x", "y", "from_rows", "select", "output"),
    )  # fmt: skip
    batch, pages = random_batch(random, [(0, 17), (5, 6)], vocabulary)
    assert check(program, batch, random_cache(random, program, pages, "f16"), activations).error is None


def edited(change: Callable[[Floats], None], **shape: object) -> tuple[Program, Batch, KVCache]:
    """A program whose embedding `change` has spoiled, and a batch in which token i has id i."""
    s = Shape(seed=5, **shape)  # type: ignore[arg-type]
    random = np.random.default_rng(5)
    embedding = random.normal(size=(s.vocabulary, s.hidden)).astype(np.float32)
    change(embedding)
    program = random_program(s, embedding)
    batch = Batch.build([(range(5), 0, [2], [0, 4]), (range(5, 12), 60, [0, 1], [6])])
    return program, batch, random_cache(random, program, 4, "f32")


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_non_finite_weights_are_told_alike(value: float, activations: Activations) -> None:
    """The earliest operation and token: here the first norm, whose sum of squares is not finite."""

    def change(embedding: Floats) -> None:
        embedding[[9, 6], [3, 100]] = value

    program, batch, cache = edited(change)
    assert check(program, batch, cache, activations).error == ("layers.0.n_norm", 6)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_non_finite_input_of_linear(value: float, kind: str) -> None:
    random = np.random.default_rng(1)
    embedding = random.normal(size=(12, 64)).astype(np.float32)
    embedding[[3, 7], [63, 0]] = value
    matrix = random_matrix(random, "w", (12, 64), TYPES_BY_NAME[kind])
    ops = (Embed("x", float_matrix("e", embedding)), Linear("logits", "x", matrix))
    program = Program("one", 12, 64, 1, 1, 16, ops, {"x": 64, "logits": 12}, (-1, -1), ("embed", "output"))
    batch = Batch.build([([0, 1, 2], 0, [0], [2]), ([7, 3], 0, [1], [1])])
    cache = random_cache(random, program, 2, "f16")
    assert check(program, batch, cache, "int8").error == ("output", 3)


def test_non_finite_logits_name_the_token_of_the_batch() -> None:
    """After select_rows a row is no longer a token: messages still count tokens of the batch."""
    random = np.random.default_rng(2)
    embedding = np.ones((8, 32), np.float32)
    embedding[5] = 3e37
    matrix = float_matrix("w", np.full((8, 32), 100.0, np.float32))
    ops = (Embed("x", float_matrix("e", embedding)), SelectRows("s", "x"), Linear("logits", "s", matrix))
    program = Program("select", 8, 64, 1, 1, 16, ops, {"x": 32, "s": 32, "logits": 8}, (-1,) * 3, ("x", "s", "output"))
    batch = Batch.build([([0, 1, 2, 5, 4], 0, [0], [1, 3, 4])])
    cache = random_cache(random, program, 1, "f16")
    assert check(program, batch, cache, "int8").error == ("output", 3)


@pytest.mark.parametrize("softcap", [None, 20.0])
def test_scores_that_overflow(softcap: float | None) -> None:
    """Keys so large that q · k is infinite at one position: an error even where a soft cap would hide it."""
    program, batch, cache = edited(lambda embedding: None, windows=(None, None), attention_softcap=softcap)
    keys = cache.keys[0, batch.page_tables[1, 0], 1]
    keys[0::2, 10], keys[1::2, 10] = 3e38, -3e38
    assert check(program, batch, cache, "int8").error == ("layers.0.attention", 5)


def test_scores_that_overflow_outside_the_window() -> None:
    """What a query does not see cannot be at fault, although the kernels compute it along with the rest."""
    program, batch, cache = edited(lambda embedding: None, windows=(51, 51))
    keys = cache.keys[0, batch.page_tables[1, 0], 1]
    keys[0::2, 10], keys[1::2, 10] = 3e38, -3e38  # position 60 sees 10, the others do not
    assert check(program, batch, cache, "int8").error == ("layers.0.attention", 5)
    keys[:, 9], keys[:, 10] = np.nan, 1.0
    assert check(program, batch, cache, "int8").error is None


def with_bias(program: Program, label: str, value: float) -> Program:
    """The program with `value` as the last bias of one linear operation."""
    at = program.labels.index(label)
    linear = program.ops[at]
    assert isinstance(linear, Linear)
    bias = np.zeros(linear.weight.shape[0], np.float32)
    bias[-1] = value
    return replace(program, ops=(*program.ops[:at], replace(linear, bias=bias), *program.ops[at + 1 :]))


def test_keys_too_large_for_the_cache() -> None:
    program, batch, cache = edited(lambda embedding: None, hidden=64)
    changed = with_bias(program, "layers.1.v_proj", 65536.0 * 2)
    half = KVCache(cache.keys.astype(np.float16), cache.values.astype(np.float16))
    assert check(changed, batch, half, "int8").error == ("layers.1.kv_write", 0)
    assert check(changed, batch, cache, "int8").error is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_soft_cap_does_not_hide_what_is_not_finite(value: float) -> None:
    program, batch, cache = edited(lambda embedding: None, attention_softcap=20.0, logit_softcap=30.0)
    spoiled = with_bias(program, "layers.1.q_proj", value)
    assert check(spoiled, batch, cache, "int8").error == ("layers.1.attention", 0)
    spoiled = with_bias(program, "logits_proj", value)
    assert check(spoiled, batch, cache, "int8").error == ("logit_softcap", 0)
