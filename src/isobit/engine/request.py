"""One request and what has become of it so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from isobit.engine.pages import Sequence
from isobit.sampling import SamplingParams

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(eq=False)
class Request:
    """Prompt token ids and settings; the engine fills in the rest.

    `stop_ids` end the output (the stop token itself is part of it). `top_logprobs`: how many of the most
    probable tokens are reported at each step.
    """

    prompt: tuple[int, ...]
    params: SamplingParams
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    top_logprobs: int = 0
    sequence: Sequence | None = None
    output: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    def cached(self) -> Sequence:
        """The sequence of a running request."""
        assert self.sequence is not None, "the request is not running"
        return self.sequence

    def pending(self) -> list[int]:
        """Tokens that are known but not yet in the cache."""
        known = len(self.sequence) if self.sequence else 0
        if known < len(self.prompt):
            return [*self.prompt[known:], *self.output]
        return self.output[known - len(self.prompt) :]
