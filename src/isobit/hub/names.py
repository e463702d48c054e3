"""From what a user calls a model to the path of its file. Never touches the network."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from isobit.errors import DownloadError, InputError, ModelNotFoundError
from isobit.hub.catalogue import CATALOGUE, Entry
from isobit.hub.download import pulled_path
from isobit.hub.folder import verified_sha256
from isobit.hub.selection import PREFIX


def resolve(text: str) -> Path:
    """The file of a model given by path, by a name of the catalogue that was pulled, or as `hf:org/repo…`.

    A name of the catalogue wins over a file of that name in the current folder; write `./NAME` for the file.
    Raises ModelNotFoundError (with near matches, or how to pull), InputError, DownloadError where a pulled
    file is no longer what was pulled.
    """
    if not text:
        raise InputError("the model name is empty; give a path, a pulled name (`isobit pull --list`) or hf:ORG/REPO")
    if text.startswith(PREFIX):
        from isobit.hub.huggingface import resolve_from_hub

        return resolve_from_hub(text)
    if text in CATALOGUE:
        return _resolve_entry(CATALOGUE[text])
    if os.path.exists(text):
        return Path(text)
    raise not_found(text)


def not_found(text: str) -> ModelNotFoundError:
    """The error for a name that is neither in the catalogue nor a file, with what is near it."""
    path = Path(text)
    if len(path.parts) > 1 or path.suffix:
        near = difflib.get_close_matches(path.name, _files_beside(path), n=3)
        hint = f"near matches in its folder: {', '.join(near)}" if near else "check the path"
        return ModelNotFoundError(f"there is no file {text}; {hint}")
    near = difflib.get_close_matches(text.lower(), list(CATALOGUE), n=3, cutoff=0.5)
    hint = f"near matches: {', '.join(near)}; " if near else ""
    return ModelNotFoundError(f"there is no model or file {text!r}; {hint}`isobit pull --list` shows all names")


def _resolve_entry(entry: Entry) -> Path:
    path = pulled_path(entry)
    sha256 = verified_sha256(path)
    if sha256 is None:
        raise ModelNotFoundError(f"{entry.name} has not been pulled; run `isobit pull {entry.name}`")
    if sha256 != entry.sha256:
        raise DownloadError(
            f"{path} has sha256 {sha256}, expected {entry.sha256}: it is damaged or was changed; "
            f"run `isobit pull {entry.name}` to fetch it again"
        )
    return path


def _files_beside(path: Path) -> list[str]:
    try:
        return sorted(child.name for child in path.parent.iterdir())
    except (OSError, ValueError):
        return []
