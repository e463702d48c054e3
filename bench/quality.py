"""How far each engine's logits are from the FP32 model of the same file: mean KL, top-1, perplexity.

    python bench/quality.py smollm2-135m=FILE.gguf gemma3-270m=FILE.gguf … [--engine NAME] [--json]

A name without a file must have been pulled. The text is tests/golden/texts/numerics.txt; the oracle needs the
extra `peers`. llama.cpp is measured where `llama-cpp-python` is installed; pip builds it from source, in
about 10 minutes on one core with CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAMA_BUILD_TOOLS=OFF -DLLAVA_BUILD=OFF".
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.oracle import (
    NUM_POSITIONS,
    Logits,
    llama_cpp_logits,
    mean_kl,
    oracle_logits,
    perplexity,
    text_tokens,
)

ISOBIT_SETTINGS = (("int16", "f32"), ("int16", "f16"), ("int8", "f16"))
ENGINES = ("isobit", "llama.cpp")
COLUMNS = "{:<19} {:>6} {:<13} {:<27} {:>9} {:>8} {:>10}"


@dataclass(frozen=True)
class Row:
    """One line of the table; `mean_kl` is in nats per token, `top1` a share of the tokens."""

    model: str
    tokens: int
    engine: str
    setting: str
    mean_kl: float
    top1: float
    perplexity: float


def candidates(engine: str, path: Path, ids: list[int]) -> Iterator[tuple[str, Logits]]:
    """Yields (setting, logits [tokens, vocabulary]) for each setting of an engine."""
    if engine == "llama.cpp":
        for flash_attention in (False, True):
            setting = "f16 cache, flash attention" if flash_attention else "f16 cache"
            yield setting, llama_cpp_logits(path, ids, flash_attention=flash_attention)
        return
    import isobit

    for activations, cache in ISOBIT_SETTINGS:
        with isobit.load(str(path), activations=activations, cache=cache) as model:
            yield f"{activations}, {cache} cache", model.logits(ids)


def measure(name: str, path: Path, tokens: int | None, engines: list[str]) -> Iterator[Row]:
    ids = text_tokens(name, tokens or NUM_POSITIONS[name])
    reference = oracle_logits(path, ids)
    yield Row(name, len(ids), "transformers", "float32", 0.0, 1.0, perplexity(reference, ids[1:]))
    for engine in engines:
        for setting, logits in candidates(engine, path, ids):
            kl, top1 = mean_kl(reference, logits)
            yield Row(name, len(ids), engine, setting, kl, top1, perplexity(logits, ids[1:]))


def show(row: Row) -> None:
    figures = f"{row.mean_kl:.2e}", f"{row.top1:.2%}", f"{row.perplexity:.4f}"
    print(COLUMNS.format(row.model, row.tokens, row.engine, row.setting, *figures), flush=True)


def model_file(argument: str) -> tuple[str, Path]:
    name, _, file = argument.partition("=")
    if name not in NUM_POSITIONS:
        raise argparse.ArgumentTypeError(f"{name!r}: expected one of {', '.join(NUM_POSITIONS)}")
    if file:
        return name, Path(file)
    from isobit.hub import resolve

    return name, Path(resolve(name))


def installed_engines() -> list[str]:
    return [engine for engine in ENGINES if engine == "isobit" or importlib.util.find_spec("llama_cpp")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", type=model_file, metavar="NAME[=FILE]")
    parser.add_argument("--tokens", type=int, help="tokens of the text (default 1024; 512 for the 1.5B model)")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="default: those installed")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = parser.parse_args()
    engines = options.engine or installed_engines()
    rows = []
    if not options.json:
        print(COLUMNS.format("model", "tokens", "engine", "setting", "mean KL", "top-1", "perplexity"))
    for name, path in options.models:
        for row in measure(name, path, options.tokens, engines):
            rows.append(row)
            if not options.json:
                show(row)
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()
