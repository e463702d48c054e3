"""A model file as the rest of Isobit sees it: architecture, typed metadata, tensors."""

from __future__ import annotations

import difflib
import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, overload

from isobit.errors import FormatError
from isobit.formats.gguf import GGUFFile, GGUFTensor, open_gguf, require_supported

T = TypeVar("T")
D = TypeVar("D")


class _Required(enum.Enum):
    REQUIRED = "required"


REQUIRED = _Required.REQUIRED


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model's architecture, metadata and tensors. `file` is the open file behind them."""

    architecture: str
    metadata: Mapping[str, object]
    tensors: Mapping[str, GGUFTensor]
    file: GGUFFile

    @overload
    def key(self, name: str, kind: type[T]) -> T: ...
    @overload
    def key(self, name: str, kind: type[T], default: D) -> T | D: ...
    def key(self, name: str, kind: type[T], default: object = REQUIRED) -> object:
        """The metadata value `{architecture}.{name}`; see `value`."""
        return self.value(f"{self.architecture}.{name}", kind, default)

    @overload
    def value(self, name: str, kind: type[T]) -> T: ...
    @overload
    def value(self, name: str, kind: type[T], default: D) -> T | D: ...
    def value(self, name: str, kind: type[T], default: object = REQUIRED) -> object:
        """The metadata value with that full name, of exactly the type `kind`.

        kind: bool, int, float, str, list (of str) or numpy.ndarray; an int is not taken for a float nor a
        bool for an int. Raises FormatError for a wrong type, or a missing key where no `default` is given.
        """
        if name not in self.metadata:
            if default is REQUIRED:
                raise FormatError(
                    f"is missing, expected {_article(kind)}; the file is incomplete or of an old converter"
                    + _near(name, self.metadata),
                    field=f"metadata {name!r}",
                )
            return default
        found = self.metadata[name]
        if type(found) is not kind:
            seen = f" {found!r:.60}" if isinstance(found, (bool, int, float, str)) else ""
            raise FormatError(
                f"is {_article(type(found))}{seen}, expected {_article(kind)}; convert the model again",
                field=f"metadata {name!r}",
            )
        return found

    def tensor(self, name: str) -> GGUFTensor:
        """The tensor; FormatError when it is missing, UnsupportedError for an unsupported weight type."""
        found = self.optional_tensor(name)
        if found is None:
            raise FormatError(
                f"is missing; the file is incomplete or not of architecture {self.architecture!r}"
                + _near(name, self.tensors),
                field=f"tensor {name!r}",
            )
        return found

    def optional_tensor(self, name: str) -> GGUFTensor | None:
        """The tensor or None; UnsupportedError for an unsupported weight type."""
        found = self.tensors.get(name)
        return None if found is None else require_supported(found)

    def digest(self) -> str:
        """sha256 (hexadecimal) over the bytes of the file, or of all parts in order; computed once."""
        return self.file.digest()

    def close(self) -> None:
        """Closes the file; closing twice is fine. Tensors taken before stay valid."""
        self.file.close()


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Opens a model file; raises what `open_gguf` raises, FormatError without `general.architecture`."""
    file = open_gguf(path)
    architecture = file.metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise FormatError(
            f"is {architecture!r:.60}, expected an architecture's name such as 'llama' (in {file.paths[0]})",
            field="metadata 'general.architecture'",
        )
    return Checkpoint(architecture, file.metadata, file.tensors, file)


def _article(kind: type) -> str:
    names = {int: "an integer", float: "a float", bool: "a bool", str: "a string", list: "a list of strings"}
    return names.get(kind, f"a {kind.__name__}")


def _near(name: str, names: Mapping[str, object]) -> str:
    matches = difflib.get_close_matches(name, list(names), n=3)
    return f" (near matches: {', '.join(matches)})" if matches else ""
