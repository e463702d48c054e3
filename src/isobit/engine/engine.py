"""The main loop: `Engine.step` picks work, runs the program once over all of it, samples, and hands out tokens.

A prompt's chunk, the next token of a running request and any mixture of them are the same step with different token
counts; which of them meet in a step changes no bit (docs/numerics.md).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isobit import _native
from isobit.backends.base import Observer, Runner
from isobit.engine.pages import PagePool, Sequence, pages_for
from isobit.engine.request import Request
from isobit.errors import InputError
from isobit.ops import Batch, KVCache
from isobit.sampling import log_softmax, sample

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Token:
    """One token of a request's output. `top`: the most probable (token id, logprob), best first."""

    request: Request
    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Engine:
    """Runs requests together. `chunk` is the largest number of prompt tokens of one request in a step."""

    def __init__(self, runner: Runner, cache: KVCache, context_length: int, chunk: int = 512) -> None:
        if chunk < 1:
            raise InputError(f"chunk is {chunk}; expected at least 1 token")
        self.runner = runner
        self.pool = PagePool(cache)
        self.context_length = context_length
        self.chunk = chunk
        self.past = Sequence(self.pool)  # the latest ended request's, for one that continues it
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()

    def submit(self, request: Request) -> Request:
        """Queues a request. Raises InputError where it can never fit."""
        check_length(len(request.prompt), self.context_length)
        if request.max_tokens < 1:
            raise InputError(f"max_tokens is {request.max_tokens}; expected at least 1")
        request.max_tokens = min(request.max_tokens, self.context_length - len(request.prompt))
        if self._need(request) > self.pool.cache.num_pages:
            raise InputError(
                f"{len(request.prompt)} prompt tokens and {request.max_tokens} new ones do not fit in the cache's "
                f"{self.pool.cache.num_pages} pages; ask for fewer tokens or load the model with a larger context"
            )
        self.waiting.append(request)
        return request

    def step(self) -> list[Token]:
        """Runs every running request by one chunk or one token; returns the new tokens."""
        self._admit()
        if not self.running:
            return []
        chunks = [request.pending()[: self.chunk] for request in self.running]
        ready = [r for r, ids in zip(self.running, chunks, strict=True) if len(ids) == len(r.pending())]
        logits = self.forward(
            [
                (request.cached(), ids, [len(ids) - 1] if request in ready else [])
                for request, ids in zip(self.running, chunks, strict=True)
            ]
        )
        tokens = [self._sample(request, row) for request, row in zip(ready, logits, strict=True)]
        for request in ready:
            if request.finish_reason is not None:
                self._retire(request)
        return tokens

    @property
    def busy(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self.running or self.waiting)

    def cancel(self, request: Request) -> None:
        """Ends a request; what it has produced stays."""
        if request.finish_reason is None:
            request.finish_reason = "cancelled"
            self._retire(request)

    def forward(
        self,
        parts: list[tuple[Sequence, list[int], list[int]]],
        observer: Observer | None = None,
    ) -> FloatArray:
        """Appends token ids to sequences in one pass; returns the logits at the wanted offsets."""
        for sequence, ids, _ in parts:
            sequence.reserve(len(ids))
        batch = Batch.build([(ids, len(s), s.pages, wanted) for s, ids, wanted in parts])
        with _native.ieee_mode():
            logits = self.runner.forward(batch, self.pool.cache, observer)
        for sequence, ids, _ in parts:
            sequence.tokens.extend(ids)
        return logits

    def _need(self, request: Request) -> int:
        return pages_for(len(request.prompt) + request.max_tokens)

    def _admit(self) -> None:
        """Starts waiting requests in order, while all they may need fits beside the running ones."""
        while self.waiting:
            request = self.waiting[0]
            promised = sum(self._need(r) - len(r.cached().pages) for r in self.running)
            if self._need(request) > self.pool.free - promised + len(self.past.pages):
                return
            request.sequence = self._reuse(request.prompt)
            if self._need(request) - len(request.sequence.pages) > self.pool.free - promised:
                self.past.release()
            self.running.append(self.waiting.popleft())

    def _reuse(self, prompt: tuple[int, ...]) -> Sequence:
        """The past as far as it is a prefix of the prompt; at least the last prompt token is run again."""
        common = 0
        for known, wanted in zip(self.past.tokens, prompt[:-1], strict=False):
            if known != wanted:
                break
            common += 1
        if common == 0:
            return Sequence(self.pool)
        sequence, self.past = self.past, Sequence(self.pool)
        sequence.truncate(common)
        return sequence

    def _retire(self, request: Request) -> None:
        """Takes an ended request out; its keys and values stay until the next one ends or needs the room."""
        self.running = [r for r in self.running if r is not request]
        self.waiting = deque(r for r in self.waiting if r is not request)
        if request.sequence is not None:
            self.past.release()
            self.past, request.sequence = request.sequence, None

    def _sample(self, request: Request, logits: FloatArray) -> Token:
        position = len(request.prompt) + len(request.output)
        token = sample(logits, request.params, position)
        logprobs = log_softmax(logits)
        request.output.append(token)
        if token in request.stop_ids:
            request.finish_reason = "stop"
        elif len(request.output) >= request.max_tokens:
            request.finish_reason = "length"
        return Token(request, token, float(logprobs[token]), top_of(logprobs, request.top_logprobs))


def top_of(logprobs: FloatArray, count: int) -> tuple[tuple[int, float], ...]:
    """The `count` most probable tokens, best first, ties by token id."""
    if count == 0:
        return ()
    order = np.lexsort((np.arange(len(logprobs)), -logprobs))[:count]
    return tuple((int(i), float(logprobs[i])) for i in order)


def check_length(tokens: int, context_length: int) -> None:
    """Raises InputError for a prompt that is empty or leaves no room for a token."""
    if tokens == 0:
        raise InputError("the prompt is empty; give at least one token")
    if tokens >= context_length:
        raise InputError(
            f"the prompt has {tokens} tokens, the context holds {context_length} including at least one new token; "
            "shorten the prompt or load the model with a larger context"
        )
