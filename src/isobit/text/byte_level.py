"""The one-character-per-byte alphabet in which GPT-2-style vocabularies write their tokens.

Printable bytes of Latin-1 stand for themselves; the other 68 take the characters from U+0100 on, in order.
Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), the published encoder.
"""

from __future__ import annotations

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PRINTABLE)

CHARACTER_OF_BYTE: dict[int, str] = {
    **{byte: chr(byte) for byte in _PRINTABLE},
    **{byte: chr(0x100 + index) for index, byte in enumerate(_OTHERS)},
}
BYTE_OF_CHARACTER: dict[str, int] = {character: byte for byte, character in CHARACTER_OF_BYTE.items()}

# Bytes that never occur in well-formed UTF-8 (RFC 3629), so a vocabulary may lack them.
NOT_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})


def bytes_of_token(text: str) -> bytes:
    """The bytes that a token's text stands for.

    Some vocabularies hold ordinary tokens with characters outside the alphabet (they are never produced by
    encoding); such a token stands for its own text.
    """
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in text)
    except KeyError:
        return text.encode()
