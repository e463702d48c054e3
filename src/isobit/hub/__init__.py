"""Getting models: the catalogue, downloads into the models folder, and names turned into paths."""

from __future__ import annotations

from pathlib import Path

from isobit.errors import InputError
from isobit.hub.catalogue import CATALOGUE, Entry
from isobit.hub.download import is_pulled, pull_entry, pulled_path
from isobit.hub.folder import Progress, models_folder, no_progress
from isobit.hub.names import not_found, resolve
from isobit.hub.selection import PREFIX

__all__ = ["CATALOGUE", "Entry", "Progress", "is_pulled", "models_folder", "pull", "pulled_path", "resolve"]


def pull(name: str, progress: Progress | None = None) -> Path:
    """Downloads a model of the catalogue or of the hub (`hf:…`) unless it is there; returns its path.

    progress: called with a stage, the bytes done and the bytes in all. Raises ModelNotFoundError for an
    unknown name, DownloadError for a download that failed (nothing partial is kept), InputError.
    """
    if name.startswith(PREFIX):
        from isobit.hub.huggingface import pull_from_hub

        return pull_from_hub(name, progress)
    if name in CATALOGUE:
        return pull_entry(CATALOGUE[name], progress or no_progress)
    if "/" in name or name.endswith(".gguf"):
        raise InputError(f"{name!r} cannot be pulled; expected a name (`isobit pull --list`) or hf:ORG/REPO")
    raise not_found(name)
