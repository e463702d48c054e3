"""The quality oracle: FP32 logits of a GGUF file by `transformers`, and how far other logits are from them.

`transformers` reads the file itself, dequantises every weight with the `gguf` package and runs its own model
code with eager attention in float32, so nothing of Isobit takes part. Run in float64 instead, the same models
are 2e-12 to 9e-12 nats away: the oracle's own noise is far below every bound. Needs the extra `peers`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import json
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import platformdirs

Logits = npt.NDArray[np.float32]

NUM_THREADS = 2
NUM_POSITIONS = {
    "smollm2-135m": 1024,
    "gemma3-270m": 1024,
    "qwen2.5-coder-0.5b": 1024,
    "qwen2.5-coder-1.5b": 512,
}
"""Tokens to compare on, per test model: a bound of 99.9 % wants 1000; the largest gets fewer to save time."""

_TOKENS_FILE = Path(__file__).parents[1] / "golden" / "texts" / "tokens.json"


def _module(name: str) -> Any:
    """A peer's module, imported when first needed and untyped, since it may be absent."""
    return importlib.import_module(name)


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps the peers' own warnings and progress bars out of a run in which warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modeling_gguf_pytorch_utils = _module("transformers.modeling_gguf_pytorch_utils")
        logging = _module("transformers.utils.logging")
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        with mock.patch.object(modeling_gguf_pytorch_utils, "tqdm", lambda items, **_: items):
            yield


@contextmanager
def one_gguf_reader() -> Iterator[None]:
    """Opens each file once: `transformers` does it several times, at 12 s for 262,144 vocabulary entries."""
    gguf = _module("gguf")
    with mock.patch.object(gguf, "GGUFReader", functools.cache(gguf.GGUFReader)):
        yield


def load_oracle(path: Path) -> Any:
    """The float32 `transformers` model of a GGUF file, in evaluation mode.

    Raises ValueError where `transformers` left a weight at its random initial value or could not place one:
    such a model would still answer, but it would not be the model of the file.
    """
    with quiet(), one_gguf_reader():
        model, report = _module("transformers").AutoModelForCausalLM.from_pretrained(
            str(path.parent),
            gguf_file=path.name,
            dtype="float32",
            attn_implementation="eager",
            local_files_only=True,
            output_loading_info=True,
        )
    missing = set(report["missing_keys"])
    if model.config.tie_word_embeddings:
        missing.discard("lm_head.weight")
    problems = {**report, "missing_keys": missing}
    if any(problems.values()):
        raise ValueError(f"{path.name}: transformers did not place all weights: {problems}")
    return model.eval()


def oracle_forward(model: Any, token_ids: Sequence[int], *, hidden_states: bool = False) -> Any:
    """One forward pass of the oracle; its output has `logits`, float32 [1, tokens, vocabulary].

    `hidden_states` adds the residual stream before the first layer and after each one, float32 [1, tokens,
    hidden_size]; `transformers` has already applied the final norm to the last of them.
    """
    torch = _module("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(NUM_THREADS)
    try:
        with quiet(), torch.inference_mode():
            return model(
                torch.tensor([list(token_ids)]),
                use_cache=False,
                output_hidden_states=hidden_states,
            )
    finally:
        torch.set_num_threads(threads)


def oracle_logits(path: Path, token_ids: Sequence[int]) -> Logits:
    """Logits after each token, float32 [tokens, vocabulary], as a read-only memory map.

    They are computed once and kept in the user's cache folder (or `ISOBIT_CACHE`), under a key made of the
    file's sha256, the token ids and the versions of `transformers`, `torch` and `gguf`.
    """
    stored = _cache_folder() / f"{_cache_key(path, token_ids)}.npy"
    if not stored.exists():
        logits = oracle_forward(load_oracle(path), token_ids).logits[0].numpy()
        stored.parent.mkdir(parents=True, exist_ok=True)
        partial = stored.with_suffix(f".{os.getpid()}.partial")
        with partial.open("wb") as file:
            np.save(file, logits)
        partial.replace(stored)
    loaded: Logits = np.load(stored, mmap_mode="r")
    return loaded


def llama_cpp_logits(path: Path, token_ids: Sequence[int], *, flash_attention: bool) -> Logits:
    """Logits of llama.cpp after each token, float32 [tokens, vocabulary].

    On the CPU with an F16 cache, in one batch with micro-batches of 512. Raises ImportError where
    `llama-cpp-python` is not installed.
    """
    model = _module("llama_cpp").Llama(
        str(path),
        n_ctx=len(token_ids),
        n_batch=len(token_ids),
        n_ubatch=512,
        n_threads=NUM_THREADS,
        n_threads_batch=NUM_THREADS,
        logits_all=True,
        flash_attn=flash_attention,
        verbose=False,
    )
    try:
        model.eval(list(token_ids))
        return np.array(model.scores[: len(token_ids)], dtype=np.float32)
    finally:
        model.close()


def text_tokens(name: str, count: int) -> list[int]:
    """The first `count` (at most 1024) token ids of the fixed English text by the model's tokenizer."""
    tokens = json.loads(_TOKENS_FILE.read_text(encoding="utf-8"))[name]
    if not 0 < count <= len(tokens):
        raise ValueError(f"{count} tokens asked for: expected 1 .. {len(tokens)}")
    return [int(token) for token in tokens[:count]]


def mean_kl(reference_logits: Logits, candidate_logits: Logits) -> tuple[float, float]:
    """Mean KL(reference || candidate) per token in nats, and the share of tokens with the same top token.

    Both inputs are [tokens, vocabulary]; sums are in float64. The first of equal maxima is the top token.
    Raises ValueError for different shapes, no tokens, or a value that is not finite.
    """
    shapes = reference_logits.shape, candidate_logits.shape
    if shapes[0] != shapes[1] or len(shapes[0]) != 2 or shapes[0][0] == 0:
        raise ValueError(f"shapes {shapes[0]} and {shapes[1]}: expected the same [tokens >= 1, vocabulary]")
    # One row at a time stays in the processor's cache; NumPy lets go of the interpreter lock meanwhile.
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        rows = list(pool.map(_row_kl, reference_logits, candidate_logits))
    return math.fsum(kl for kl, _ in rows) / len(rows), sum(same for _, same in rows) / len(rows)


def perplexity(logits: Logits, next_ids: Sequence[int]) -> float:
    """exp of the mean negative log-probability, in float64, of `next_ids[i]` under row i of `logits`.

    Rows past the last of `next_ids` (whose next token is unknown) are not looked at.
    """
    if not 0 < len(next_ids) <= len(logits):
        raise ValueError(f"{len(next_ids)} next tokens: expected 1 .. {len(logits)}, the rows of logits")
    losses = (_log_sum_exp(_finite(row)) - float(row[token]) for row, token in zip(logits, next_ids, strict=False))
    return math.exp(math.fsum(losses) / len(next_ids))


def _row_kl(reference_row: Logits, candidate_row: Logits) -> tuple[float, bool]:
    reference, candidate = _finite(reference_row), _finite(candidate_row)
    weights = np.exp(reference - reference.max())
    difference = float(np.dot(weights, reference - candidate) / weights.sum())
    same_top = bool(reference.argmax() == candidate.argmax())
    return difference - _log_sum_exp(reference) + _log_sum_exp(candidate), same_top


def _finite(row: Logits) -> npt.NDArray[np.float64]:
    wide = row.astype(np.float64)
    if not np.isfinite(wide).all():
        raise ValueError("a logit is infinite or not a number: expected finite values only")
    return wide


def _log_sum_exp(row: npt.NDArray[np.float64]) -> float:
    top = row.max()
    return float(top + np.log(np.exp(row - top).sum()))


def _cache_folder() -> Path:
    base = os.environ.get("ISOBIT_CACHE")
    return (Path(base) if base else platformdirs.user_cache_path("isobit")) / "oracle"


def _cache_key(path: Path, token_ids: Sequence[int]) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    versions = {name: importlib.metadata.version(name) for name in ("transformers", "torch", "gguf")}
    key = {"model": digest.hexdigest(), "tokens": list(token_ids), "versions": versions}
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
