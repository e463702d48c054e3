"""Tokenizers from small vocabularies: ids by hand, by brute force and by other implementations; bad metadata."""

from __future__ import annotations

import io
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from isobit.errors import FormatError, InputError, UnsupportedError
from isobit.text.pretokenizers import PRETOKENIZERS
from isobit.text.tokenizer import Tokenizer, load_tokenizer
from isobit.text.vocabulary import TokenType
from pure.text_vocabularies import MERGES, Metadata, byte_pairs, sentence_pieces, with_keys

BEST_FIRST = (
    *("▁t", "he", "▁the", "in", "▁a", "at", "a▁", "on", "h", "e"),
    *("t", "n", "i", "o", "▁", "a", "ab", "ba", "aba"),
)
PIECES = {text: -float(rank) for rank, text in enumerate(BEST_FIRST)}
BPE = load_tokenizer(byte_pairs())
SPM = load_tokenizer(sentence_pieces(PIECES, add_space_prefix=False))
TEXTS = st.text(st.sampled_from("hello wrt12\n 😀é<s>/|im_endtool") | st.characters(codec="utf-8"), max_size=60)


def _texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.token_text(index) for index in ids]


def test_byte_pairs_by_hand() -> None:
    assert _texts(BPE, BPE.encode("hello world", add_special=False)) == ["hello", "Ġwor", "l", "d"]
    assert BPE.encode("é", add_special=False) == [0xC3, 0xA9]
    assert BPE.encode("", add_special=False) == []


@given(st.text(st.sampled_from("helowr t12"), max_size=40))
def test_byte_pairs_equal_brute_force(text: str) -> None:
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(MERGES)}
    expected: list[str] = []
    for piece in re.split("(   )", text):  # the user-defined token
        for word in re.findall(r" ?[a-z]+| ?[0-9]+| +(?! ?[a-z0-9])| +?(?=$| ?[a-z0-9])", piece):
            parts = list(word.replace(" ", "Ġ"))
            while pairs := [pair for pair in pairwise(parts) if pair in ranks]:
                best = min(pairs, key=ranks.__getitem__)
                place = next(i for i in range(len(parts)) if tuple(parts[i : i + 2]) == best)
                parts[place : place + 2] = ["".join(best)]
            expected += ["   "] if piece == "   " else parts
    assert _texts(BPE, BPE.encode(text, add_special=False)) == expected


@pytest.mark.parametrize("pre", sorted(PRETOKENIZERS))
def test_every_pretokenizer_loses_nothing(pre: str) -> None:
    tokenizer = load_tokenizer(byte_pairs(pre=pre))

    @given(TEXTS)
    def check(text: str) -> None:
        assert tokenizer.decode(tokenizer.encode(text, add_special=False), skip_special=False) == text

    check()


@pytest.mark.parametrize(
    ("pre", "text", "words"),
    [
        ("llama-bpe", "I'LL pay 12345 !!\n\nok", ["I", "'LL", " pay", " ", "123", "45", " !!\n\n", "ok"]),
        ("qwen2", "x12", ["x", "1", "2"]),
        ("qwen35", "e\u0301a b", ["e\u0301a", " b"]),
        ("gpt-2", "we're   12", ["we", "'re", "  ", " 12"]),
        ("smollm", "a 12", ["a", " ", "1", "2"]),
        ("tekken", "fooBar's", ["foo", "Bar", "'s"]),
        ("gpt-4o", "fooBar's", ["foo", "Bar's"]),
        ("deepseek-v3", "1234ab 日本x", ["123", "4", "ab", " ", "日本", "x"]),
        ("deepseek-llm", "ab1234\n日本!", ["ab", "1234", "\n", "日本", "!"]),
        ("deepseek-coder", "ab 12!", ["ab", " ", "1", "2", "!"]),
        ("falcon", "a12345``", ["a", "123", "45", "``"]),
    ],
)
def test_words_of_pretokenizers(pre: str, text: str, words: list[str]) -> None:
    from tokenizers import Regex, pre_tokenizers

    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PRETOKENIZERS[pre].patterns]
    assert [word for word, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text)] == words


def test_whole_words_are_kept_only_where_the_model_says() -> None:
    metadata = byte_pairs(merges=["a b", "c d", "ab cd", "b c"])
    merges = ["b c", "a b", "c d", "ab cd"]  # "bc" first, so "abcd" is never merged
    ids = {
        pre: load_tokenizer(with_keys(metadata, pre=pre, merges=merges)).encode("abcd", add_special=False)
        for pre in ("llama-bpe", "gpt-2")
    }
    assert [len(ids["llama-bpe"]), len(ids["gpt-2"])] == [1, 3]


@given(st.text(st.sampled_from("thea inob\n▁é"), max_size=40), st.booleans())
def test_sentence_pieces_equal_brute_force(text: str, prefix: bool) -> None:
    tokenizer = load_tokenizer(sentence_pieces(PIECES, add_space_prefix=prefix))
    parts = list((" " * prefix * bool(text) + text).replace(" ", "▁"))
    while True:
        joined = [
            (PIECES[left + right], -place)
            for place, (left, right) in enumerate(pairwise(parts))
            if left + right in PIECES
        ]
        if not joined:
            break
        place = -max(joined)[1]
        parts[place : place + 2] = ["".join(parts[place : place + 2])]
    expected = [
        name for part in parts for name in ([part] if part in PIECES else [f"<0x{byte:02X}>" for byte in part.encode()])
    ]
    assert _texts(tokenizer, tokenizer.encode(text, add_special=False)) == expected


@pytest.fixture(scope="module")
def trained() -> tuple[sentencepiece.SentencePieceProcessor, Tokenizer]:
    """A SentencePiece model trained here, and ours made of its pieces."""
    lines = ["the quick brown fox jumps over the lazy dog", "  two  spaces and\tthe tab", "naïve café über alles"] * 9
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=380, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True,
        user_defined_symbols=["<tool>"], minloglevel=2,
    )  # fmt: skip
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(theirs.get_piece_size())
    kinds = {"is_unknown": TokenType.UNKNOWN, "is_control": TokenType.CONTROL, "is_byte": TokenType.BYTE}
    types = [next((kind for test, kind in kinds.items() if getattr(theirs, test)(i)), TokenType.NORMAL) for i in ids]
    types[theirs.piece_to_id("<tool>")] = TokenType.USER_DEFINED
    metadata = sentence_pieces({})
    ours = with_keys(
        metadata,
        tokens=[theirs.id_to_piece(i) for i in ids],
        token_type=np.array(types, np.int32),
        scores=np.array([theirs.get_score(i) for i in ids], np.float32),
    )
    return theirs, load_tokenizer(ours)


@given(text=st.text(st.sampled_from("the quickbrown dogïé 😀\tz"), min_size=1, max_size=60))
def test_sentence_pieces_equal_the_library(
    trained: tuple[sentencepiece.SentencePieceProcessor, Tokenizer], text: str
) -> None:
    theirs, ours = trained
    assert ours.encode(text, add_special=False) == theirs.encode(text)


def test_unused_tokens_are_taken_apart() -> None:
    metadata = sentence_pieces({"a": -9.0, "b": -8.0, "ab": -1.0, "abb": -2.0}, add_space_prefix=False)
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    types = np.array(metadata["tokenizer.ggml.token_type"])
    types[tokens.index("abb")] = TokenType.UNUSED
    tokenizer = load_tokenizer(with_keys(metadata, token_type=types))
    assert _texts(tokenizer, tokenizer.encode("abb", add_special=False)) == ["ab", "b"]


def test_no_text_forges_control_tokens() -> None:
    for tokenizer in (BPE, SPM):
        for text in ("<s>", "</s>", "<unk>", "a</s>b", "<|im_end|>"):
            ids = tokenizer.encode(text, add_special=False)
            assert not any(map(tokenizer.is_special, ids))
            assert tokenizer.decode(ids) == text


def test_control_tokens_of_templates() -> None:
    ids = BPE.encode("<s>hello<|im_end|><s", add_special=False, parse_special=True)
    assert _texts(BPE, ids) == ["<s>", "hello", "<|im_end|>", "<", "s"]
    assert BPE.decode(ids) == "hello<s"
    assert BPE.decode(ids, skip_special=False) == "<s>hello<|im_end|><s"


def test_user_defined_tokens_are_found_longest_first() -> None:
    tokenizer = load_tokenizer(byte_pairs(defined=("ab", "abc", "c", "bcd")))
    assert _texts(tokenizer, tokenizer.encode("abcdabc", add_special=False)) == ["abc", "d", "abc"]
    assert _texts(tokenizer, tokenizer.encode("bcdbc", add_special=False)) == ["bcd", "b", "c"]


def test_bos_and_eos_as_the_model_asks() -> None:
    bos, eos = BPE.bos_id, BPE.eos_id
    assert BPE.encode("1") == [ord("1")]
    both = load_tokenizer(byte_pairs(add_bos_token=True, add_eos_token=True))
    assert both.encode("1") == [bos, ord("1"), eos]
    assert both.encode("") == [bos, eos]
    assert both.encode("1", add_special=False) == [ord("1")]
    assert load_tokenizer(byte_pairs(pre="llama-bpe")).encode("1")[0] == bos
    assert SPM.encode("a")[0] == SPM.bos_id


def test_space_prefix_at_the_start_and_after_control_tokens() -> None:
    tokenizer = load_tokenizer(sentence_pieces(PIECES))
    ids = tokenizer.encode("the</s>the", add_special=False, parse_special=True)
    assert _texts(tokenizer, ids) == ["▁the", "</s>", "▁the"]
    assert tokenizer.encode("", add_special=False) == []


def test_stop_tokens() -> None:
    assert _texts(BPE, sorted(BPE.stop_ids)) == ["</s>", "<|im_end|>"]
    tokenizer = load_tokenizer(byte_pairs(control=("<s>", "</s>", "<|end|>", "<|call|>", "<|return|>")))
    assert _texts(tokenizer, sorted(tokenizer.stop_ids)) == ["</s>", "<|call|>", "<|return|>"]
    # Marked as user-defined by its converter; still no text may forge it.
    tokenizer = load_tokenizer(byte_pairs(control=("<s>", "</s>"), defined=("<|im_end|>",)))
    assert tokenizer.is_special(max(tokenizer.stop_ids))
    assert len(tokenizer.encode("<|im_end|>", add_special=False)) > 1


def test_token_bytes() -> None:
    assert BPE.token_bytes(BPE.encode(" wor", add_special=False)[0]) == b" wor"
    assert [BPE.token_bytes(index) for index in range(256)] == [bytes([byte]) for byte in range(256)]
    assert [SPM.token_bytes(3 + byte) for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert BPE.token_bytes(BPE.vocabulary_size - 2) == b"<tool>"
    assert SPM.token_bytes(SPM.encode(" the", add_special=False)[0]) == b" the"
    odd = load_tokenizer(_odd_tokens())
    assert odd.token_bytes(256) == "™".encode()


def _odd_tokens() -> Metadata:
    metadata = byte_pairs(merges=["h e", "l l"])
    tokens = [*metadata["tokenizer.ggml.tokens"]]  # type: ignore[misc]
    tokens[256] = "™"
    return with_keys(metadata, tokens=tokens, merges=["l l"])


def test_many_threads_give_the_same_ids() -> None:
    texts = [f"hello world the inn {number} " * 5 for number in range(200)]
    for tokenizer in (BPE, SPM):
        expected = [tokenizer.encode(text) for text in texts]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(tokenizer.encode, texts)) == expected


@pytest.mark.parametrize("tokenizer", [BPE, SPM])
@pytest.mark.parametrize("index", [-1, 10**6, 2**70])
def test_ids_outside_the_vocabulary_are_refused(tokenizer: Tokenizer, index: int) -> None:
    with pytest.raises(InputError, match=rf"{index}.*expected 0 to {tokenizer.vocabulary_size - 1}"):
        tokenizer.decode([0, index])


def test_ids_that_are_no_integers_are_refused() -> None:
    with pytest.raises(InputError, match=r"1\.5"):
        BPE.decode([1.5])  # type: ignore[list-item]
    assert BPE.decode(np.array([104, 105])) == "hi"  # type: ignore[arg-type]


@pytest.mark.parametrize("tokenizer", [BPE, SPM])
def test_texts_that_are_none_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"surrogate U\+D800 at position 2"):
        tokenizer.encode("ab\ud800")
    with pytest.raises(InputError, match="bytes"):
        tokenizer.encode(b"ab")  # type: ignore[arg-type]


def test_characters_that_the_vocabulary_lacks_are_refused() -> None:
    metadata = byte_pairs()
    tokens = [*metadata["tokenizer.ggml.tokens"]]  # type: ignore[misc]
    tokens[0x04] = "<no byte 4>"
    tokens[0xF1] = "<no byte F1>"
    tokenizer = load_tokenizer(with_keys(metadata, tokens=tokens))
    assert tokenizer.decode(tokenizer.encode("hello 😀")) == "hello 😀"
    for text, name in (("a\x04", r"U\+0004"), ("\U00050000", r"U\+50000")):
        with pytest.raises(InputError, match=name):
            tokenizer.encode(text)


def _without_byte_10() -> Metadata:
    tokens = [*PIECES_GOOD["tokenizer.ggml.tokens"]]  # type: ignore[misc]
    tokens[3 + 10] = "<0x00>"
    return with_keys(PIECES_GOOD, tokens=tokens)


GOOD = byte_pairs()
PIECES_GOOD = sentence_pieces(PIECES)
COUNT = BPE.vocabulary_size


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (with_keys(GOOD, tokens=None), "tokens.*missing"),
        (with_keys(GOOD, tokens=[], token_type=None), "tokens.*empty"),
        (with_keys(GOOD, tokens="abc"), "tokens.*type str, expected list"),
        (with_keys(GOOD, model=None), "model.*missing"),
        (with_keys(GOOD, model=7), "model.*type int"),
        (with_keys(GOOD, token_type=np.ones(COUNT - 1, np.int32)), f"token_type.*{COUNT - 1} entries, expected"),
        (with_keys(GOOD, token_type=np.ones(COUNT, np.float32)), "token_type.*float32"),
        (with_keys(GOOD, token_type=np.full(COUNT, 7, np.int32)), "token_type.*token 0 the type 7"),
        (with_keys(GOOD, token_type=np.full(COUNT, -1, np.int32)), "token_type.*type -1"),
        (with_keys(GOOD, bos_token_id=COUNT), f"bos_token_id.*{COUNT}, outside the vocabulary"),
        (with_keys(GOOD, padding_token_id=-1), "padding_token_id.*-1, outside"),
        (with_keys(GOOD, eot_token_id=True), "eot_token_id.*type bool, expected int"),
        (with_keys(GOOD, add_bos_token=1), "add_bos_token.*type int, expected bool"),
        (with_keys(GOOD, add_bos_token=True, bos_token_id=None), "bos_token_id.*missing"),
        (with_keys(GOOD, add_eos_token=True, eos_token_id=None), "eos_token_id.*missing"),
        (with_keys(GOOD, merges=None), "merges.*missing or empty"),
        (with_keys(GOOD, merges=["h e", "nope x"]), "merges.*entry 1 is 'nope x'"),
        (with_keys(GOOD, merges=["h", "h e"]), "merges.*entry 0 is 'h'"),
        (with_keys(GOOD, merges=["h e l"]), "merges.*entry 0"),
        (with_keys(GOOD, merges=["e h"]), "merges.*entry 0 is 'e h'"),
        (with_keys(GOOD, merges=["< s"]), "merges.*entry 0 is '< s'"),
        (with_keys(PIECES_GOOD, scores=None), "scores.*missing"),
        (with_keys(PIECES_GOOD, scores=np.zeros(3, np.float32)), "scores.*3 entries"),
        (with_keys(PIECES_GOOD, scores=np.full(259 + len(PIECES), np.nan, np.float32)), "scores.*nan"),
        (with_keys(PIECES_GOOD, bos_token_id=None), "bos_token_id.*missing"),
        (_without_byte_10(), "0x0A"),
    ],
)  # fmt: skip
def test_bad_metadata_is_refused(metadata: Metadata, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load_tokenizer(metadata)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (with_keys(GOOD, model="bert"), "'bert'.*gpt2, llama"),
        (with_keys(GOOD, pre="nope"), "'nope'.*llama-bpe.*qwen2"),
        (with_keys(GOOD, pre=None), "missing"),
        (with_keys(PIECES_GOOD, remove_extra_whitespaces=True), "remove_extra_whitespaces"),
    ],
)
def test_what_is_not_supported_is_named(metadata: Metadata, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        load_tokenizer(metadata)
