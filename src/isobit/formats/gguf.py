"""Reading GGUF model files, versions 2 and 3, little-endian, whole or split.

Source: the GGUF format document of the ggml project. The reader is strict: what a file says is checked
against the file's size and the rest of the file before it is used. Tensor data is mapped, not copied, so a
file must not be shortened while it is open: touching a page that is gone ends the process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType

from isobit.errors import InputError
from isobit.formats.gguf_part import Part
from isobit.formats.gguf_split import merge_metadata, merge_tensors, read_parts
from isobit.formats.gguf_tensors import GGUFTensor, require_supported

__all__ = ["GGUFFile", "GGUFTensor", "open_gguf", "require_supported"]


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Opens a GGUF file; any part of a split model opens all of its parts.

    Raises FormatError (field and byte offset of the fault) for a file that breaks the format's rules,
    UnsupportedError for an array of arrays, ModelNotFoundError for a missing file, InputError for one that
    cannot be read. Tensors of unsupported weight types are listed; see `require_supported`.
    """
    return GGUFFile(read_parts(Path(path)))


class GGUFFile:
    """An open model file; a context manager.

    The map of a file lives as long as any view of a tensor's data, so views stay valid after `close`.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts: Sequence[Part] | None = parts
        self._digest: str | None = None
        self._tensors = MappingProxyType(merge_tensors(parts))
        self.metadata: Mapping[str, object] = MappingProxyType(merge_metadata(parts))
        self.paths: tuple[Path, ...] = tuple(part.path for part in parts)
        self.version: int = parts[0].version
        self.alignment: int = parts[0].alignment
        self.num_bytes: int = sum(len(part.buffer) for part in parts)

    @property
    def tensors(self) -> Mapping[str, GGUFTensor]:
        """All tensors by name, in the order of the file. Raises InputError when closed."""
        self._open_parts()
        return self._tensors

    def digest(self) -> str:
        """sha256 (hexadecimal) over the bytes of the file, or of all parts in order; computed once."""
        if self._digest is None:
            digest = hashlib.sha256()
            for part in self._open_parts():
                digest.update(part.buffer)
            self._digest = digest.hexdigest()
        return self._digest

    def close(self) -> None:
        """Lets go of the files; closing twice is fine. Views taken before stay valid."""
        self._parts = None
        self._tensors = MappingProxyType({})

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._parts is None else f"{len(self._tensors)} tensors"
        return f"<GGUFFile {self.paths[0].name!r} ({state})>"

    def _open_parts(self) -> Sequence[Part]:
        if self._parts is None:
            raise InputError(f"{self.paths[0].name!r} is closed; open it again")
        return self._parts
