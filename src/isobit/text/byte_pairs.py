"""Encoding by merges of pairs in the order of their rank (BPE), done by the library `tokenizers`.

Two alphabets: GPT-2's one character per byte, and raw characters with byte tokens for the rest (Gemma 4).
Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence

from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as BackendTokenizer

from isobit.errors import FormatError, InputError
from isobit.text.byte_level import CHARACTER_OF_BYTE, NOT_IN_UTF8
from isobit.text.pretokenizers import Pretokenizer
from isobit.text.vocabulary import PREFIX, TokenType, Vocabulary

_FIELD = f"metadata '{PREFIX}merges'"


class ByteLevelEncoder:
    """GPT-2's form: text as UTF-8 bytes, each written as one character of the byte alphabet."""

    def __init__(self, vocabulary: Vocabulary, rules: Pretokenizer) -> None:
        ids = vocabulary.ids_by_text(TokenType.NORMAL, TokenType.USER_DEFINED)
        backend = BackendTokenizer(
            _build_model(ids, vocabulary.merges, ignore_merges=rules.whole_words, byte_fallback=False)
        )
        splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rules.patterns]
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
        self._backend = backend
        # Some vocabularies lack bytes that occur in no text they were made from (SmolLM2: 0x04, 0xF1 …).
        self._missing = bytes(
            byte for byte, character in CHARACTER_OF_BYTE.items() if character not in ids and byte not in NOT_IN_UTF8
        )

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """The ids of a text without special tokens; InputError for a character it cannot write."""
        if self._missing:
            self._check(text)
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def _check(self, text: str) -> None:
        data = text.encode()
        if len(data.translate(None, self._missing)) == len(data):
            return
        bad = next(character for character in text if set(character.encode()) & set(self._missing))
        raise InputError(
            f"the text holds the character U+{ord(bad):04X}, which this model's vocabulary cannot express; "
            "remove or replace it"
        )


class CharacterLevelEncoder:
    """Gemma 4's form: ▁ for spaces, words end only at line ends, byte tokens for rare characters."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids = vocabulary.ids_by_text(TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.BYTE)
        missing = [byte for byte in range(256) if f"<0x{byte:02X}>" not in ids]
        if missing:
            raise FormatError(
                f"has no token for the byte 0x{missing[0]:02X}, expected all 256 byte tokens",
                field=f"metadata '{PREFIX}tokens'",
            )
        self._backend = BackendTokenizer(_build_model(ids, vocabulary.merges, ignore_merges=False, byte_fallback=True))
        self._backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n+"), behavior="isolated")

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """The ids of a text without special tokens."""
        ids: list[int] = self._backend.encode(text.replace(" ", "▁"), add_special_tokens=False).ids
        return ids


def _build_model(ids: dict[str, int], merges: Sequence[str], *, ignore_merges: bool, byte_fallback: bool) -> models.BPE:
    if not merges:
        raise FormatError("is missing or empty; a vocabulary of byte pairs needs its merges", field=_FIELD)
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if set(map(len, pairs)) == {2}:
        lefts, rights = zip(*pairs, strict=True)
        joined = map(operator.add, lefts, rights)
        # Checked here, as the library panics on some of these; in one pass of C code, as there are 100,000s.
        if all(map(ids.__contains__, itertools.chain(lefts, rights, joined))):
            return models.BPE(
                ids,
                list(zip(lefts, rights, strict=True)),
                ignore_merges=ignore_merges,
                byte_fallback=byte_fallback,
            )
    index = next(index for index, pair in enumerate(pairs) if not _is_merge(pair, ids))
    raise FormatError(
        f"entry {index} is {merges[index]!r:.80}, expected two ordinary tokens of the vocabulary with a space "
        "between, whose joined text is a token too; convert the model again",
        field=_FIELD,
    )


def _is_merge(pair: tuple[str, ...], ids: dict[str, int]) -> bool:
    return len(pair) == 2 and all(text in ids for text in (*pair, "".join(pair)))
