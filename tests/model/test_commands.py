"""The commands on a real model: what they print, what they promise, and how they refuse."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import isobit
from isobit.cli.main import main

PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def smollm(model_path) -> str:
    return str(model_path("smollm2-135m"))


def json_of(capsys, *argv: str) -> dict:
    assert main(list(argv)) == 0
    return json.loads(capsys.readouterr().out)


def command(*argv: str, **settings) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "isobit.cli.main", *argv], text=True, **settings)


def test_a_real_answer(smollm: str, capsys) -> None:
    answer = json_of(capsys, "run", smollm, PROMPT, "--raw", "--temp", "0", "-n", "12", "--json")
    assert "Paris" in answer["text"]
    assert answer["numerics"] == isobit.NUMERICS
    assert answer["prompt_tokens"] == 5
    assert len(answer["logprobs"]) == len(answer["token_ids"]) == 12
    assert answer["finish_reason"] == "length"


def test_chat_template_answers_and_stops(smollm: str, capsys) -> None:
    question = "What is the capital of France? Answer in one word."
    assert main(["run", smollm, question, "--temp", "0", "-n", "40"]) == 0
    assert "Paris" in capsys.readouterr().out
    answer = json_of(capsys, "run", smollm, "Say hello.", "--temp", "0", "-n", "200", "--json")
    assert answer["finish_reason"] == "stop"
    assert "<|im_end|>" not in answer["text"]


def test_library_command_and_stream_give_one_text(smollm: str, capsys) -> None:
    settings = {"max_tokens": 24, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": -5}
    with isobit.load(smollm) as model:
        library = model.generate(PROMPT, **settings)
        streamed = "".join(chunk.text for chunk in model.stream(PROMPT, **settings))
    assert main(["run", smollm, PROMPT, "--raw", "-n", "24", "--seed", "-5"]) == 0
    assert capsys.readouterr().out == library.text + "\n" == streamed + "\n"


def test_seeds_are_distinct_and_hold_in_a_batch(smollm: str) -> None:
    with isobit.load(smollm) as model:
        settings = {"max_tokens": 12, "temperature": 1.5, "top_k": 0, "top_p": 1.0}
        seeds = [-(2**63), -1, 0, 1, 2**63, 2**64 - 1]
        texts = [model.generate(PROMPT, seed=seed, **settings).text for seed in seeds]
        assert len(set(texts)) == len(seeds)
        again = model.generate_batch(["strangers", PROMPT, "come along"], seed=-1, **settings)
        assert again[1].text == texts[1]


def test_logits_digest_is_the_same_however_computed(smollm: str, capsys, tmp_path) -> None:
    plain = json_of(capsys, "logits", smollm, "--prompt", PROMPT, "--json")
    assert plain.keys() == {"model", "numerics", "tokens", "sha256"}
    for more in (["--chunk", "1"], ["-t", "1"], ["-t", "3"], ["--isa", "scalar"], ["--backend", "reference"]):
        assert json_of(capsys, "logits", smollm, "--prompt", PROMPT, "--json", *more)["sha256"] == plain["sha256"]
    out = tmp_path / "logits.npy"
    assert json_of(capsys, "logits", smollm, "--prompt", PROMPT, "--json", "--out", str(out)) == plain
    logits = np.load(out)
    assert logits.shape == (plain["tokens"], 49152)
    assert logits.dtype == np.float32
    assert hashlib.sha256(logits.tobytes()).hexdigest() == plain["sha256"]
    assert [path.name for path in tmp_path.iterdir()] == ["logits.npy"]


def test_activations_and_cache_are_other_numerics(smollm: str, capsys) -> None:
    digests, ids = set(), set()
    for activations in ("int8", "int16"):
        for cache in ("f16", "f32"):
            found = json_of(
                capsys, "logits", smollm, "--prompt", PROMPT, "--json", "--activations", activations, "--cache", cache
            )
            digests.add(found["sha256"])
            ids.add(found["numerics"])
    assert len(digests) == len(ids) == 4


def test_tokens_by_id(smollm: str, capsys) -> None:
    with isobit.load(smollm) as model:
        ids = ",".join(map(str, model.encode(PROMPT)))
    by_id = json_of(capsys, "logits", smollm, "--tokens", ids, "--json")
    assert by_id == json_of(capsys, "logits", smollm, "--prompt", PROMPT, "--json")


def test_perplexity_does_not_depend_on_the_chunk(smollm: str, capsys, tmp_path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat. The dog lay in the sun, and the birds sang in the trees. " * 4)
    plain = json_of(capsys, "perplexity", smollm, str(text), "--ctx", "64", "--json")
    assert 1 < plain["perplexity"] < 30
    for chunk in ("1", "16", "17", "512"):
        again = json_of(capsys, "perplexity", smollm, str(text), "--ctx", "64", "--chunk", chunk, "-t", "1", "--json")
        assert again == plain


def test_perplexity_is_that_of_the_logits(smollm: str, capsys, tmp_path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat. The dog lay in the sun.")
    found = json_of(capsys, "perplexity", smollm, str(text), "--json")
    with isobit.load(smollm) as model:
        ids = model.encode(text.read_text())
        logits = model.logits(ids).astype(np.float64)
    logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    expected = np.exp(-np.mean([logprobs[i, token] for i, token in enumerate(ids[1:])]))
    assert found["tokens"] == len(ids) - 1
    assert abs(found["perplexity"] / expected - 1) < 1e-6


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run", "{}", ""], "prompt is empty"),
        (["run", "{}", "x", "-n", "0"], "max_tokens is 0"),
        (["run", "{}", "x", "--temp", "nan"], "temperature is nan"),
        (["run", "{}", "x", "--temp", "-1"], "temperature is -1"),
        (["run", "{}", "x", "--seed", str(2**64)], "seed is"),
        (["run", "{}", "word " * 9000], "the context holds 8192"),
        (["run", "{}", "x", "--raw", "--system", "y"], "--system needs the chat template"),
        (["run", "smolm2-135m", "x"], "smollm2-135m"),
        (["run", "{}", "x", "--isa", "mmx"], "not available here"),
        (["logits", "{}", "--tokens", "1,x"], "integers separated by commas"),
        (["logits", "{}", "--tokens", "1,49152"], "token id 49152 is outside"),
        (["logits", "{}", "--prompt", "x", "--chunk", "0"], "chunk is 0"),
        (["perplexity", "{}", "/nonexistent/file"], "cannot read"),
        (["certify", "{}", "--ctx", "100"], "needs a context"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(smollm: str, capsys, argv: list[str], message: str) -> None:
    code = main([part.replace("{}", smollm) for part in argv])
    captured = capsys.readouterr()
    assert code == 2
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_file_that_is_not_gguf(tmp_path, capsys) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    assert main(["run", str(path), "x"]) == 2
    assert "GGUF" in capsys.readouterr().err


def test_a_prompt_from_standard_input(smollm: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(PROMPT))
    from_stdin = json_of(capsys, "run", smollm, "-", "--raw", "-n", "5", "--json")
    as_argument = json_of(capsys, "run", smollm, PROMPT, "--raw", "-n", "5", "--json")
    assert from_stdin["token_ids"] == as_argument["token_ids"]


def test_chat_keeps_the_conversation(smollm: str) -> None:
    questions = ["My name is Ada. Say hello.", "What is my name?"]
    messages: list[dict[str, str]] = []
    with isobit.load(smollm) as model:
        for question in questions:
            messages.append({"role": "user", "content": question})
            answer = model.generate(messages, max_tokens=30, temperature=0)
            messages.append({"role": "assistant", "content": answer.text})
    process = command("chat", smollm, "--temp", "0", "-n", "30", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = process.communicate("\n".join([*questions, "/reset", questions[0], "/quit", ""]), timeout=120)
    assert process.returncode == 0
    first, second = messages[1]["content"], messages[3]["content"]
    assert out == f"{first}\n{second}\n{first}\n"


def test_interrupt_keeps_what_was_printed(smollm: str) -> None:
    process = command("run", smollm, "Count to one thousand.", "--temp", "0", "-n", "4000", stdout=subprocess.PIPE)
    assert process.stdout is not None
    first = process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(first) == 20
    assert (first + rest).endswith("\n")


def test_a_reader_that_goes_away_is_no_traceback(smollm: str) -> None:
    process = command(
        "run", smollm, "Count.", "-n", "200", "--raw", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    error = process.stderr.read()
    process.wait(timeout=60)
    process.stderr.close()
    assert "Traceback" not in error
