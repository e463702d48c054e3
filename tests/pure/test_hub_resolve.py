from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import MappingProxyType

import pytest

from isobit.errors import DownloadError, InputError, ModelNotFoundError
from isobit.hub import resolve
from isobit.hub.catalogue import Entry
from isobit.hub.folder import write_marker
from isobit.hub.huggingface import hub_folder
from isobit.hub.selection import parse_reference

CONTENT = b"GGUF and so on"
ENTRY = Entry("fake-1b", "fake.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), (), "MIT", "a fake")


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ISOBIT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("isobit.hub.names.CATALOGUE", MappingProxyType({"fake-1b": ENTRY}))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "home" / "models"
    folder.mkdir(parents=True)
    return folder


def test_path(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(CONTENT)
    assert resolve(str(file)) == file
    assert resolve("x.gguf") == Path("x.gguf")


def test_pulled_name_wins_over_a_file(models: Path, tmp_path: Path) -> None:
    (models / "fake.gguf").write_bytes(CONTENT)
    (tmp_path / "fake-1b").write_bytes(b"other")
    assert resolve("fake-1b") == models / "fake.gguf"
    assert resolve("./fake-1b") == Path("fake-1b")


def test_known_but_not_pulled() -> None:
    with pytest.raises(ModelNotFoundError, match="fake-1b has not been pulled; run `isobit pull fake-1b`"):
        resolve("fake-1b")


def test_changed_after_the_pull(models: Path) -> None:
    (models / "fake.gguf").write_bytes(CONTENT)
    assert resolve("fake-1b") == models / "fake.gguf"
    (models / "fake.gguf").write_bytes(CONTENT[:-1])
    for _ in range(2):
        with pytest.raises(DownloadError, match="is damaged or was changed; run `isobit pull fake-1b`"):
            resolve("fake-1b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fake-2b", "there is no model or file 'fake-2b'; near matches: fake-1b; `isobit pull --list`"),
        ("zzz", "there is no model or file 'zzz'; `isobit pull --list` shows all names"),
        ("folder/mdel.gguf", "there is no file folder/mdel.gguf; near matches in its folder: model.gguf"),
        ("nowhere/x.gguf", "there is no file nowhere/x.gguf; check the path"),
        ("nul\0", "there is no model or file 'nul\\x00'"),
        ("long" * 2000, "there is no model or file 'longlong"),
    ],
)
def test_unknown(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "model.gguf").write_bytes(CONTENT)
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(text)
    assert message in str(caught.value)


def test_empty_name() -> None:
    with pytest.raises(InputError, match="the model name is empty"):
        resolve("")


def put_in_hub_folder(text: str, name: str) -> Path:
    path = hub_folder(parse_reference(text)) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CONTENT)
    write_marker(path, ENTRY.sha256)
    return path


def test_hub_model_that_was_pulled() -> None:
    path = put_in_hub_folder("hf:org/repo", "m-Q4_K_M.gguf")
    assert resolve("hf:org/repo") == resolve("hf:org/repo:q4_k_m") == path
    other = put_in_hub_folder("hf:org/repo@refs/pr/1", "m-Q4_K_M.gguf")
    assert resolve("hf:org/repo@refs/pr/1") == other != path


@pytest.mark.parametrize("text", ["hf:org/repo", "hf:org/other:Q8_0"])
def test_hub_model_that_was_not_pulled(text: str) -> None:
    put_in_hub_folder("hf:org/other", "m-Q4_K_M.gguf")
    with pytest.raises(ModelNotFoundError, match=f"isobit pull {text}"):
        resolve(text)


def test_hub_file_without_marker_is_not_used() -> None:
    path = hub_folder(parse_reference("hf:org/repo")) / "m.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    with pytest.raises(ModelNotFoundError, match="has not been pulled"):
        resolve("hf:org/repo")


def test_hub_file_that_changed_is_not_used() -> None:
    path = put_in_hub_folder("hf:org/repo", "m.gguf")
    os.utime(path, (1, 1))
    assert resolve("hf:org/repo") == path
    path.write_bytes(b"changed")
    for _ in range(2):
        with pytest.raises(DownloadError, match="is not the file that was pulled"):
            resolve("hf:org/repo")
