"""From text to token ids and back, as the model file's vocabulary says."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Protocol

from isobit.errors import FormatError, InputError, UnsupportedError
from isobit.text.byte_level import bytes_of_token
from isobit.text.byte_pairs import ByteLevelEncoder, CharacterLevelEncoder
from isobit.text.pretokenizers import pretokenizer
from isobit.text.sentence_pieces import SPACE, SentencePieceEncoder
from isobit.text.special_tokens import SpecialTokens
from isobit.text.vocabulary import PREFIX, TokenType, Vocabulary, read_vocabulary

_KINDS = ("gpt2", "llama", "gemma4")


class Encoder(Protocol):
    """Encodes a text that holds no special tokens."""

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """The ids of a text; after_special: it starts the prompt or follows a special token."""
        ...


def load_tokenizer(metadata: Mapping[str, object]) -> Tokenizer:
    """Builds the tokenizer that a GGUF file's metadata describes (`tokenizer.ggml.*`).

    Raises FormatError for a vocabulary that is missing or contradicts itself, UnsupportedError for a kind or
    pre-tokenizer that is not known.
    """
    kind = metadata.get(PREFIX + "model")
    if isinstance(kind, str) and kind not in _KINDS:
        raise UnsupportedError(
            f"the vocabulary kind 'tokenizer.ggml.model' = {kind!r:.60} is not supported; known: {', '.join(_KINDS)}"
        )
    vocabulary = read_vocabulary(metadata)
    if vocabulary.model == "gpt2":
        rules = pretokenizer(vocabulary.pre)
        return Tokenizer(vocabulary, ByteLevelEncoder(vocabulary, rules), add_bos=rules.add_bos)
    if vocabulary.model == "gemma4":
        return Tokenizer(vocabulary, CharacterLevelEncoder(vocabulary), add_bos=True)
    if metadata.get(PREFIX + "remove_extra_whitespaces") is True:
        raise UnsupportedError(
            "the vocabulary asks to drop repeated spaces ('tokenizer.ggml.remove_extra_whitespaces'), "
            "which is not supported for SentencePiece BPE"
        )
    return Tokenizer(vocabulary, SentencePieceEncoder(vocabulary), add_bos=True)


class Tokenizer:
    """The tokenizer of one model. Immutable, safe to share between threads; made by `load_tokenizer`.

    Texts are taken as they are: no Unicode normalization, so decoding gives back the encoded text (after a
    space, where the vocabulary puts one before a text).
    """

    def __init__(self, vocabulary: Vocabulary, encoder: Encoder, *, add_bos: bool) -> None:
        self._vocabulary = vocabulary
        self._encoder = encoder
        self._byte_level = vocabulary.model == "gpt2"
        self._add_bos = add_bos if vocabulary.add_bos is None else vocabulary.add_bos
        self._add_eos = bool(vocabulary.add_eos)
        for wanted, role in ((self._add_bos, "bos"), (self._add_eos, "eos")):
            if wanted and role not in vocabulary.special:
                raise FormatError(
                    f"is missing, but the vocabulary asks to add the {role} token to each text",
                    field=f"metadata '{PREFIX}{role}_token_id'",
                )
        defined = vocabulary.ids_by_text(TokenType.USER_DEFINED)
        if not self._byte_level:  # converters write their spaces either way
            defined = {text.replace(SPACE, " "): index for text, index in defined.items()}
        self._defined = SpecialTokens(defined)
        control = vocabulary.ids_by_text(TokenType.CONTROL, TokenType.UNKNOWN)
        self._all_special = SpecialTokens(defined | control)

    def __repr__(self) -> str:
        kind, pre = self._vocabulary.model, self._vocabulary.pre
        return f"<Tokenizer {kind}/{pre}, {self.vocabulary_size} tokens>"

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens; ids are 0 to vocabulary_size - 1."""
        return len(self._vocabulary.tokens)

    @property
    def bos_id(self) -> int | None:
        """Id of the token that begins a text, None where the vocabulary has none."""
        return self._vocabulary.special.get("bos")

    @property
    def eos_id(self) -> int | None:
        """Id of the token that ends a text, None where the vocabulary has none."""
        return self._vocabulary.special.get("eos")

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids after which a model has nothing more to say: end of text, of turn, of message."""
        return self._vocabulary.stop_ids

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """The token ids of a text.

        add_special: put the bos token before and the eos token after, as the model asks. parse_special: the
        texts of control tokens become their ids; for rendered chat templates, which mostly hold their own bos
        token (add_special=False). Without it no text gives a control token.
        Raises InputError for a text that is no valid Unicode or that the vocabulary cannot express.
        """
        _check_text(text)
        ids: list[int] = []
        after_special = True
        for piece in (self._all_special if parse_special else self._defined).split(text):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids += self._encoder.encode(piece, after_special=after_special)
            after_special = isinstance(piece, int)
        special = self._vocabulary.special
        if add_special and self._add_bos:
            ids.insert(0, special["bos"])
        if add_special and self._add_eos:
            ids.append(special["eos"])
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of token ids: their bytes put together and read as UTF-8.

        Each byte that is no valid UTF-8 there becomes U+FFFD, as `bytes.decode("utf-8", "replace")` does.
        skip_special: control, unknown and unused tokens count as empty. Raises InputError for an id outside
        the vocabulary.
        """
        return b"".join(self.piece(index, skip_special) for index in ids).decode("utf-8", "replace")

    def piece(self, index: int, skip_special: bool = True) -> bytes:
        """What a token adds to a decoded text: its bytes, or none for a special token that is skipped."""
        index = self._check_id(index)
        if skip_special and self._vocabulary.type_of(index) in _SPECIAL:
            return b""
        return self.token_bytes(index)

    def token_bytes(self, index: int) -> bytes:
        """The bytes that a token stands for; a special token stands for its text."""
        index = self._check_id(index)
        text, kind = self._vocabulary.tokens[index], self._vocabulary.type_of(index)
        if kind == TokenType.BYTE:
            return _parse_byte(text, index)
        if kind in _SPECIAL:
            return text.encode()
        if self._byte_level:
            return text.encode() if kind == TokenType.USER_DEFINED else bytes_of_token(text)
        return text.replace(SPACE, " ").encode()

    def token_text(self, index: int) -> str:
        """A token as the vocabulary writes it (bytes and spaces in the vocabulary's own alphabet)."""
        return self._vocabulary.tokens[self._check_id(index)]

    def is_special(self, index: int) -> bool:
        """Whether a token is a control, unknown or unused token, which `decode` skips."""
        return self._vocabulary.type_of(self._check_id(index)) in _SPECIAL

    def _check_id(self, index: int) -> int:
        try:
            number = operator.index(index)
        except TypeError:
            raise InputError(f"the token id {index!r:.60} is no integer") from None
        if not 0 <= number < self.vocabulary_size:
            raise InputError(
                f"the token id {number} is outside the vocabulary; expected 0 to {self.vocabulary_size - 1}"
            )
        return number


_SPECIAL = frozenset({TokenType.CONTROL, TokenType.UNKNOWN, TokenType.UNUSED, TokenType.UNDEFINED})


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise InputError(f"the text is of type {type(text).__name__}, expected str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text holds a lone surrogate U+{ord(text[error.start]):04X} at position {error.start}, "
            "which is no character; read the input as UTF-8"
        ) from None


def _parse_byte(text: str, index: int) -> bytes:
    try:
        return bytes([int(text.removeprefix("<0x").removesuffix(">"), 16)])
    except ValueError:
        raise FormatError(
            f"token {index} is of type byte, but its text is {text!r:.40}, expected one such as '<0x0A>'",
            field=f"metadata '{PREFIX}tokens'",
        ) from None
