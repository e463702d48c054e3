"""Text from token ids as they come."""

from __future__ import annotations

import codecs

from isobit.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns a stream of token ids into text without ever giving out half a character.

    Everything `push` and `finish` return, put together, equals `tokenizer.decode` of the ids: invalid UTF-8
    becomes U+FFFD by the same rules. For one stream and one thread.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, index: int) -> str:
        """The text that is certain after this token; "" while a character is incomplete.

        Raises InputError for an id outside the vocabulary; the stream goes on as if it had not been pushed.
        """
        return self._decoder.decode(self._tokenizer.piece(index, self._skip_special))

    def finish(self) -> str:
        """What is left: U+FFFD for an incomplete character, else "". Afterwards a new stream begins."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
