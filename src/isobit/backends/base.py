"""What every backend offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from isobit.ops import Batch, KVCache

Activations = Literal["int8", "int16"]

Observer: TypeAlias = Callable[[int, npt.NDArray[np.float32]], None]
"""Called after each operation with its index and the float32 [tokens, width] it wrote (a view, valid in the call)."""


Progress: TypeAlias = Callable[[str, int, int], None]
"""Called while weights are packed with a stage, the steps done and the steps in all."""


class Runner(Protocol):
    """A program made ready by a backend (weights packed)."""

    def forward(self, batch: Batch, cache: KVCache, observer: Observer | None = None) -> npt.NDArray[np.float32]:
        """Runs the program; returns the logits, float32 [wanted rows, vocabulary].

        Raises NumericsError, naming operation, layer and token, when a non-finite value appears.
        """
        ...

    def close(self) -> None:
        """Ends threads and releases packed weights; calling it twice is fine."""
        ...
