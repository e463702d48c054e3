"""Median and spread of a few measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of some values, and the values in the order of their rounds."""

    median: float
    min: float
    max: float
    rounds: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values), tuple(values))

    def over(self, other: Spread) -> Spread:
        """Ratios round by round: what disturbs a whole round disturbs both sides of its ratio."""
        return Spread.of([a / b for a, b in zip(self.rounds, other.rounds, strict=True)])

    def times(self, factor: float) -> Spread:
        """Every value times a positive factor."""
        return Spread.of([value * factor for value in self.rounds])

    def json(self) -> dict[str, object]:
        """As JSON values."""
        return {**asdict(self), "rounds": list(self.rounds)}
