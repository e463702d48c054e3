"""Models of the Hugging Face hub, fetched with the optional package huggingface-hub.

They are kept in the models folder as `hf/ORG/REPO@REVISION/FILE`, each with a marker of its sha256, so that
using one later needs neither the network nor the package.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from isobit.errors import DownloadError, InputError, ModelNotFoundError
from isobit.hub.folder import (
    Progress,
    marker_of,
    models_folder,
    no_progress,
    recorded_sha256,
    sha256_of,
    verified_sha256,
    write_marker,
)
from isobit.hub.selection import HubReference, parse_reference, select_files

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo


def pull_from_hub(text: str, progress: Progress | None = None) -> Path:
    """Fetches what `hf:org/repo[@revision][:file-or-quant]` names; returns the path of its (first) file.

    Files that are there with the hub's sha256 are not fetched again. Without `progress` nothing is shown.
    Raises InputError, ModelNotFoundError or DownloadError; InputError too where huggingface-hub is missing.
    """
    reference = parse_reference(text)
    info = _model_info(reference)
    expected = {file.rfilename: file.lfs.sha256 if file.lfs else None for file in info.siblings or []}
    names = select_files(expected, reference)
    folder = hub_folder(reference)
    with _progress_bars(progress is not None):
        for name in names:
            _fetch(reference, info.sha, name, expected[name], folder, progress or no_progress)
    return folder / names[0]


def resolve_from_hub(text: str) -> Path:
    """The path of a model that was pulled from the hub before; no network. Raises ModelNotFoundError."""
    reference = parse_reference(text)
    folder = hub_folder(reference)
    files = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if marker_of(p).exists()]
    if not files:
        raise ModelNotFoundError(f"{text} has not been pulled; run `isobit pull {text}`")
    try:
        names = select_files(files, reference)
    except ModelNotFoundError as error:
        raise ModelNotFoundError(f"not pulled: {error}; run `isobit pull {text}`") from error
    for name in names:
        _check_unchanged(folder / name, text)
    return folder / names[0]


def hub_folder(reference: HubReference) -> Path:
    """Where the files of a repository at a revision are kept."""
    org, repo = reference.repo.split("/")
    return models_folder() / "hf" / org / f"{repo}@{reference.revision.replace('/', '--')}"


def _check_unchanged(path: Path, text: str) -> None:
    """A file that differs from its marker was changed or cut after it was pulled: it is not used."""
    recorded = recorded_sha256(path)
    if recorded is None or verified_sha256(path) != recorded:
        raise DownloadError(f"{path} is not the file that was pulled; run `isobit pull {text}` again")


def _model_info(reference: HubReference) -> ModelInfo:
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise InputError(
            f"{reference} needs the package huggingface-hub; install it with `pip install 'isobit[hub]'`"
        ) from error
    with _hub_errors(reference):
        return HfApi().model_info(reference.repo, revision=reference.revision, files_metadata=True)


def _fetch(
    reference: HubReference,
    commit: str | None,
    name: str,
    sha256: str | None,
    folder: Path,
    progress: Progress,
) -> None:
    """Fetches one file at a commit and checks its sha256 where the hub tells one (all large files)."""
    from huggingface_hub import hf_hub_download

    if ".." in Path(name).parts or Path(name).is_absolute():
        raise DownloadError(f"{reference.repo} names a file {name!r} outside its folder; do not use it")
    target = folder / name
    if sha256 is not None and verified_sha256(target, progress) == sha256:
        return
    marker_of(target).unlink(missing_ok=True)
    revision = commit or reference.revision
    with _hub_errors(reference):
        path = Path(hf_hub_download(reference.repo, name, revision=revision, local_dir=folder))
    found = sha256_of(path, progress)
    if sha256 is not None and found != sha256:
        path.unlink()
        raise DownloadError(
            f"{name} of {reference.repo} has sha256 {found}, expected {sha256}; it was removed, pull again"
        )
    write_marker(path, found)


@contextlib.contextmanager
def _progress_bars(shown: bool) -> Iterator[None]:
    """The hub's client draws its own bars on stderr; here they are switched off where none are wanted."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if shown or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


@contextlib.contextmanager
def _hub_errors(reference: HubReference) -> Iterator[None]:
    """Turns errors of the client into ours: its own, the system's, and those of the HTTP library it uses."""
    try:
        yield
    except Exception as error:
        raise _translated(error, reference) from error


def _translated(error: Exception, reference: HubReference) -> Exception:
    kind = type(error).__name__
    hints: Mapping[str, str] = {
        "GatedRepoError": "it is gated: accept its licence on the hub and log in with `hf auth login`",
        "RepositoryNotFoundError": "there is no such repository, or it is private: check the name or log in",
        "RevisionNotFoundError": f"it has no revision {reference.revision!r}",
        "HFValidationError": "that is not a valid repository name",
    }
    if kind in hints:
        return ModelNotFoundError(f"{reference}: {hints[kind]}")
    detail = str(error).strip().splitlines() or [kind]
    return DownloadError(
        f"could not fetch {reference} from the hub ({kind}: {detail[0]:.200}); check the network and the "
        "free space, then pull again. Nothing partial is used"
    )
