"""`make demo`: an answer, and then the point of it: the same bits however it was computed."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from isobit.cli.common import progress_bars

if TYPE_CHECKING:
    from isobit.model import Model, Prompt

MODEL = "smollm2-135m"
QUESTION = "What is the capital of France, and what is it known for?"
ANSWER_TOKENS = 60
COMPARED_TOKENS = 4  # the scalar kernels are slow
STRANGERS = ["Hello!", "Once upon a time", "def main():", "2 + 2 =", "The weather today is", "List three colours:", "A"]


def main() -> int:
    """Pulls the model if needed, streams an answer, and compares digests."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.parse_args()
    import isobit
    from isobit import hub

    with progress_bars(True) as bars:
        path = hub.pull(MODEL, bars)
    started = time.perf_counter()
    with progress_bars(True, "operations") as bars:
        loaded = isobit.load(str(path), progress=bars)
    with loaded as model:
        print(f"ready after {time.perf_counter() - started:.1f} s, numerics {model.numerics}\n", file=sys.stderr)
        print(f"> {QUESTION}\n")
        for chunk in model.stream([{"role": "user", "content": QUESTION}], max_tokens=ANSWER_TOKENS, temperature=0):
            print(chunk.text, end="", flush=True)
        print("\n\nThe same request, computed in other ways (digest of its tokens and logprobs):\n")
        return _compare(model)


def _compare(model: Model) -> int:
    from isobit import _native

    digests = []
    ways: list[tuple[str, Callable[[], str]]] = [
        ("alone", lambda: _digest(model)),
        (f"in a batch of {len(STRANGERS)} strangers", lambda: _digest(model, strangers=True)),
        ("in prefill chunks of 7 tokens", lambda: _digest(model, chunk=7)),
        ("on 1 thread", lambda: _digest(model, threads=1)),
        ("on 2 threads", lambda: _digest(model, threads=2)),
        *((f"with {isa} instructions", lambda isa=isa: _digest(model, isa=isa)) for isa in _native.available_isas()),
    ]
    for name, way in ways:
        digests.append(way())
        print(f"  {digests[-1]}  {name}", flush=True)
    agree = len(set(digests)) == 1
    print(f"\n{'all' if agree else 'NOT all'} {len(digests)} digests agree")
    return 0 if agree else 1


def _digest(
    model: Model, *, strangers: bool = False, chunk: int = 512, threads: int | None = None, isa: str | None = None
) -> str:
    """The digest of the request's tokens and logprobs under other settings of the engine."""
    import numpy as np

    with model.variant(threads=threads, isa=isa, chunk=chunk) as other:
        prompts: list[Prompt | Sequence[int]] = [*STRANGERS] if strangers else []
        prompts.append([{"role": "user", "content": QUESTION}])
        done = other.generate_batch(prompts, max_tokens=COMPARED_TOKENS, temperature=0.8, seed=7)[-1]
    words = np.array(done.token_ids, "<i4").tobytes() + np.array(done.logprobs, "<f4").tobytes()
    return hashlib.sha256(words).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
