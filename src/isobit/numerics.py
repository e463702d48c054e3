"""The numerics id: which bits a setting gives. See docs/numerics.md."""

from __future__ import annotations

from isobit.errors import InputError

VERSION = "isobit-1"
ACTIVATIONS = ("int8", "int16")
CACHES = ("f16", "f32")


def numerics_id(activations: str = "int8", cache: str = "f16") -> str:
    """For example `isobit-1/int8/kv-f16`. Raises InputError for unknown settings."""
    if activations not in ACTIVATIONS:
        raise InputError(f"activations is {activations!r}; expected one of {', '.join(ACTIVATIONS)}")
    if cache not in CACHES:
        raise InputError(f"cache is {cache!r}; expected one of {', '.join(CACHES)}")
    return f"{VERSION}/{activations}/kv-{cache}"


NUMERICS = numerics_id()
