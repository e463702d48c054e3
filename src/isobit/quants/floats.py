"""F32, F16 and BF16: weights stored as numbers, read exactly from uint8 [bytes] to float32 [weights]."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isobit.quants.blocks import Bytes, Floats


def _f32(data: Bytes) -> Floats:
    # Viewed as integers first: no conversion may touch the bits of a NaN.
    return data.view("<u4").astype(np.uint32).view(np.float32)


def _f16(data: Bytes) -> Floats:
    values: Floats = data.view("<f2").astype(np.float32)
    return values


def _bf16(data: Bytes) -> Floats:
    widened = data.view("<u2").astype(np.uint32)
    values: Floats = (widened << np.uint32(16)).view(np.float32)
    return values


READERS: dict[str, Callable[[Bytes], Floats]] = {"F32": _f32, "F16": _f16, "BF16": _bf16}
