"""A vocabulary as a GGUF file states it: tokens, their types, scores, merges and special ids, all checked.

Source: the `tokenizer.ggml.*` keys of the GGUF format document of the ggml project.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from isobit.errors import FormatError

T = TypeVar("T")
IntArray = npt.NDArray[np.int32]

PREFIX = "tokenizer.ggml."

# Tokens that end a turn. Converters do not always give their ids in the metadata, so their texts count too.
# The plain "</s>" and "<eos>" are left out: some vocabularies have them as ordinary tokens, and where they
# end the text they are the eos token.
STOP_TEXTS = frozenset(
    {
        "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>",
        "<end_of_turn>", "<turn|>", "<|return|>", "<|call|>", "<EOT>", "<|EOT|>", "[EOT]",
        "<end_of_utterance>", "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>",
    }
)  # fmt: skip
# In a vocabulary with these two, "<|end|>" ends a message within a turn that goes on.
CHANNEL_TEXTS = frozenset({"<|return|>", "<|call|>"})


class TokenType(enum.IntEnum):
    """What a token is for; the values of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary:
    """The checked vocabulary of one model file.

    tokens, types (int32), scores: one per id (scores is empty where the file has none). special: ids by role
    ("bos", "eos", "eot", …), all inside the vocabulary. add_bos, add_eos, add_space_prefix: None where the
    file does not say. The stop tokens and those of the roles bos, eos, eot and eom are CONTROL, whatever the
    file says.
    """

    model: str
    pre: str | None
    tokens: Sequence[str]
    types: IntArray
    scores: Sequence[float]
    merges: Sequence[str]
    special: Mapping[str, int]
    stop_ids: frozenset[int]
    add_bos: bool | None
    add_eos: bool | None
    add_space_prefix: bool | None

    def ids_by_text(self, *types: TokenType) -> dict[str, int]:
        """The tokens of these types; of two tokens with the same text the later one counts."""
        tokens = self.tokens
        indices: list[int] = np.flatnonzero(np.isin(self.types, types)).tolist()
        return {tokens[index]: index for index in indices if tokens[index]}

    def type_of(self, index: int) -> int:
        """The type of the token with that id, one of `TokenType`."""
        return int(self.types[index])


def read_vocabulary(metadata: Mapping[str, object]) -> Vocabulary:
    """Reads and checks the `tokenizer.ggml.*` keys; raises FormatError naming the key at fault."""
    tokens = _required(metadata, "tokens", list)
    if not tokens:
        raise FormatError("is empty, expected the tokens of the vocabulary", field=_field("tokens"))
    special = _special_ids(metadata, len(tokens))
    stop_ids = _stop_ids(tokens, special)
    types = _types(metadata, len(tokens))
    for index in {special[role] for role in ("bos", "eos", "eot", "eom") if role in special} | stop_ids:
        types[index] = TokenType.CONTROL
    return Vocabulary(
        model=_required(metadata, "model", str),
        pre=_optional(metadata, "pre", str),
        tokens=tokens,
        types=types,
        scores=_scores(metadata, len(tokens)),
        merges=_optional(metadata, "merges", list) or [],
        special=special,
        stop_ids=stop_ids,
        add_bos=_optional(metadata, "add_bos_token", bool),
        add_eos=_optional(metadata, "add_eos_token", bool),
        add_space_prefix=_optional(metadata, "add_space_prefix", bool),
    )


def _types(metadata: Mapping[str, object], count: int) -> IntArray:
    array = _numbers(metadata, "token_type", count)
    if array is None:
        return np.full(count, TokenType.NORMAL, np.int32)
    if not np.issubdtype(array.dtype, np.integer):
        raise FormatError(f"holds {array.dtype}, expected integers", field=_field("token_type"))
    bad = np.flatnonzero((array < 0) | (array > max(TokenType)))
    if bad.size:
        raise FormatError(
            f"gives token {bad[0]} the type {array[bad[0]]}, expected 0 to {int(max(TokenType))}",
            field=_field("token_type"),
        )
    return array.astype(np.int32)


def _scores(metadata: Mapping[str, object], count: int) -> list[float]:
    array = _numbers(metadata, "scores", count)
    if array is None:
        return []
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise FormatError(
            f"gives token {bad[0]} the score {array[bad[0]]}, expected a finite number",
            field=_field("scores"),
        )
    scores: list[float] = array.tolist()
    return scores


def _numbers(metadata: Mapping[str, object], name: str, count: int) -> npt.NDArray[Any] | None:
    array: npt.NDArray[Any] | None = _optional(metadata, name, np.ndarray)
    if array is not None and array.shape != (count,):
        raise FormatError(
            f"has {array.size} entries, expected {count}, one for each token; convert the model again",
            field=_field(name),
        )
    return array


def _special_ids(metadata: Mapping[str, object], count: int) -> dict[str, int]:
    ids = {}
    for key in metadata:
        if key.startswith(PREFIX) and key.endswith("_token_id"):
            name = key[len(PREFIX) :]
            index = _required(metadata, name, int)
            if not 0 <= index < count:
                raise FormatError(
                    f"is {index}, outside the vocabulary of {count} tokens; convert the model again",
                    field=_field(name),
                )
            ids[name[: -len("_token_id")]] = index
    return ids


def _stop_ids(tokens: Sequence[str], special: Mapping[str, int]) -> frozenset[int]:
    by_text = {text: index for index, text in enumerate(tokens) if text in STOP_TEXTS}
    if by_text.keys() >= CHANNEL_TEXTS:
        by_text.pop("<|end|>", None)
    by_role = (special[role] for role in ("eos", "eot", "eom") if role in special)
    return frozenset(by_text.values()) | frozenset(by_role)


def _required(metadata: Mapping[str, object], name: str, kind: type[T]) -> T:
    found = _optional(metadata, name, kind)
    if found is None:
        raise FormatError("is missing; the file has no usable vocabulary", field=_field(name))
    return found


def _optional(metadata: Mapping[str, object], name: str, kind: type[T]) -> T | None:
    found = metadata.get(PREFIX + name)
    # Exactly that type: a bool is an int to isinstance, but not in a model file.
    if found is not None and type(found) is not kind:
        raise FormatError(f"is of type {type(found).__name__}, expected {kind.__name__}", field=_field(name))
    return found


def _field(name: str) -> str:
    return f"metadata '{PREFIX}{name}'"
