from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import pytest

import isobit
from helpers.tiny_model import FEED_FORWARD, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, write_tiny_model
from isobit import _native
from isobit.cli.main import main
from isobit.errors import InputError
from isobit.lab.bench import Ours, Work, measure
from isobit.lab.bench.ours import multiply_adds, packed_bytes_per_token
from isobit.lab.bench.profile import profile
from isobit.model import Model

TILE, VECTOR = 16, 64


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("bench") / "tiny.gguf")


@pytest.fixture
def model(path: Path) -> Iterator[Model]:
    with isobit.load(str(path), threads=2) as model:
        yield model


def bench(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main(["bench", *map(str, arguments), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def q8_0_bytes(path: Path) -> tuple[int, int, int]:
    """From the file alone: packed bytes of its matrices, the bytes of an embedding row, multiply-adds of the layers.

    A chunk of up to 256 columns of a tile of 16 rows has a binary16 scale for each row and block of 32, filled up
    to whole vectors, and a byte for each weight. The embeddings are the vocabulary projection too.
    """
    packed, row, products = 0, 0, 0
    for tensor in gguf.GGUFReader(path).tensors:
        if len(tensor.shape) != 2:
            continue
        columns, rows = (int(n) for n in tensor.shape)
        chunks = [min(256, columns - start) for start in range(0, columns, 256)]
        headers = sum(math.ceil(chunk // 32 * 2 * TILE / VECTOR) * VECTOR for chunk in chunks)
        packed += math.ceil(rows / TILE) * (headers + TILE * columns)
        if tensor.name == "token_embd.weight":
            row = columns // 32 * 34
        else:
            products += rows * columns
    return packed, row, products


def test_bytes_per_token(path: Path, model: Model) -> None:
    packed, row, _ = q8_0_bytes(path)
    assert packed_bytes_per_token(model) == packed + row


def test_multiply_adds(path: Path, model: Model) -> None:
    _, _, products = q8_0_bytes(path)
    layer = HIDDEN * HEAD_DIM * (2 * HEADS + 2 * KV_HEADS) + 3 * HIDDEN * FEED_FORWARD
    assert products == LAYERS * layer
    vocabulary = model.program.vocabulary_size
    assert multiply_adds(model.program, 10, 1) == 10 * products + HIDDEN * vocabulary
    assert multiply_adds(model.program, 3, 3) == 3 * (products + HIDDEN * vocabulary)


def test_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = bench(capsys, path, "--pp", 40, "--tg", 3, "--batch", "1,2", "--ctx", 70, "--reps", 2, "-t", 1)
    packed, row, products = q8_0_bytes(path)
    assert report["weight_bytes_per_token"] == packed + row
    assert report["threads"] == 1
    assert report["numerics"] == isobit.NUMERICS
    assert report["machine"]["processor"]["model"]
    assert [work["label"] for work in report["works"]] == ["pp 40", "tg 3", "tg 3, batch 2", "tg 3, after 70"]
    for work in report["works"]:
        speed = work["tokens_per_second"]["isobit"]
        assert len(speed["rounds"]) == 2
        assert 0 < speed["min"] <= speed["median"] <= speed["max"]
    prefill, decode, batch, _ = report["works"]
    speeds = [work["tokens_per_second"]["isobit"]["rounds"] for work in (prefill, decode, batch)]
    operations = 2 * (40 * products + HIDDEN * 261)
    assert prefill["tops"]["rounds"] == pytest.approx([operations / 40 * s / 1e12 for s in speeds[0]])
    assert decode["gb_per_second"]["rounds"] == pytest.approx([(packed + row) * s / 1e9 for s in speeds[1]])
    assert batch["gb_per_second"]["rounds"] == pytest.approx([(packed + row) * s / 2e9 for s in speeds[2]])
    assert batch["scaling_over_batch_1"]["rounds"] == pytest.approx([b / a for a, b in zip(*speeds[1:], strict=True)])
    reads = report["ceilings"]["read_gb_per_second"]["rounds"]
    shares = [rate / read for rate, read in zip(decode["gb_per_second"]["rounds"], reads, strict=True)]
    assert decode["share_of_plain_read"]["rounds"] == pytest.approx(shares)


def test_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(path), "--pp", "20", "--tg", "2", "--batch", "1", "--reps", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[-4:-1]] == ["pp 20", "tg 2", "tg 2, after 512"]
    assert lines[-1] == "left out, more than the context of 1024 tokens: tg 2, after 8192"


def test_depths_keep_their_tokens(model: Model) -> None:
    """Every round decodes from the same depth, and gives the pages back."""
    ours, pool = Ours(model), model.engine.pool
    free = pool.free
    measure(ours, [], [Work("tg", 2, 1, 100), Work("tg", 2, 3)], reps=2)
    assert [len(past) for past in ours._pasts.values()] == [100, 0]
    ours.close()
    assert pool.free == free
    pool.check()


@pytest.mark.parametrize("work", [Work("pp", 1025), Work("tg", 10, 1, 1020), Work("tg", 200, 8)])
def test_too_small_a_context(model: Model, work: Work) -> None:
    with pytest.raises(InputError, match=r"tokens of cache.*the context holds 1024.*larger context"):
        measure(Ours(model), [], [work], reps=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vs", "gpt"], "there is no peer 'gpt'; known are llama.cpp, ik"),
        (["--vs", "ik", "--peer-python", "/no/such/python"], "/no/such/python cannot be started"),
        (["--ctx", "2000"], "the context holds 1024"),
        (["--vs", "ik", "--cache", "f32"], "compare with --cache f16"),
    ],
)
def test_errors(path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(["bench", str(path), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_profile(model: Model) -> None:
    prefill, decode = profile(model, 30, 4, reps=2)
    kinds = {"q + k + v linear", "o linear", "gate + up linear", "down linear", "lm_head linear", "attention"}
    for one in (prefill, decode):
        assert kinds <= one.parts.keys()
        assert list(one.parts.values()) == sorted(one.parts.values(), reverse=True)
        assert 0 < sum(one.parts.values()) <= one.total
    assert "select" in prefill.parts


def test_profile_command(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = bench(capsys, path, "--profile", "--pp", 20, "--tg", 2, "--reps", 1)
    assert [one["label"] for one in report["profiles"]] == ["pp 20", "tg 2"]
    assert all(sum(part["share"] for part in one["parts"]) <= 1 for one in report["profiles"])


@pytest.mark.parametrize("isa", _native.available_isas())
def test_ceilings(isa: str) -> None:
    for best, median in (
        _native.measure_read(1 << 20, 2, isa, 3),
        _native.measure_dot(2, isa, 3),
        _native.measure_fma(1, isa, 3),
    ):
        assert 0 < median <= best < math.inf


def test_ceilings_are_above_real_work(model: Model) -> None:
    """A loop that the compiler had emptied would give hundreds of tera-operations a second and more."""
    for isa in _native.available_isas():
        assert _native.measure_dot(1, isa)[0] < 50e12
        assert _native.measure_fma(1, isa)[0] < 5e12
    report = measure(Ours(model), [], [Work("pp", 200)], reps=2)
    assert report.results[0].share.max < 1


def test_ceilings_check_their_arguments() -> None:
    isa = _native.default_isa()
    with pytest.raises(ValueError, match="threads must be at least 1"):
        _native.measure_dot(0, isa)
    with pytest.raises(ValueError, match="bytes must be at least 1"):
        _native.measure_read(0, 1, isa)
    with pytest.raises(ValueError, match="instruction set"):
        _native.measure_fma(1, "mmx")
