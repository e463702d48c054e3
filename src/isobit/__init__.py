"""Isobit: quantized language models whose output is a pure function of their input.

>>> model = isobit.load("smollm2-135m")
>>> model.generate("The capital of France is", max_tokens=8, temperature=0).text
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isobit.errors import IsobitError
from isobit.numerics import NUMERICS, numerics_id

if TYPE_CHECKING:
    from isobit.model import Completion, Model
    from isobit.sampling import SamplingParams

__version__ = "0.1.0"
__all__ = [
    "NUMERICS",
    "Completion",
    "IsobitError",
    "Model",
    "SamplingParams",
    "load",
    "numerics_id",
]


def load(name_or_path: str, **settings: Any) -> Model:
    """Loads a model by path or by the name it was pulled under.

    Settings: activations ("int8" or "int16"), cache ("f16" or "f32"), threads, isa, backend ("cpu" or
    "reference"), context (tokens), chunk (prompt tokens per step), progress (called with stage, done, total),
    clock (what a chat template gets when it asks for the date). Of these only activations and cache, and the
    prompt that clock leads to, have a say in the bits.
    Raises ModelNotFoundError, FormatError, UnsupportedError or InputError.
    """
    from isobit.hub import resolve
    from isobit.model import Model

    return Model(resolve(name_or_path), **settings)


def __getattr__(name: str) -> object:
    """Imports the public classes when they are first asked for."""
    if name in ("Model", "Completion"):
        from isobit import model

        return getattr(model, name)
    if name == "SamplingParams":
        from isobit.sampling import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'isobit' has no attribute {name!r}")
