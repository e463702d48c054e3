"""Model architectures: each turns a checkpoint into a program."""

from __future__ import annotations

from collections.abc import Callable

from isobit.errors import UnsupportedError
from isobit.formats.checkpoint import Checkpoint
from isobit.models import gemma3, llama, qwen2
from isobit.ops import Program

ARCHITECTURES: dict[str, Callable[[Checkpoint], Program]] = {
    "llama": llama.build,
    "qwen2": qwen2.build,
    "gemma3": gemma3.build,
}


def build_program(checkpoint: Checkpoint) -> Program:
    """The program of a checkpoint. Raises UnsupportedError for an architecture that is not known."""
    build = ARCHITECTURES.get(checkpoint.architecture)
    if build is None:
        raise UnsupportedError(
            f"architecture {checkpoint.architecture!r} is not supported; supported are {', '.join(ARCHITECTURES)}"
        )
    return build(checkpoint)
