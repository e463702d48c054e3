"""Encoding by merges in the order of the merged token's score, as SentencePiece's BPE models do.

Of all neighbouring pieces whose joined text is a token, the pair with the highest score is merged first; of
equal scores, the leftmost. What is no token at the end is written as byte tokens.
Source: Kudo and Richardson, "SentencePiece" (2018).
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator

from isobit.errors import FormatError
from isobit.text.vocabulary import PREFIX, TokenType, Vocabulary

SPACE = "▁"  # U+2581 stands for a space in the texts of tokens
MAX_CACHED_WORDS = 65536
MAX_CACHED_LENGTH = 32


class SentencePieceEncoder:
    """Encodes texts without special tokens. Safe to share between threads.

    A text is cut into words where no merge can reach across, so that the ids of a word can be kept: a merge
    across a cut would make a token that has the two characters around the cut side by side, and the cuts are
    only where no token has.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        if not vocabulary.scores:
            raise FormatError(
                "is missing; a SentencePiece vocabulary needs a score for each token",
                field=f"metadata '{PREFIX}scores'",
            )
        self._ids = vocabulary.ids_by_text(TokenType.NORMAL, TokenType.UNUSED)
        self._unused = frozenset(vocabulary.ids_by_text(TokenType.UNUSED))
        self._scores = vocabulary.scores
        self._longest = max(map(len, self._ids), default=0)
        self._bytes = _byte_ids(vocabulary)
        self._unknown = vocabulary.special.get("unknown")
        if self._bytes is None and self._unknown is None:
            raise FormatError(
                "has neither the 256 byte tokens nor an unknown token, so some texts have no ids",
                field=f"metadata '{PREFIX}tokens'",
            )
        prefix = vocabulary.add_space_prefix
        self.adds_space_prefix = True if prefix is None else prefix
        joined = {text[place - 1] for text in self._ids for place in _inner_spaces(text)}
        before = "".join(map(re.escape, sorted(joined | {SPACE})))
        self._cut = re.compile(f"(?<=[^{before}])(?={SPACE})")
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """The ids of a text; after_special: it starts the prompt or follows a special token."""
        if self.adds_space_prefix and after_special:
            text = " " + text
        ids: list[int] = []
        for word in self._cut.split(text.replace(" ", SPACE)):
            known = self._cache.get(word)
            if known is None:
                known = self._encode_word(word)
                if len(word) <= MAX_CACHED_LENGTH and len(self._cache) < MAX_CACHED_WORDS:
                    self._cache[word] = known
            ids += known
        return ids

    def _encode_word(self, word: str) -> list[int]:
        ids: list[int] = []
        parts: dict[str, tuple[str, str]] = {}
        for piece in self._merge(word, parts):
            for part in self._without_unused(piece, parts):
                index = self._ids.get(part)
                if index is not None:
                    ids.append(index)
                elif self._bytes is not None:
                    ids += [self._bytes[byte] for byte in part.encode()]
                elif self._unknown is not None:
                    ids.append(self._unknown)
        return ids

    def _merge(self, word: str, parts: dict[str, tuple[str, str]]) -> Iterator[str]:
        """Merges until no pair of neighbours is a token; notes in `parts` of which pair a text was seen."""
        pieces = list(word)  # the text of the piece that starts at a character; "" for one merged away
        after = list(range(1, len(word) + 1))  # where the next piece starts
        before = list(range(-1, len(word) - 1))  # where the previous piece starts
        queue: list[tuple[float, int, str]] = []

        def propose(left: int, right: int) -> None:
            text = pieces[left] + pieces[right]
            if len(text) <= self._longest and (index := self._ids.get(text)) is not None:
                heapq.heappush(queue, (-self._scores[index], left, text))
                parts[text] = (pieces[left], pieces[right])

        for place in range(len(word) - 1):
            propose(place, place + 1)
        while queue:
            _, left, text = heapq.heappop(queue)
            right = after[left]
            if not pieces[left] or right >= len(word) or pieces[left] + pieces[right] != text:
                continue  # one of the two was merged with another neighbour meanwhile
            pieces[left], pieces[right] = text, ""
            after[left] = after[right]
            if before[left] >= 0:
                propose(before[left], left)
            if after[left] < len(word):
                before[after[left]] = left
                propose(left, after[left])
        return (piece for piece in pieces if piece)

    def _without_unused(self, piece: str, parts: dict[str, tuple[str, str]]) -> Iterator[str]:
        """Unused tokens take part in merges, but are taken apart again when they are left over."""
        if piece in self._unused and piece in parts:
            for part in parts[piece]:
                yield from self._without_unused(part, parts)
        else:
            yield piece


def _inner_spaces(text: str) -> Iterator[int]:
    place = text.find(SPACE, 1)
    while place > 0:
        yield place
        place = text.find(SPACE, place + 1)


def _byte_ids(vocabulary: Vocabulary) -> list[int] | None:
    ids = vocabulary.ids_by_text(TokenType.BYTE)
    if not ids:
        return None
    missing = [byte for byte in range(256) if f"<0x{byte:02X}>" not in ids]
    if missing:
        raise FormatError(
            f"has byte tokens, but none for 0x{missing[0]:02X}; convert the model again",
            field=f"metadata '{PREFIX}tokens'",
        )
    return [ids[f"<0x{byte:02X}>"] for byte in range(256)]
