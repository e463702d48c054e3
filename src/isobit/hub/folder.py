"""The models folder: where pulled files are, and which of them are known to be whole.

Beside a file that was checked stands `<file>.verified.json` with its sha256, size and modification time. As
long as size and time are the same, the sha256 is taken from there instead of reading the file again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from isobit.errors import DownloadError

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a stage ("download", "unpack", …), the bytes done and the bytes in all."""

BLOCK = 1 << 20
_SCRATCH_PREFIX = ".pull-"
_STALE_SECONDS = 24 * 3600


class _Marker(NamedTuple):
    sha256: str
    size: int
    mtime_ns: int


def models_folder() -> Path:
    """`$ISOBIT_HOME/models`, or `isobit/models` in the user's cache folder. It may not exist yet."""
    home = os.environ.get("ISOBIT_HOME")
    if home:
        return Path(home) / "models"
    from platformdirs import user_cache_path

    return user_cache_path("isobit", appauthor=False) / "models"


def no_progress(_stage: str, _done: int, _total: int) -> None:
    """A Progress that shows nothing."""


def sha256_of(path: Path, progress: Progress = no_progress) -> str:
    """The hexadecimal sha256 of a file's bytes."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
            done += len(block)
            progress("verify", done, total)
    return digest.hexdigest()


def verified_sha256(path: Path, progress: Progress = no_progress) -> str | None:
    """The sha256 of a file, from its marker where that still holds; None where there is no such file.

    A marker for other content stays as it is: it says what the file should be (see `recorded_sha256`).
    """
    try:
        status = path.stat()
    except OSError:
        return None
    marker = _read_marker(path)
    if marker and (marker.size, marker.mtime_ns) == (status.st_size, status.st_mtime_ns):
        return marker.sha256
    found = sha256_of(path, progress)
    if marker is None or marker.sha256 == found:
        write_marker(path, found)
    return found


def recorded_sha256(path: Path) -> str | None:
    """The sha256 that the file had when its marker was written, or None without a marker."""
    marker = _read_marker(path)
    return marker.sha256 if marker else None


def write_marker(path: Path, sha256: str) -> None:
    """Notes that the file as it is now has this sha256. A folder that cannot be written goes without."""
    status = path.stat()
    content = json.dumps({"sha256": sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns})
    with contextlib.suppress(OSError):
        descriptor, temporary = tempfile.mkstemp(prefix=_SCRATCH_PREFIX, dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(content)
            os.chmod(temporary, status.st_mode & 0o777)  # whoever may read the file may read its marker
            os.replace(temporary, marker_of(path))
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def marker_of(path: Path) -> Path:
    """Where the marker of a model file is."""
    return path.with_name(path.name + ".verified.json")


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """A new folder inside `folder` (so on its file system), removed at the end. Raises DownloadError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=folder))
    except OSError as error:
        raise DownloadError(
            f"cannot write to the models folder {folder}: {error.strerror or error}; "
            "set ISOBIT_HOME to a folder that can be written"
        ) from error
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def require_space(folder: Path, needed: int) -> None:
    """Raises DownloadError where the file system of `folder` has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise no_space(folder, f"{free / 1e6:.0f} MB free, {needed / 1e6:.0f} MB needed")


def no_space(folder: Path, detail: str) -> DownloadError:
    """The error for a full disk."""
    return DownloadError(
        f"not enough space in {folder}: {detail}; free some, or set ISOBIT_HOME to another disk. "
        "Nothing partial was kept"
    )


def _read_marker(path: Path) -> _Marker | None:
    """The marker; None for a missing or damaged one, so that the file itself is read."""
    try:
        content = json.loads(marker_of(path).read_text(encoding="utf-8"))
        return _Marker(str(content["sha256"]), int(content["size"]), int(content["mtime_ns"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remove_stale(folder: Path) -> None:
    """Removes what pulls that were killed left behind, once it is a day old."""
    for left in folder.glob(f"{_SCRATCH_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
