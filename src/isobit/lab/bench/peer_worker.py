"""The process that runs another engine: loads a model once, then does works that it is told on stdin.

Started by `peers.py` with the peer's own interpreter, so it imports nothing of Isobit. One JSON object a line:
asked `{"kind": "pp", "tokens": 512, "batch": 1, "depth": 0}` it answers `{"seconds": 0.5}` or `{"error": "…"}`;
its first line is `{"version": …, "settings": …}`. Between works it waits for its input and uses no processor.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import random
import sys
import time
from importlib import metadata
from typing import Any, TextIO

MICRO_BATCH = 512
FLASH_ON, FLASH_OFF = 1, 0
LOAD_MMAP = 1


class FailureError(Exception):
    """Something the engine could not do; told to the other side."""


class LlamaCpp:
    """What the C interfaces of llama.cpp and of ik_llama.cpp have in common."""

    def __init__(self, api: Any, options: dict[str, Any]) -> None:
        self.api = api
        self.options = options
        self.settings = options["settings"]
        self.contexts: dict[tuple[str, int, int], Any] = {}
        api.llama_backend_init()
        self.models: dict[bool, Any] = {}
        self.vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model("pp")))
        self.random = random.Random(options["seed"])

    def model(self, kind: str) -> Any:
        """The model for a kind of work, with its weights repacked while loading where the settings say so."""
        repack = kind in self.settings.get("repack", ())
        if repack not in self.models:
            path = self.options["model"]
            model = self.load(os.fsencode(path), repack)
            if not model:
                raise FailureError(f"it cannot load {path}")
            self.models[repack] = model
        return self.models[repack]

    def load(self, path: bytes, repack: bool) -> Any:
        """The model; this engine decides itself what it repacks."""
        params = self.api.llama_model_default_params()
        params.n_gpu_layers = 0
        if hasattr(params, "load_mode"):
            params.load_mode = LOAD_MMAP
        else:
            params.use_mmap = True
        return self.api.llama_model_load_from_file(path, params)

    def flash(self, params: Any) -> None:
        """Flash attention on or off."""
        params.flash_attn_type = FLASH_ON if self.settings["flash_attn"] else FLASH_OFF

    def context(self, work: dict[str, Any]) -> Any:
        """A context of just the size of a work, with `depth` tokens in it; kept for the next round."""
        key = (work["kind"], work["batch"], work["depth"])
        if key not in self.contexts:
            params = self.api.llama_context_default_params()
            params.n_ctx = work["batch"] * (work["depth"] + work["tokens"])
            params.n_batch = params.n_ubatch = max(MICRO_BATCH, work["tokens"] if work["kind"] == "pp" else 0)
            params.n_seq_max = work["batch"]
            params.n_threads = params.n_threads_batch = self.options["threads"]
            self.flash(params)
            context = self.api.llama_init_from_model(self.model(work["kind"]), params)
            if not context:
                raise FailureError(f"it cannot make a context of {params.n_ctx} tokens")
            self.contexts[key] = context
            for start in range(0, work["depth"], MICRO_BATCH):
                self.append(context, 0, start, min(MICRO_BATCH, work["depth"] - start))
        return self.contexts[key]

    def rewind(self, context: Any, sequence: int, length: int) -> None:
        """Removes what the last round has added."""
        self.api.llama_memory_seq_rm(self.api.llama_get_memory(context), sequence, length, -1)

    def run(self, work: dict[str, Any]) -> float:
        """Seconds of a work."""
        context = self.context(work)
        for sequence in range(work["batch"]):
            self.rewind(context, sequence, work["depth"])
        if work["kind"] == "pp":
            return self.append(context, 0, 0, work["tokens"])
        batch = self.api.llama_batch_init(work["batch"], 0, 1)
        ids = [[self.token() for _ in range(work["batch"])] for _ in range(work["tokens"])]
        started = time.perf_counter()
        for step, tokens in enumerate(ids):
            for sequence, token in enumerate(tokens):
                self.put(batch, sequence, token, work["depth"] + step, sequence, logits=True)
            self.decode(context, batch, work["batch"])
        seconds = time.perf_counter() - started
        self.api.llama_batch_free(batch)
        return seconds

    def append(self, context: Any, sequence: int, start: int, count: int) -> float:
        """Prefill; seconds of the call."""
        batch = self.api.llama_batch_init(count, 0, 1)
        for i in range(count):
            self.put(batch, i, self.token(), start + i, sequence, logits=i == count - 1)
        started = time.perf_counter()
        self.decode(context, batch, count)
        seconds = time.perf_counter() - started
        self.api.llama_batch_free(batch)
        return seconds

    def token(self) -> int:
        """A random token id."""
        return self.random.randrange(self.vocabulary)

    def put(self, batch: Any, i: int, token: int, position: int, sequence: int, *, logits: bool) -> None:
        """Entry `i` of a batch."""
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = logits

    def decode(self, context: Any, batch: Any, count: int) -> None:
        """One call; asking for the logits waits until they are there."""
        batch.n_tokens = count
        status = self.api.llama_decode(context, batch)
        if status != 0 or not self.api.llama_get_logits_ith(context, count - 1):
            raise FailureError(f"decode of {count} tokens gave status {status}")


class IkLlamaCpp(LlamaCpp):
    """ik_llama.cpp: an older interface, and weights repacked while loading if that is asked for."""

    def load(self, path: bytes, repack: bool) -> Any:
        """The model; repacked weights are not those of the mapped file."""
        params = self.api.llama_model_default_params()
        params.n_gpu_layers = 0
        params.repack_tensors = repack
        params.use_mmap = not repack
        return self.api.llama_model_load_from_file(path, params)

    def flash(self, params: Any) -> None:
        """Off for several sequences, with which version 0.1.5 ends in `GGML_ASSERT(S > 0)`."""
        params.flash_attn = self.settings["flash_attn"] and params.n_seq_max == 1

    def rewind(self, context: Any, sequence: int, length: int) -> None:
        """Under its older name, which the package does not wrap."""
        remove = self.api._lib.llama_kv_cache_seq_rm
        remove.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
        remove.restype = ctypes.c_bool
        remove(context, sequence, length, -1)


def start(options: dict[str, Any]) -> tuple[LlamaCpp, str]:
    """The engine and its version."""
    module = options["module"]
    if module == "llama_cpp":
        engine: LlamaCpp = LlamaCpp(importlib.import_module("llama_cpp.llama_cpp"), options)
    else:
        engine = IkLlamaCpp(importlib.import_module(f"{module}._ctypes_api"), options)
    try:
        return engine, metadata.version(module.replace("_", "-") + "-python")
    except metadata.PackageNotFoundError:  # run from its sources
        return engine, str(importlib.import_module(module).__version__)


def main() -> None:
    """Answers until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")  # the engines' own prints go to stderr
    os.dup2(2, 1)
    try:
        engine, version = start(json.loads(sys.argv[1]))
        tell(answers, {"version": version, "settings": engine.settings})
        for line in sys.stdin:
            tell(answers, {"seconds": engine.run(json.loads(line))})
    except (FailureError, ImportError, OSError) as error:
        tell(answers, {"error": str(error)})
        sys.exit(1)


def tell(answers: TextIO, message: dict[str, Any]) -> None:
    """One line, at once."""
    print(json.dumps(message), file=answers, flush=True)


if __name__ == "__main__":
    main()
