"""The engine on small models: whatever shares a step, a request's tokens and logprobs are its own."""

from __future__ import annotations

import gc
import random
import threading

import numpy as np
import pytest

import isobit
from helpers.tiny_model import CONTEXT, write_tiny_model
from isobit.errors import InputError, NumericsError
from isobit.model import Model
from isobit.sampling import SamplingParams

ARCHITECTURES = ("llama", "qwen2", "gemma3")
PROMPTS = ["hello", "a", "The quick brown fox jumps over the lazy dog. " * 3, "zz top", "1 + 1 ="]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request, tmp_path_factory):
    path = write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", request.param)
    with isobit.load(str(path), threads=2) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def llama_path(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "llama.gguf")


def essence(completion):
    return completion.token_ids, completion.logprobs, completion.finish_reason


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_alone_and_in_a_batch(model: Model, temperature: float) -> None:
    settings = {"max_tokens": 12, "temperature": temperature, "seed": 11, "top_p": 1.0, "top_k": 0}
    alone = [essence(model.generate(p, **settings)) for p in PROMPTS]
    together = [essence(c) for c in model.generate_batch(PROMPTS, **settings)]
    backwards = [essence(c) for c in model.generate_batch(PROMPTS[::-1], **settings)]
    copies = [essence(c) for c in model.generate_batch([PROMPTS[2]] * 9, **settings)]
    assert alone == together == backwards[::-1]
    assert copies == [alone[2]] * 9


def test_prefill_chunks_change_nothing(model: Model) -> None:
    ids = [random.Random(5).randrange(256) for _ in range(301)]
    whole = model.logits(ids)
    for chunk in (1, 7, 64, 300):
        assert np.array_equal(whole.view(np.int32), model.logits(ids, chunk=chunk).view(np.int32)), chunk


def test_replayed_tokens_give_the_logprobs_of_generation(model: Model) -> None:
    done = model.generate("hello there", max_tokens=20, temperature=1.0, seed=3)
    ids = model.encode("hello there")
    logits = model.logits([*ids, *done.token_ids])
    from isobit.sampling import log_softmax

    replayed = [float(log_softmax(logits[len(ids) - 1 + i])[t]) for i, t in enumerate(done.token_ids)]
    assert replayed == done.logprobs


def test_random_schedules(model: Model) -> None:
    """A request's answer under 30 random schedules: companions, arrival times, cancels, chunk sizes."""
    generator = random.Random(17)
    params = SamplingParams(temperature=1.0, seed=5, top_k=0, top_p=1.0)
    expected = essence(model.generate(PROMPTS[2], max_tokens=10, params=params))
    for _ in range(30):
        assert _scheduled(model, params, generator) == expected
        model.engine.pool.check()


def _scheduled(model: Model, params: SamplingParams, generator: random.Random):
    engine = model.engine
    engine.chunk = generator.choice([1, 3, 16, 50, 512])
    if generator.random() < 0.5:
        engine.past.release()
    others = [model._request(p, generator.randrange(1, 9), None, {}, 0) for p in generator.choices(PROMPTS, k=4)]
    mine = model._request(PROMPTS[2], 10, params, {}, 0)
    queue = [*others, mine]
    generator.shuffle(queue)
    tokens = []
    while queue or engine.busy:
        if queue and generator.random() < 0.5:
            engine.submit(queue.pop())
        tokens += [t for t in engine.step() if t.request is mine]
        if generator.random() < 0.1:
            engine.cancel(others[0])
    return [t.id for t in tokens], [t.logprob for t in tokens], mine.finish_reason


def test_a_kept_prefix_changes_nothing(model: Model) -> None:
    text = PROMPTS[2]
    settings = {"max_tokens": 8, "temperature": 0.0}
    model.engine.past.release()
    cold = essence(model.generate(text, **settings))
    for before in (text, text[:40], text + "more", "other"):
        model.generate(before, max_tokens=3)
        assert essence(model.generate(text, **settings)) == cold


def test_streaming_gives_the_same_text(model: Model) -> None:
    for prompt in PROMPTS:
        done = model.generate(prompt, max_tokens=30, temperature=1.0, seed=2)
        chunks = list(model.stream(prompt, max_tokens=30, temperature=1.0, seed=2))
        assert "".join(c.text for c in chunks) == done.text
        assert [c.token for c in chunks] == done.token_ids
        assert chunks[-1].finish_reason == done.finish_reason


def test_a_closed_stream_frees_its_pages(model: Model) -> None:
    stream = model.stream("hello", max_tokens=50)
    next(stream)
    stream.close()
    assert not model.engine.busy
    model.engine.pool.check()


def test_more_requests_than_pages_wait_their_turn(llama_path) -> None:
    with isobit.load(str(llama_path), context=128, threads=1) as small:  # two pages
        answers = small.generate_batch(["hello"] * 7, max_tokens=40, temperature=0.0)
        assert len({tuple(a.token_ids) for a in answers}) == 1
        small.engine.pool.check()


def test_threads_take_turns(llama_path) -> None:
    with isobit.load(str(llama_path), threads=2) as shared:
        expected = shared.generate("hello", max_tokens=8, seed=1).token_ids
        results: list[list[int]] = []
        workers = [
            threading.Thread(target=lambda: results.append(shared.generate("hello", max_tokens=8, seed=1).token_ids))
            for _ in range(4)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert results == [expected] * 4


@pytest.mark.parametrize(
    ("prompt", "settings", "message"),
    [
        ("", {}, "prompt is empty"),
        ([], {}, "prompt is empty|no messages|expected"),
        ("hello", {"max_tokens": 0}, "max_tokens is 0"),
        ("hello", {"max_tokens": -3}, "max_tokens is -3"),
        ("hello", {"max_tokens": 2.5}, "max_tokens is 2.5"),
        ("x" * (CONTEXT + 5), {}, rf"{CONTEXT + 5} tokens, the context holds {CONTEXT}"),
        ("hello", {"temperature": float("nan")}, "temperature is nan"),
        ("hello", {"min_p": 0.1}, "unknown setting 'min_p'"),
        ([1, 2, 100000], {}, "token id 100000 is outside"),
        ([-1], {}, "token id -1 is outside"),
    ],
)
def test_bad_requests(llama_path, prompt, settings, message) -> None:
    with isobit.load(str(llama_path), threads=1) as loaded, pytest.raises(isobit.IsobitError, match=message):
        loaded.generate(prompt, **settings)


def test_bad_settings_of_load(llama_path) -> None:
    for settings in (
        {"threads": 0},
        {"isa": "sse9"},
        {"activations": "int4"},
        {"cache": "q3"},
        {"backend": "gpu"},
        {"context": CONTEXT + 1},
        {"chunk": 0},
    ):
        with pytest.raises(InputError):
            isobit.load(str(llama_path), **settings)


def test_non_finite_weights_are_an_error_with_its_place(tmp_path) -> None:
    path = write_tiny_model(tmp_path / "huge.gguf", weights="F32", spread=1e30)
    with (
        isobit.load(str(path), threads=2) as loaded,
        pytest.raises(NumericsError, match=r"layers\.0\.\w+, token \d"),
    ):
        loaded.generate("hello", max_tokens=2)


def test_use_after_close(llama_path) -> None:
    loaded = isobit.load(str(llama_path), threads=2)
    loaded.close()
    loaded.close()
    with pytest.raises(InputError, match="closed"):
        loaded.generate("hello", max_tokens=2)


def test_threads_and_maps_end_with_the_model(llama_path) -> None:
    def native_threads() -> int:
        from pathlib import Path

        return len(list(Path("/proc/self/task").iterdir()))

    def maps() -> int:
        from pathlib import Path

        return Path("/proc/self/maps").read_text().count(str(llama_path))

    before = native_threads()
    for _ in range(5):
        with isobit.load(str(llama_path), threads=3) as loaded:
            loaded.generate("hello", max_tokens=2)
        del loaded
    gc.collect()
    assert native_threads() == before
    assert maps() == 0
