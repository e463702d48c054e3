from __future__ import annotations

import pytest

from isobit.errors import DownloadError, InputError, ModelNotFoundError
from isobit.hub.selection import HubReference, parse_reference, select_files

FILES = [
    "README.md",
    "model-IQ4_XS.gguf",
    "model-Q4_K.gguf",
    "model-Q4_K_M.gguf",
    "model-Q4_K_S.gguf",
    "model-f16.gguf",
    "mmproj-model-f16.gguf",
    "Q8_0/model-Q8_0-00002-of-00003.gguf",
    "Q8_0/model-Q8_0-00001-of-00003.gguf",
    "Q8_0/model-Q8_0-00003-of-00003.gguf",
    "model-Q6_K-00001-of-00003.gguf",
    "model-Q6_K-00003-of-00003.gguf",
]
EIGHT_BIT = [f"Q8_0/model-Q8_0-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


def select(choice: str | None, files: list[str] = FILES) -> list[str]:
    return select_files(files, HubReference("org/repo", "main", choice))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf:org/repo", HubReference("org/repo", "main", None)),
        ("hf:org/repo:Q4_K_M", HubReference("org/repo", "main", "Q4_K_M")),
        ("hf:o-1/r.2_x:sub/file name.gguf", HubReference("o-1/r.2_x", "main", "sub/file name.gguf")),
        ("hf:org/repo@v1.0:Q8_0", HubReference("org/repo", "v1.0", "Q8_0")),
        ("hf:org/repo@refs/pr/1", HubReference("org/repo", "refs/pr/1", None)),
    ],
)
def test_parses_and_prints_back(text: str, expected: HubReference) -> None:
    assert parse_reference(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    ["hf:", "hf:repo", "hf:a/b/c", "hf:org/repo:", "hf:org/repo@", "hf:../x", "hf:a/..", "hf:a/b@../x", "hf:a/b@x//y"],
)
def test_refuses_what_is_no_reference(text: str) -> None:
    with pytest.raises(InputError, match="is not a hub name"):
        parse_reference(text)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("Q4_K_M", ["model-Q4_K_M.gguf"]),
        ("q4_k_m", ["model-Q4_K_M.gguf"]),
        ("Q4_K", ["model-Q4_K.gguf"]),
        ("iq4_xs", ["model-IQ4_XS.gguf"]),
        ("F16", ["model-f16.gguf"]),
        ("Q8_0", EIGHT_BIT),
        ("Q8_0/model-Q8_0-00002-of-00003.gguf", EIGHT_BIT),
        ("model-Q8_0-00001-of-00003.gguf", EIGHT_BIT),
        ("mmproj-model-f16.gguf", ["mmproj-model-f16.gguf"]),
    ],
)
def test_selects(choice: str, expected: list[str]) -> None:
    assert select(choice) == expected


def test_the_only_model_needs_no_choice() -> None:
    assert select(None, ["a.gguf", "mmproj-a.gguf", "config.json"]) == ["a.gguf"]


@pytest.mark.parametrize("choice", ["Q4_XS", "Q5_K_M", "nothing.gguf", "Q4_K_"])
def test_no_match_lists_what_there_is(choice: str) -> None:
    with pytest.raises(ModelNotFoundError, match=rf"has no '{choice}'.*\.gguf"):
        select(choice)


def test_several_models_need_a_choice() -> None:
    with pytest.raises(InputError, match=r"there are several models in org/repo.*hf:org/repo:.*model-Q4_K_S\.gguf"):
        select(None)
    with pytest.raises(InputError, match="'Q4_K_M' fits several models"):
        select("Q4_K_M", ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"])


def test_missing_part() -> None:
    with pytest.raises(DownloadError, match="lacks part 2 of 3"):
        select("Q6_K")


def test_repository_without_models() -> None:
    with pytest.raises(ModelNotFoundError, match=r"has no \.gguf file"):
        select(None, ["model.safetensors"])
