"""Which files of a repository a user means: `hf:org/repo[@revision][:file-or-quant]`. Pure functions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isobit.errors import DownloadError, InputError, ModelNotFoundError

PREFIX = "hf:"
DEFAULT_REVISION = "main"
_REFERENCE = re.compile(
    r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?::(?P<choice>.+))?", re.ASCII | re.DOTALL
)
_PART = re.compile(r"(?P<prefix>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL | re.IGNORECASE)
_MAX_LISTED = 24


@dataclass(frozen=True)
class HubReference:
    """A parsed `hf:` name. choice: a file of the repository, a quantization such as Q4_K_M, or None."""

    repo: str
    revision: str
    choice: str | None

    def __str__(self) -> str:
        revision = "" if self.revision == DEFAULT_REVISION else f"@{self.revision}"
        return f"{PREFIX}{self.repo}{revision}" + (f":{self.choice}" if self.choice else "")


def parse_reference(text: str) -> HubReference:
    """Parses `hf:org/repo[@revision][:file-or-quant]`; raises InputError."""
    match = _REFERENCE.fullmatch(text)
    names = match and (*match["repo"].split("/"), *(match["revision"] or "x").split("/"))
    if match is None or not names or any(name.strip(".") == "" for name in names):
        raise InputError(
            f"{text!r} is not a hub name; expected hf:ORG/REPO, hf:ORG/REPO:QUANT, hf:ORG/REPO:FILE.gguf "
            "or hf:ORG/REPO@REVISION:…"
        )
    return HubReference(match["repo"], match["revision"] or DEFAULT_REVISION, match["choice"])


def select_files(files: Iterable[str], reference: HubReference) -> list[str]:
    """The files to fetch: one, or all parts of a split model in order.

    files: the paths in the repository. A choice ending in `.gguf` is a path or the last component of one;
    another is a quantization, matched whole and in any case. Raises ModelNotFoundError where nothing fits,
    InputError where several models do, DownloadError for a split model that lacks a part.
    """
    models = _models(files)
    if not models:
        raise ModelNotFoundError(f"{reference.repo} has no .gguf file; look for a GGUF version of the model")
    choice = reference.choice
    if choice is None:
        found = [m for m in models if not _is_projector(m[0])]
    elif choice.lower().endswith(".gguf"):
        found = _by_file(models, choice)
    else:
        found = [m for m in models if _has_quant(m[0], choice) and not _is_projector(m[0])]
    if not found:
        near = difflib.get_close_matches(choice or "", [m[0] for m in models], n=3)
        listed = f"near matches: {', '.join(near)}" if near else f"it has {_listed(models)}"
        raise ModelNotFoundError(f"{reference.repo} has no {choice or 'language model'!r}; {listed}")
    if len(found) > 1:
        asked = f"{choice!r} fits several models" if choice else "there are several models"
        raise InputError(
            f"{asked} in {reference.repo}; choose one, such as {PREFIX}{reference.repo}:{found[0][0]}"
            f" (there are {_listed(found)})"
        )
    _check_parts(found[0], reference)
    return found[0]


def _models(files: Iterable[str]) -> list[list[str]]:
    """The .gguf files grouped into models: each a list of its parts in order."""
    groups: dict[tuple[str, str], list[str]] = {}
    for file in sorted(files):
        if file.lower().endswith(".gguf"):
            part = _PART.fullmatch(file)
            groups.setdefault((part["prefix"], part["count"]) if part else (file, ""), []).append(file)
    return list(groups.values())


def _by_file(models: Sequence[list[str]], choice: str) -> list[list[str]]:
    exact = [m for m in models if choice in m]
    return exact or [m for m in models if any(file.rsplit("/", 1)[-1] == choice for file in m)]


def _has_quant(file: str, quant: str) -> bool:
    """Whether the path names the quantization as a whole: Q4_K is not in Q4_K_M, Q4_XS not in IQ4_XS."""
    pattern = rf"(?<![^\W_]){re.escape(quant)}(?!\w)"
    return re.search(pattern, file, re.IGNORECASE | re.ASCII) is not None


def _is_projector(file: str) -> bool:
    """Vision projectors lie beside language models; they are fetched only by their file name."""
    return "mmproj" in file.rsplit("/", 1)[-1].lower()


def _check_parts(model: Sequence[str], reference: HubReference) -> None:
    part = _PART.fullmatch(model[0])
    if part is None:
        return
    numbers = {match["number"] for file in model if (match := _PART.fullmatch(file))}
    missing = [n for n in range(1, int(part["count"]) + 1) if f"{n:05d}" not in numbers]
    if missing:
        raise DownloadError(
            f"{reference.repo} lacks part {missing[0]} of {int(part['count'])} of {part['prefix']}; "
            "choose another file or tell its owner"
        )


def _listed(models: Sequence[list[str]]) -> str:
    more = f" and {len(models) - _MAX_LISTED} more" if len(models) > _MAX_LISTED else ""
    return ", ".join(m[0] for m in models[:_MAX_LISTED]) + more
