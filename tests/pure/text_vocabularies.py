"""Small vocabularies as GGUF metadata, for the tests of tokenizers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isobit.text.byte_level import CHARACTER_OF_BYTE
from isobit.text.vocabulary import TokenType

Metadata = dict[str, object]
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "Ġ t", "Ġt h", "1 2", "Ċ Ċ", "Ġ Ġ", "ð Ł", "ðŁ ĺ")


def byte_pairs(
    merges: Sequence[str] = MERGES,
    control: Sequence[str] = ("<s>", "</s>", "<|im_end|>"),
    defined: Sequence[str] = ("<tool>", "   "),
    pre: str = "gpt-2",
    **more: object,
) -> Metadata:
    """GPT-2's form: ids 0 to 255 are the bytes, then the merged tokens, then control, then user-defined ones."""
    merged = [merge.replace(" ", "") for merge in merges]
    tokens = [CHARACTER_OF_BYTE[byte] for byte in range(256)] + merged
    types = [TokenType.NORMAL] * len(tokens)
    types += [TokenType.CONTROL] * len(control) + [TokenType.USER_DEFINED] * len(defined)
    tokens += [*control, *defined]
    metadata: Metadata = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": np.array(types, np.int32),
        "merges": list(merges),
        "bos_token_id": tokens.index(control[0]),
        "eos_token_id": tokens.index(control[1]),
    }
    return _prefixed(metadata | more)


def sentence_pieces(pieces: dict[str, float], defined: Sequence[str] = (), **more: object) -> Metadata:
    """SentencePiece's form: unknown, bos, eos, 256 bytes, then the pieces with their scores, then user-defined."""
    count = len(pieces)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *defined]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    types += [TokenType.NORMAL] * count + [TokenType.USER_DEFINED] * len(defined)
    scores = [0.0] * 259 + [*pieces.values()] + [-1000.0] * len(defined)
    metadata: Metadata = {
        "model": "llama",
        "tokens": tokens,
        "token_type": np.array(types, np.int32),
        "scores": np.array(scores, np.float32),
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return _prefixed(metadata | more)


def with_keys(metadata: Metadata, **changes: object) -> Metadata:
    """A copy with some `tokenizer.ggml.*` keys changed, or left out where the new value is None."""
    changed = {**metadata, **_prefixed(changes)}
    return {key: value for key, value in changed.items() if value is not None}


def _prefixed(metadata: Metadata) -> Metadata:
    return {f"tokenizer.ggml.{name}": value for name, value in metadata.items()}
