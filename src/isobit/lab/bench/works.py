"""What is measured: pieces of work that every engine does in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

SEED = 1
"""Of the token ids; which tokens they are does not matter to speed, but the engines are given the same."""


@dataclass(frozen=True)
class Work:
    """One thing to measure.

    `pp`: prefill of `tokens` tokens into an empty cache, logits of the last one. `tg`: `tokens` steps that each
    append one token to `batch` sequences and give its logits, from `depth` tokens in the cache on.
    """

    kind: Literal["pp", "tg"]
    tokens: int
    batch: int = 1
    depth: int = 0

    @property
    def label(self) -> str:
        """Short name, such as `tg 64, batch 8`."""
        batch = f", batch {self.batch}" if self.batch > 1 else ""
        depth = f", after {self.depth}" if self.depth else ""
        return f"{self.kind} {self.tokens}{batch}{depth}"

    @property
    def all_tokens(self) -> int:
        """Tokens that a run processes, of all sequences together."""
        return self.tokens * self.batch

    @property
    def context(self) -> int:
        """Tokens in the cache of each sequence at the end."""
        return self.depth + self.tokens


def make_works(pp: int, tg: int, batches: Sequence[int], depths: Sequence[int]) -> list[Work]:
    """Prefill, decode at each batch size, decode of one sequence at each depth."""
    works = [Work("pp", pp)]
    works += [Work("tg", tg, batch) for batch in dict.fromkeys((1, *batches))]
    works += [Work("tg", tg, 1, depth) for depth in dict.fromkeys(depths) if depth]
    return works
