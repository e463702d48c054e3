"""Model file formats: from a path to a `Checkpoint` of metadata and tensors."""

from isobit.formats.checkpoint import REQUIRED, Checkpoint, load_checkpoint
from isobit.formats.gguf import GGUFFile, GGUFTensor, open_gguf, require_supported

__all__ = [
    "REQUIRED",
    "Checkpoint",
    "GGUFFile",
    "GGUFTensor",
    "load_checkpoint",
    "open_gguf",
    "require_supported",
]
