"""Settings of sampling, checked when they are made."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isobit.errors import InputError

SEED_MIN, SEED_MAX = -(2**63), 2**64 - 1


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen.

    temperature: 0 is greedy. top_k: 0 keeps all. top_p: 1 keeps all. seed: any integer from −2^63 to 2^64−1;
    each is a different stream. The draw at a position depends on the seed and that position, on nothing else.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        _check_number("temperature", self.temperature)
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise InputError(f"temperature is {self.temperature}; expected a finite number, 0 (greedy) or more")
        if 0 < self.temperature < 1e-3:
            raise InputError(f"temperature is {self.temperature}; expected 0 (greedy) or at least 0.001")
        _check_integer("top_k", self.top_k)
        if self.top_k < 0:
            raise InputError(f"top_k is {self.top_k}; expected 0 (all tokens) or more")
        _check_number("top_p", self.top_p)
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}; expected more than 0, at most 1 (all tokens)")
        _check_integer("seed", self.seed)
        if not SEED_MIN <= self.seed <= SEED_MAX:
            raise InputError(f"seed is {self.seed}; expected an integer from -2^63 to 2^64-1")


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} is {value!r}; expected a number")


def _check_integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} is {value!r}; expected an integer")
