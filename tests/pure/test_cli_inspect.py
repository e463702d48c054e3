from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.gguf_writer import Tensor, Value, write
from isobit.cli.inspect import abbreviated, make_report, memory_needed
from isobit.cli.main import main
from isobit.errors import InputError
from isobit.formats import load_checkpoint
from isobit.ops import Attention

METADATA = {
    "general.architecture": "strange",
    "general.name": "evil \x1b[2J name",
    "strange.nan": float("nan"),
    "tokenizer.ggml.tokens": ["a", "b", "c", "d"],
    "tokenizer.ggml.scores": np.zeros(4, np.float32),
    "tokenizer.chat_template": "{% for m in messages %}\n{{ m }}{% endfor %}",
}
TENSORS = [
    Tensor("big", (4, 256), "Q4_K"),
    Tensor("small", (32,)),
    Tensor("other", (8,)),
    Tensor("no", (1, 256), "IQ1_S"),
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "model.gguf", METADATA, TENSORS)


def test_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(model), "--json", "--tensors"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == str(model)
    assert report["size"] == model.stat().st_size
    assert report["parameters"] == 4 * 256 + 32 + 8 + 256
    assert report["types"] == [
        {"name": "Q4_K", "tensors": 1, "parameters": 1024, "bytes": 576, "supported": True},
        {"name": "F32", "tensors": 2, "parameters": 40, "bytes": 160, "supported": True},
        {"name": "IQ1_S", "tensors": 1, "parameters": 256, "bytes": 50, "supported": False},
    ]
    assert report["bits_per_weight"] == round(8 * (576 + 160 + 50) / 1320, 3)
    assert not report["supported"]
    assert "'strange' is not supported" in report["reason"]
    assert report["memory"] is None
    assert report["metadata"]["tokenizer.ggml.tokens"] == {"length": 4, "first": ["a", "b", "c"]}
    assert report["metadata"]["strange.nan"] == "nan"
    assert report["chat_templates"] == {"tokenizer.chat_template": METADATA["tokenizer.chat_template"]}
    assert report["tensors"][0]["name"] == "big"
    assert report["tensors"][0]["shape"] == [4, 256]


def test_text(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(model)]) == 0
    text = capsys.readouterr().out
    assert "supported     no: architecture 'strange' is not supported" in text
    assert "not supported" in next(line for line in text.splitlines() if line.startswith("IQ1_S"))
    assert "tokenizer.ggml.tokens = 4 items ['a', 'b', 'c', …]" in text
    assert "{% for m in messages %}\n{{ m }}{% endfor %}" in text
    assert "\x1b" not in text


def test_memory() -> None:
    attention = [Attention("o", "q", layer, 4, 1.0, window=window) for layer, window in enumerate([512, 512, None])]
    program = SimpleNamespace(num_layers=3, num_kv_heads=2, head_dim=64, context_length=4096, ops=attention)
    memory = memory_needed(program, 1000, 128)  # type: ignore[arg-type]
    assert memory.kv_cache_bytes == 3 * 2 * 64 * 2 * 2 * 128
    assert memory.total_bytes == memory.kv_cache_bytes + 1000
    assert (memory.window, memory.window_layers, memory.layers) == (512, 2, 3)
    assert memory_needed(program, 0, None).context == 4096  # type: ignore[arg-type]
    with pytest.raises(InputError, match="--ctx is 4097; this model takes at most 4096 tokens"):
        memory_needed(program, 0, 4097)  # type: ignore[arg-type]


@pytest.mark.parametrize("context", ["0", "-1", "many"])
def test_bad_context(model: Path, context: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(model), "--ctx", context]) == 2
    assert "is not an integer of at least 1" in capsys.readouterr().err


def test_not_a_gguf_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("This is a text that is no model at all.")
    assert main(["inspect", str(path), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("isobit: magic at byte 0: ")
    assert captured.err.count("\n") == 1


def test_empty_model(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(write(tmp_path / "empty.gguf", {"general.architecture": "llama"}))
    report = make_report(tmp_path, checkpoint, None, with_tensors=True)
    checkpoint.close()
    assert report["bits_per_weight"] is None
    assert (report["types"], report["tensors"], report["supported"]) == ([], [], False)


def test_abbreviated_values() -> None:
    assert abbreviated(float("inf")) == "inf"
    assert abbreviated(np.array([np.nan, 1.0], np.float32)) == {"length": 2, "first": ["nan", 1.0]}
    assert abbreviated(np.arange(9)) == {"length": 9, "first": [0, 1, 2]}
    assert abbreviated(Value("u8", 1).value) == 1
