"""Finding the texts of special tokens in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class SpecialTokens:
    """Cuts a text at the special tokens in it: at each place the longest one, from left to right.

    Vocabularies hold thousands of them, mostly with the same few beginnings, so they are found by their first
    two characters.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids
        lengths: dict[str, set[int]] = {}
        for text in ids:
            lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}
        starts = "|".join(re.escape(start) for start in sorted(lengths, key=lambda start: (-len(start), start)))
        self._start = re.compile(starts) if starts else None

    def split(self, text: str) -> Iterator[str | int]:
        """The pieces of the text in order: ids of special tokens, and the texts between them (not empty)."""
        begin = place = 0
        while self._start is not None and (found := self._start.search(text, place)):
            place = found.start()
            token = self._longest(text, place)
            if token is None:
                place += 1
                continue
            if begin < place:
                yield text[begin:place]
            yield self._ids[token]
            begin = place = place + len(token)
        if begin < len(text):
            yield text[begin:]

    def _longest(self, text: str, place: int) -> str | None:
        for start in (text[place : place + 2], text[place]):
            for length in self._lengths.get(start, ()):
                candidate = text[place : place + length]
                if candidate in self._ids:
                    return candidate
        return None
