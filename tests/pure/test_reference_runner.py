"""The reference backend as a runner: paging, ragged batches, invariance, observers, errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from helpers import scalar
from helpers.matrices import float_matrix, random_matrix
from isobit.backends.arithmetic import FloatArray
from isobit.backends.base import Activations
from isobit.backends.reference import ReferenceRunner
from isobit.errors import InputError, NumericsError
from isobit.ops import (
    PAGE_SIZE,
    Add,
    Attention,
    Batch,
    CacheType,
    Embed,
    GatedActivation,
    KVCache,
    KvWrite,
    Linear,
    Op,
    Program,
    RmsNorm,
    Rope,
    RopeTable,
    Scale,
    SelectRows,
    Softcap,
)

VOCABULARY, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD, LAYERS = 40, 64, 4, 2, 16, 288, 2
WINDOWS = (None, 5)
PAGES = 16


def norm_weight(width: int) -> FloatArray:
    return np.linspace(0.5, 1.5, width, dtype=np.float32)


def layer_ops(layer: int, table: RopeTable) -> list[Op]:
    def linear(out: str, x: str, rows: int, columns: int, kind: str, bias: bool = False) -> Linear:
        seed = layer * 100 + sum(out.encode())
        weight = random_matrix(kind, rows, columns, seed, spread=0.01)
        return Linear(out, x, weight, norm_weight(rows) if bias else None)

    return [
        RmsNorm("h", "x", norm_weight(HIDDEN), 1e-5),
        linear("q", "h", HEADS * HEAD_DIM, HIDDEN, "Q4_1", bias=True),
        linear("k", "h", KV_HEADS * HEAD_DIM, HIDDEN, "Q8_0"),
        linear("v", "h", KV_HEADS * HEAD_DIM, HIDDEN, "Q5_0"),
        RmsNorm("q", "q", norm_weight(HEAD_DIM), 1e-5, HEADS),
        Rope("q", HEADS, table),
        Rope("k", KV_HEADS, table),
        KvWrite(layer, "k", "v"),
        Attention("a", "q", layer, HEADS, 0.25, WINDOWS[layer], 20.0 if layer else None),
        linear("m", "a", HIDDEN, HEADS * HEAD_DIM, "Q4_0"),
        Add("x", "x", "m"),
        linear("g", "x", FEED_FORWARD, HIDDEN, "F16"),
        linear("u", "x", FEED_FORWARD, HIDDEN, "Q5_1"),
        GatedActivation("g", "g", "u", "gelu" if layer else "silu"),
        linear("m", "g", HIDDEN, FEED_FORWARD, "IQ4_NL"),
        Add("x", "x", "m"),
    ]


def make_program(ops: Sequence[Op], labels: Sequence[str] | None = None) -> Program:
    layers = [getattr(op, "layer", -1) for op in ops]
    names = tuple(labels or (f"op{i}.{type(op).__name__}" for i, op in enumerate(ops)))
    return Program("test", VOCABULARY, 1000, LAYERS, KV_HEADS, HEAD_DIM, tuple(ops), {}, tuple(layers), names, WINDOWS)


def whole_program() -> Program:
    table = RopeTable((100.0 ** -(np.arange(HEAD_DIM // 2) / 8)).astype(np.float32), 1.1)
    table_weight = random_matrix("Q8_0", VOCABULARY, HIDDEN, 1, spread=0.01)
    return make_program(
        [
            Embed("x", table_weight),
            Scale("x", 3.3),
            *layer_ops(0, table),
            *layer_ops(1, table),
            SelectRows("last", "x"),
            RmsNorm("last", "last", norm_weight(HIDDEN), 1e-5),
            Linear("logits", "last", table_weight),
            Softcap("logits", 30.0),
        ]
    )


PROGRAM = whole_program()
IDS = [(7 * i * i + 3) % VOCABULARY for i in range(80)]


def allocate(kind: CacheType = "f16") -> KVCache:
    return KVCache.allocate(LAYERS, PAGES, KV_HEADS, HEAD_DIM, kind)


def logits_of(
    ids: Sequence[int],
    *,
    chunk: int = 1000,
    pages: Sequence[int] = (3, 1),
    strangers: int = 0,
    activations: Activations = "int8",
    kind: CacheType = "f16",
) -> FloatArray:
    """The logits of all tokens, run in pieces of `chunk` with other sequences before and after."""
    runner, cache = ReferenceRunner(PROGRAM, activations), allocate(kind)
    out = []
    for start in range(0, len(ids), chunk):
        piece = ids[start : start + chunk]
        others = [
            ([(i * 11 + start + j) % VOCABULARY for j in range(i + 1)], 0, [5 + i], [i]) for i in range(strangers)
        ]
        parts = [*others[: strangers // 2], (piece, start, pages, range(len(piece))), *others[strangers // 2 :]]
        first = strangers // 2
        out.append(runner.forward(Batch.build(parts), cache)[first : first + len(piece)])
    return np.concatenate(out)


def same(a: FloatArray, b: FloatArray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.fixture(scope="module")
def alone() -> FloatArray:
    return logits_of(IDS[:24])


@pytest.mark.parametrize("chunk", [1, 7, 23])
def test_chunks_change_nothing(alone: FloatArray, chunk: int) -> None:
    assert same(logits_of(IDS[:24], chunk=chunk), alone)


@pytest.mark.parametrize("strangers", [1, 4])
def test_companions_and_pages_change_nothing(alone: FloatArray, strangers: int) -> None:
    assert same(logits_of(IDS[:24], chunk=9, pages=(0, 12), strangers=strangers), alone)


def test_pages_may_lie_anywhere() -> None:
    ids = IDS[: PAGE_SIZE + 3]
    assert same(logits_of(ids, pages=(9, 2)), logits_of(ids, pages=(0, 1), chunk=PAGE_SIZE))


def test_settings_and_tokens_do_change_something(alone: FloatArray) -> None:
    assert np.isfinite(alone).all()
    assert np.unique(alone).size > 0.9 * alone.size
    assert not same(logits_of(IDS[:24], activations="int16"), alone)
    assert not same(logits_of(IDS[:24], kind="f32"), alone)
    assert not same(logits_of([0, *IDS[1:24]])[-1], alone[-1])
    np.testing.assert_allclose(logits_of(IDS[:24], activations="int16"), alone, atol=0.5)


def test_wanted_rows_are_those_of_the_whole(alone: FloatArray) -> None:
    runner = ReferenceRunner(PROGRAM)
    batch = Batch.build([(IDS[:24], 0, [3], [2, 23])])
    assert same(runner.forward(batch, allocate()), alone[[2, 23]])
    nothing = runner.forward(replace(batch, wanted=batch.wanted[:0]), allocate())
    assert nothing.shape == (0, VOCABULARY)


def run_observed(kind: CacheType) -> tuple[Batch, KVCache, dict[int, FloatArray]]:
    """Two sequences, the first longer than a page and continued, with every operation's output kept."""
    runner, cache = ReferenceRunner(PROGRAM), allocate(kind)
    seen: dict[int, FloatArray] = {}
    runner.forward(Batch.build([(IDS[:70], 0, [6, 4], [])]), cache)
    batch = Batch.build([(IDS[70:73], 70, [6, 4], [0, 2]), (IDS[5:9], 0, [2], [3])])
    runner.forward(batch, cache, lambda index, array: seen.update({index: array.copy()}))
    return batch, cache, seen


def test_observer_sees_every_operation_in_order() -> None:
    _, _, seen = run_observed("f16")
    assert list(seen) == list(range(len(PROGRAM.ops)))
    for index, op in enumerate(PROGRAM.ops):
        after_select = index >= len(PROGRAM.ops) - 4
        assert seen[index].dtype == np.float32, op
        assert len(seen[index]) == (3 if after_select else 7), op


@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize("layer", range(LAYERS))
def test_cache_and_attention(kind: CacheType, layer: int) -> None:
    """What kv_write stored and attention read, position by position, through shuffled pages, with a window."""
    batch, cache, seen = run_observed(kind)
    write = next(i for i, op in enumerate(PROGRAM.ops) if isinstance(op, KvWrite) and op.layer == layer)
    q, written, found = seen[write - 2], seen[write], seen[write + 1]
    k = seen[write - 1].astype(cache.keys.dtype).astype(np.float32)
    np.testing.assert_array_equal(written[:, : k.shape[1]], k)
    half = KV_HEADS * HEAD_DIM
    op = PROGRAM.ops[write + 1]
    assert isinstance(op, Attention)
    for row in (0, 2, 6):
        table, position = batch.page_tables[batch.sequences[row]], int(batch.positions[row])
        stored = [cache_row(cache, layer, table, p) for p in range(position + 1)]
        np.testing.assert_array_equal(stored[position], written[row])
        visible = range(max(0, position - op.window + 1) if op.window else 0, position + 1)
        for head in (1, 2):
            part = slice(head // 2 * HEAD_DIM, (head // 2 + 1) * HEAD_DIM)
            keys, values = ([r[start:][part].tolist() for r in stored] for start in (0, half))
            query = q[row, head * HEAD_DIM :][:HEAD_DIM].tolist()
            expected = scalar.attention(query, keys, values, visible, op.scale, op.softcap)
            np.testing.assert_array_equal(found[row, head * HEAD_DIM :][:HEAD_DIM], np.float32(expected))


def cache_row(cache: KVCache, layer: int, table: npt.NDArray[np.int32], position: int) -> FloatArray:
    page, slot = table[position // PAGE_SIZE], position % PAGE_SIZE
    k, v = cache.keys[layer, page, :, :, slot], cache.values[layer, page, :, slot]
    return np.concatenate([k.ravel(), v.ravel()]).astype(np.float32)


def test_softcap_ends_the_logits(alone: FloatArray) -> None:
    assert np.abs(alone).max() <= 30


def run_small(
    ops: Sequence[Op], ids: Sequence[int], wanted: Sequence[int] = (0,), kind: CacheType = "f16"
) -> FloatArray:
    labels = [f"name{i}" for i in range(len(ops))]
    return ReferenceRunner(make_program(ops, labels)).forward(Batch.build([(ids, 0, [0], wanted)]), allocate(kind))


def table_with(bad: float) -> FloatArray:
    """Embeddings of ones; tokens 3 and 4 hold `bad` in one feature."""
    values = np.ones((VOCABULARY, HIDDEN), np.float32)
    values[3, 5] = values[4, 0] = bad
    return values


ONES = float_matrix(np.ones((VOCABULARY, HIDDEN)))
KV_ONES = float_matrix(np.ones((KV_HEADS * HEAD_DIM, HIDDEN)))


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_non_finite_input_of_linear(bad: float) -> None:
    ops = [Embed("x", float_matrix(table_with(bad))), Linear("logits", "x", ONES)]
    with pytest.raises(NumericsError, match=rf"^name1 \(outside the layers\), token 2 of the batch: found {bad}"):
        run_small(ops, [1, 1, 4, 3], [0, 1, 2, 3])


@pytest.mark.parametrize("bad", [math.inf, math.nan, 1e20])
def test_non_finite_sum_of_squares(bad: float) -> None:
    ops = [Embed("x", float_matrix(table_with(bad))), RmsNorm("logits", "x", norm_weight(16), 1e-6, 4)]
    with pytest.raises(NumericsError, match=r"^name1 .* token 1 of the batch"):
        run_small(ops, [1, 3, 4])


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_non_finite_key_or_value(kind: CacheType) -> None:
    """65520 is the first number that binary16 rounds to infinity; binary32 holds it."""
    scale = 65520.0 if kind == "f16" else math.inf
    for factor, fails in ((scale, True), (65519.0, False)):
        ops = [
            Embed("x", float_matrix(np.eye(VOCABULARY, HIDDEN))),
            Linear("k", "x", KV_ONES),
            Linear("v", "x", KV_ONES),
            Scale("v", factor),
            KvWrite(1, "k", "v"),
            Linear("logits", "x", ONES),
        ]
        if fails:
            with pytest.raises(NumericsError, match=r"^name4 \(layer 1\), token 0 of the batch: found inf"):
                run_small(ops, [1, 2], kind=kind)
        else:
            assert run_small(ops, [1, 2], [0, 1], kind).shape == (2, VOCABULARY)


def test_non_finite_logit_names_the_row_of_the_batch() -> None:
    ops = [Embed("x", float_matrix(table_with(3e38))), SelectRows("y", "x"), Linear("logits", "y", ONES)]
    ops.append(Scale("logits", 2.0))
    with pytest.raises(NumericsError, match=r"^name3 .* token 5 of the batch: found inf"):
        run_small(ops, [1, 2, 3, 1, 1, 4], [0, 4, 5])


def test_the_first_operation_comes_before_the_lowest_token() -> None:
    values = table_with(math.inf)
    values[1] = 1e20  # fails in rms_norm only
    ops = [
        Embed("x", float_matrix(values)),
        Linear("logits", "x", ONES),
        RmsNorm("x", "x", norm_weight(HIDDEN), 1e-6),
    ]
    with pytest.raises(NumericsError, match=r"^name1 .* token 2 "):
        run_small(ops, [1, 0, 3])
    with pytest.raises(NumericsError, match=r"^name2 .* token 1 "):
        run_small(ops, [0, 1, 0])


def test_nothing_follows_an_error() -> None:
    calls: list[int] = []
    program = make_program(
        [Embed("x", float_matrix(table_with(math.nan))), Linear("logits", "x", ONES), Scale("x", 2.0)]
    )
    with pytest.raises(NumericsError):
        ReferenceRunner(program).forward(
            Batch.build([([3], 0, [0], [0])]), allocate(), lambda index, _: calls.append(index)
        )
    assert calls == [0]


def test_bad_arguments() -> None:
    runner = ReferenceRunner(PROGRAM)
    with pytest.raises(InputError, match=r"token id 40 is outside 0 to 39"):
        runner.forward(Batch.build([([VOCABULARY], 0, [0], [0])]), allocate())
    with pytest.raises(InputError, match=r"activations is 'int4'; expected int8 or int16"):
        ReferenceRunner(PROGRAM, "int4")  # type: ignore[arg-type]
    runner.close()
    runner.close()
    with pytest.raises(InputError, match="closed"):
        runner.forward(Batch.build([([1], 0, [0], [0])]), allocate())
