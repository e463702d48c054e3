"""Perplexity of a text, and the log-probability of each of its tokens."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np

from isobit.errors import InputError
from isobit.model import Model
from isobit.sampling import log_softmax


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean negative logprob of `tokens` tokens; sha256 over their logprobs, little-endian float32."""

    perplexity: float
    tokens: int
    sha256: str


def perplexity(
    model: Model,
    token_ids: list[int],
    *,
    window: int | None = None,
    chunk: int = 128,
    progress: Callable[[int, int], None] | None = None,
) -> Perplexity:
    """Scores every token but the first of each window of `window` tokens; windows do not overlap.

    `progress(done, total)` is called as tokens are done. Raises InputError for fewer than two tokens.
    """
    size = min(window or model.context_length, model.context_length)
    if size < 2 or len(token_ids) < 2:
        raise InputError(
            f"the text has {len(token_ids)} tokens, the window {size}; perplexity needs at least 2 of each"
        )
    scores: list[float] = []
    for start in range(0, len(token_ids), size):
        for logprob in _window_logprobs(model, token_ids[start : start + size], chunk):
            scores.append(logprob)
            if progress and len(scores) % chunk == 0:
                progress(len(scores), len(token_ids))
    digest = hashlib.sha256(np.array(scores, "<f4").tobytes()).hexdigest()
    # fsum is exact up to its last rounding; decimal's exp is the same on every machine, libm's is not.
    mean = -math.fsum(scores) / len(scores)
    return Perplexity(float(Context(prec=30).exp(Decimal(mean))), len(scores), digest)


def _window_logprobs(model: Model, ids: list[int], chunk: int) -> Iterator[float]:
    position = 0
    for logits in model.iter_logits(ids, chunk=chunk):
        for row in logits:
            position += 1
            if position < len(ids):
                yield float(log_softmax(row)[ids[position]])
