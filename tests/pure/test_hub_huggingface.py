"""The hub's client is replaced by a small fake; its calls are bound to the real signatures."""

from __future__ import annotations

import builtins
import hashlib
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isobit.errors import DownloadError, InputError, ModelNotFoundError
from isobit.hub import huggingface, pull, resolve

CONTENTS = {"m-Q4_K_M.gguf": b"four", "m-Q8_0-00001-of-00002.gguf": b"one", "m-Q8_0-00002-of-00002.gguf": b"two"}


class FakeHub:
    """Answers like the hub; `calls` records downloads, `sent` is what they deliver."""

    def __init__(self, client: Any) -> None:
        self.calls: list[str] = []
        self.sent = dict(CONTENTS)
        self.error: Exception | None = None
        self.real_info = client.HfApi.model_info
        self.real_download = client.hf_hub_download

    def model_info(self, *args: Any, **kwargs: Any) -> SimpleNamespace:
        inspect.signature(self.real_info).bind(self, *args, **kwargs)
        if self.error:
            raise self.error
        siblings = [
            SimpleNamespace(rfilename=name, lfs=SimpleNamespace(sha256=hashlib.sha256(content).hexdigest()))
            for name, content in CONTENTS.items()
        ]
        return SimpleNamespace(sha="c0ffee", siblings=[*siblings, SimpleNamespace(rfilename="README.md", lfs=None)])

    def hf_hub_download(self, *args: Any, **kwargs: Any) -> str:
        bound = inspect.signature(self.real_download).bind(*args, **kwargs).arguments
        assert (bound["repo_id"], bound["revision"]) == ("org/repo", "c0ffee")
        self.calls.append(bound["filename"])
        path = Path(bound["local_dir"]) / bound["filename"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.sent[bound["filename"]])
        return str(path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    client = pytest.importorskip("huggingface_hub", reason="needs the extra `hub`")
    fake = FakeHub(client)
    api = SimpleNamespace(model_info=fake.model_info)
    monkeypatch.setattr(client, "HfApi", lambda: api)
    monkeypatch.setattr(client, "hf_hub_download", fake.hf_hub_download)
    monkeypatch.setenv("ISOBIT_HOME", str(tmp_path))
    return fake


def test_pulls_once_and_resolves(hub: FakeHub) -> None:
    path = pull("hf:org/repo:Q4_K_M")
    assert path.read_bytes() == b"four"
    assert pull("hf:org/repo:m-Q4_K_M.gguf") == path == resolve("hf:org/repo")
    assert hub.calls == ["m-Q4_K_M.gguf"]


def test_pulls_all_parts(hub: FakeHub) -> None:
    path = pull("hf:org/repo:q8_0")
    assert path.name == "m-Q8_0-00001-of-00002.gguf"
    assert hub.calls == sorted(name for name in CONTENTS if "Q8_0" in name)


def test_wrong_sha256_is_removed(hub: FakeHub) -> None:
    hub.sent["m-Q4_K_M.gguf"] = b"fou"
    with pytest.raises(DownloadError, match=r"expected .*it was removed, pull again"):
        pull("hf:org/repo:Q4_K_M")
    with pytest.raises(ModelNotFoundError, match="has not been pulled"):
        resolve("hf:org/repo:Q4_K_M")
    hub.sent["m-Q4_K_M.gguf"] = b"four"
    assert pull("hf:org/repo:Q4_K_M").read_bytes() == b"four"


def test_ambiguous_choice_is_an_error_of_ours(hub: FakeHub) -> None:
    with pytest.raises(InputError, match="there are several models"):
        pull("hf:org/repo")


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("RepositoryNotFoundError", ModelNotFoundError, "no such repository, or it is private"),
        ("GatedRepoError", ModelNotFoundError, "it is gated"),
        ("RevisionNotFoundError", ModelNotFoundError, "no revision 'main'"),
        ("HFValidationError", ModelNotFoundError, "not a valid repository name"),
        ("LocalEntryNotFoundError", DownloadError, "check the network"),
        ("OfflineModeIsEnabled", DownloadError, "check the network"),
    ],
)
def test_errors_of_the_client(hub: FakeHub, name: str, kind: type[Exception], message: str) -> None:
    error_class = getattr(pytest.importorskip("huggingface_hub.errors"), name)
    hub.error = error_class.__new__(error_class)
    with pytest.raises(kind, match=message):
        pull("hf:org/repo:Q4_K_M")


def test_errors_of_the_http_library(hub: FakeHub) -> None:
    hub.error = Exception("Name or service not known\nand more")
    with pytest.raises(DownloadError, match=r"\(Exception: Name or service not known\); check the network"):
        pull("hf:org/repo:Q4_K_M")


def test_names_that_leave_the_folder(hub: FakeHub) -> None:
    reference = huggingface.parse_reference("hf:org/repo")
    for name in ("../x.gguf", "/x.gguf"):
        with pytest.raises(DownloadError, match="outside its folder"):
            huggingface._fetch(reference, "c0ffee", name, None, Path("nowhere"), lambda *_: None)
    assert hub.calls == []


def test_package_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ISOBIT_HOME", str(tmp_path))
    original = builtins.__import__

    def without_hub(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_hub)
    with pytest.raises(InputError, match=r"pip install 'isobit\[hub\]'"):
        pull("hf:org/repo")
