"""A loaded model: text in, text out, and the logits in between."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
import numpy.typing as npt

from isobit.backends.base import Activations, Observer, Progress, Runner
from isobit.backends.cpu import CpuRunner
from isobit.engine import Engine, Request, Token
from isobit.engine.engine import check_length
from isobit.engine.pages import Sequence as CachedSequence
from isobit.engine.pages import pages_for
from isobit.engine.request import FinishReason
from isobit.errors import FormatError, InputError
from isobit.formats.checkpoint import Checkpoint, load_checkpoint
from isobit.models import build_program
from isobit.numerics import numerics_id
from isobit.ops import CacheType, KVCache, Program
from isobit.sampling import SamplingParams
from isobit.text.detokenizer import Detokenizer
from isobit.text.template import ChatTemplate, Clock
from isobit.text.tokenizer import Tokenizer, load_tokenizer

Message = Mapping[str, object]
Prompt = str | Sequence[Message]
Backend = Literal["cpu", "reference"]

DEFAULT_CACHE_TOKENS = 32768
LOGITS_CHUNK = 128


@dataclass(frozen=True)
class Timings:
    """Wall-clock seconds: to the first token (prefill included), and in all."""

    first_token: float
    total: float


@dataclass(frozen=True)
class Completion:
    """The answer to a request. `logprobs[i]` is the log-probability of `token_ids[i]` before sampling settings."""

    text: str
    token_ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason
    prompt_tokens: int
    seed: int
    numerics: str
    timings: Timings
    top_logprobs: list[tuple[tuple[int, float], ...]] = field(default_factory=list)


@dataclass(frozen=True)
class Chunk:
    """A piece of a streamed answer: whole characters only, possibly none."""

    text: str
    token: int
    logprob: float
    finish_reason: FinishReason | None


class Model:
    """A model with its tokenizer and engine. Use as a context manager, or call `close`.

    One thread at a time runs it; calls from several threads take turns.
    """

    def __init__(
        self,
        path: Path,
        *,
        activations: Activations = "int8",
        cache: CacheType = "f16",
        threads: int | None = None,
        isa: str | None = None,
        backend: Backend = "cpu",
        context: int | None = None,
        chunk: int = 512,
        progress: Progress | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = path
        self._clock = clock
        self.activations: Activations = activations
        self.cache_type: CacheType = cache
        self.numerics = numerics_id(activations, cache)
        self.checkpoint: Checkpoint = load_checkpoint(path)
        try:
            self.program: Program = build_program(self.checkpoint)
            self.context_length = _checked_context(context, self.program.context_length)
            # The tokenizer is made on the side while weights are packed, which needs no Python.
            with ThreadPoolExecutor(1) as side:
                tokenizer = side.submit(load_tokenizer, self.checkpoint.metadata)
                self.runner: Runner = make_runner(self.program, backend, activations, threads, isa, progress)
            self.tokenizer: Tokenizer = tokenizer.result()
            _check_vocabulary(self.tokenizer.vocabulary_size, self.program.vocabulary_size)
            self.engine = self._new_engine(chunk)
        except BaseException:
            self.checkpoint.close()
            raise
        self._lock = threading.RLock()
        self._template: ChatTemplate | None = None

    def _new_engine(self, chunk: int) -> Engine:
        p, pages = self.program, pages_for(self.context_length)
        cache = KVCache.allocate(p.num_layers, pages, p.num_kv_heads, p.head_dim, self.cache_type)
        return Engine(self.runner, cache, self.context_length, chunk)

    def variant(self, *, threads: int | None = None, isa: str | None = None, chunk: int = 512) -> Model:
        """The same model under other settings that change no bit, sharing file and packed weights.

        Close it like a model of its own. Raises InputError for a model on the reference backend.
        """
        if not isinstance(self.runner, CpuRunner):
            raise InputError("only a model on the CPU backend has variants; load it with backend='cpu'")
        other = copy.copy(self)
        other.checkpoint = load_checkpoint(self.path)
        other.runner = self.runner.variant(threads=threads, isa=isa)
        other.engine = other._new_engine(chunk)
        other._lock = threading.RLock()
        return other

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends threads and closes the file; calling it twice is fine."""
        self.runner.close()
        self.checkpoint.close()

    @property
    def template(self) -> ChatTemplate:
        """The file's chat template. Raises TemplateError where it has none."""
        if self._template is None:
            self._template = ChatTemplate.from_metadata(self.checkpoint.metadata, self.tokenizer, self._clock)
        return self._template

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a raw text, or of messages through the chat template."""
        if isinstance(prompt, str):
            if not prompt:
                raise InputError("the prompt is empty; give at least one character")
            return self.tokenizer.encode(prompt)
        text = self.template.render(prompt)
        ids = self.tokenizer.encode(text, add_special=False, parse_special=True)
        # Templates of some files write the beginning-of-sequence token themselves, others leave it to the tokenizer.
        start = [i for i in self.tokenizer.encode("")[:1] if i == self.tokenizer.bos_id]
        return ids if ids[:1] == start else start + ids

    def generate(
        self,
        prompt: Prompt | Sequence[int],
        *,
        max_tokens: int = 256,
        params: SamplingParams | None = None,
        top_logprobs: int = 0,
        **settings: float | int,
    ) -> Completion:
        """Completes a raw text, chat messages or token ids.

        Settings are those of `SamplingParams` (temperature, top_k, top_p, seed), by keyword or as `params`.
        Raises InputError for settings or prompts that cannot be used.
        """
        return self.generate_batch(
            [prompt], max_tokens=max_tokens, params=params, top_logprobs=top_logprobs, **settings
        )[0]

    def generate_batch(
        self,
        prompts: Sequence[Prompt | Sequence[int]],
        *,
        max_tokens: int = 256,
        params: SamplingParams | None = None,
        top_logprobs: int = 0,
        **settings: float | int,
    ) -> list[Completion]:
        """Completes several prompts at once; each answer is the one it gets alone, whatever its place in the list."""
        with self._lock:
            started = time.perf_counter()
            requests = [self._request(p, max_tokens, params, settings, top_logprobs) for p in prompts]
            tokens: dict[Request, list[Token]] = {request: [] for request in requests}
            first: dict[Request, float] = {}
            try:
                for request in requests:
                    self.engine.submit(request)
                while self.engine.busy:
                    for token in self.engine.step():
                        tokens[token.request].append(token)
                        first.setdefault(token.request, time.perf_counter() - started)
            finally:
                for request in requests:
                    self.engine.cancel(request)
            total = time.perf_counter() - started
            return [self._completion(r, tokens[r], Timings(first[r], total)) for r in requests]

    def stream(
        self,
        prompt: Prompt | Sequence[int],
        *,
        max_tokens: int = 256,
        params: SamplingParams | None = None,
        **settings: float | int,
    ) -> Iterator[Chunk]:
        """Yields the answer piece by piece; closing the iterator ends the request."""
        request = self._request(prompt, max_tokens, params, settings, 0)
        with self._lock:
            self.engine.submit(request)
        return self._stream(request)

    def _stream(self, request: Request) -> Iterator[Chunk]:
        detokenizer = Detokenizer(self.tokenizer)
        try:
            while request.finish_reason is None:
                with self._lock:
                    tokens = [token for token in self.engine.step() if token.request is request]
                for token in tokens:
                    text = "" if token.id in request.stop_ids else detokenizer.push(token.id)
                    if request.finish_reason is not None:
                        text += detokenizer.finish()
                    yield Chunk(text, token.id, token.logprob, request.finish_reason)
        finally:
            with self._lock:
                self.engine.cancel(request)

    def logits(
        self, token_ids: Sequence[int], *, chunk: int | None = None, observer: Observer | None = None
    ) -> npt.NDArray[np.float32]:
        """Logits after each token, float32 [tokens, vocabulary]. `chunk`: tokens per pass; it changes no bit."""
        parts = list(self.iter_logits(token_ids, chunk=chunk or len(token_ids) or 1, observer=observer))
        return np.concatenate(parts)

    def iter_logits(
        self, token_ids: Sequence[int], *, chunk: int = LOGITS_CHUNK, observer: Observer | None = None
    ) -> Iterator[npt.NDArray[np.float32]]:
        """The same chunk by chunk, for texts whose logits do not fit in memory at once."""
        ids = self.check_tokens(token_ids)
        if chunk < 1:
            raise InputError(f"chunk is {chunk}; expected at least 1 token")
        with self._lock:
            self.engine.past.release()  # make room: the pool may be no larger than the context
            sequence = CachedSequence(self.engine.pool)
            try:
                for start in range(0, len(ids), chunk):
                    part = ids[start : start + chunk]
                    yield self.engine.forward([(sequence, part, list(range(len(part))))], observer)
            finally:
                sequence.release()

    def check_tokens(self, token_ids: Sequence[int]) -> list[int]:
        """Token ids as a list. Raises InputError for none, too many, or one outside the vocabulary."""
        ids = [int(i) for i in token_ids]
        check_length(len(ids), self.context_length + 1)
        for token in ids:
            if not 0 <= token < self.program.vocabulary_size:
                raise InputError(f"token id {token} is outside 0 to {self.program.vocabulary_size - 1}")
        return ids

    def _request(
        self,
        prompt: Prompt | Sequence[int],
        max_tokens: int,
        params: SamplingParams | None,
        settings: Mapping[str, float | int],
        top_logprobs: int,
    ) -> Request:
        unknown = settings.keys() - SamplingParams.__dataclass_fields__.keys()
        if unknown:
            raise InputError(
                f"unknown setting {sorted(unknown)[0]!r}; known are {', '.join(SamplingParams.__dataclass_fields__)}"
            )
        is_ids = not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], int | np.integer)
        ids = self.check_tokens(prompt) if is_ids else self.encode(prompt)  # type: ignore[arg-type]
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int):
            raise InputError(f"max_tokens is {max_tokens!r}; expected an integer")
        chosen = replace(params or SamplingParams(), **settings)  # type: ignore[arg-type]
        return Request(tuple(ids), chosen, max_tokens, self.tokenizer.stop_ids, top_logprobs)

    def _completion(self, request: Request, tokens: list[Token], timings: Timings) -> Completion:
        assert request.finish_reason is not None
        visible = [i for i in request.output if i not in request.stop_ids]
        return Completion(
            self.tokenizer.decode(visible),
            list(request.output),
            [token.logprob for token in tokens],
            request.finish_reason,
            len(request.prompt),
            request.params.seed,
            self.numerics,
            timings,
            [token.top for token in tokens] if request.top_logprobs else [],
        )


def make_runner(
    program: Program,
    backend: Backend,
    activations: Activations,
    threads: int | None,
    isa: str | None,
    progress: Progress | None = None,
) -> Runner:
    """A program made ready by a backend, by name."""
    if activations not in ("int8", "int16"):
        raise InputError(f"activations is {activations!r}; expected int8 or int16")
    if backend == "cpu":
        return CpuRunner(program, activations, threads, isa, progress=progress)
    if backend == "reference":
        from isobit.backends.reference import ReferenceRunner

        return ReferenceRunner(program, activations)
    raise InputError(f"backend is {backend!r}; expected cpu or reference")


def _check_vocabulary(tokens: int, rows: int) -> None:
    if tokens != rows:
        raise FormatError(
            f"the vocabulary has {tokens} tokens, the embedding {rows} rows; they must be equal",
            field="token_embd.weight",
        )


def _checked_context(context: int | None, trained: int) -> int:
    if context is None:
        return min(trained, DEFAULT_CACHE_TOKENS)
    if not 1 < context <= trained:
        raise InputError(f"context is {context}; this model takes 2 to {trained} tokens")
    return context
