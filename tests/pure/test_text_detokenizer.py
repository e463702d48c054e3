"""Incremental decoding equals decoding at once, for any ids, and never gives half a character."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isobit.errors import InputError
from isobit.text.detokenizer import Detokenizer
from isobit.text.tokenizer import Tokenizer, load_tokenizer
from pure.text_vocabularies import byte_pairs, sentence_pieces

BPE = load_tokenizer(byte_pairs())
SPM = load_tokenizer(sentence_pieces({"▁": -3.0, "a": -2.0, "▁a": -1.0}, defined=["<tool>"], add_space_prefix=False))
TOKENIZERS = [BPE, SPM]
# Mostly bytes from 0x80 on, where UTF-8 can go wrong.
IDS = st.lists(st.integers(0, 260) | st.integers(0x80, 0xFF), max_size=40)


def _stream(tokenizer: Tokenizer, ids: list[int], skip_special: bool = True) -> tuple[list[str], str]:
    detokenizer = Detokenizer(tokenizer, skip_special)
    return [detokenizer.push(index) for index in ids], detokenizer.finish()


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(ids=IDS, skip_special=st.booleans())
@example(ids=[0xE2, 0x82], skip_special=True)
@example(ids=[0xF0, 0x9F, 0x41, 0x98], skip_special=True)
def test_stream_equals_decode(tokenizer: Tokenizer, ids: list[int], skip_special: bool) -> None:
    parts, rest = _stream(tokenizer, ids, skip_special)
    data = b"".join(tokenizer.piece(index, skip_special) for index in ids)
    assert "".join(parts) + rest == tokenizer.decode(ids, skip_special) == data.decode("utf-8", "replace")


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(text=st.text(st.sampled_from("aé€😀👩🏽\u200d ") | st.characters(codec="utf-8"), max_size=20))
def test_valid_text_comes_without_replacements(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special=False)
    parts, rest = _stream(tokenizer, ids)
    assert rest == ""
    assert "".join(parts) == (text.replace("▁", " ") if tokenizer is SPM else text)
    seen = b""
    for index, part in zip(ids, parts, strict=True):
        seen += tokenizer.piece(index)
        assert seen.endswith(part.encode())  # nothing that is not there yet
        seen = seen if part == "" else b""


def test_emoji_across_tokens() -> None:
    ids = list("😀".encode())
    parts, rest = _stream(BPE, ids)
    assert (parts, rest) == (["", "", "", "😀"], "")
    parts, rest = _stream(BPE, ids[:3])
    assert (parts, rest) == (["", "", ""], "\ufffd")
    parts, rest = _stream(BPE, [*ids[:2], ord("x")])
    assert (parts, rest) == (["", "", "\ufffdx"], "")


def test_special_tokens_within_a_character() -> None:
    ids = [0xC3, *BPE.stop_ids, 0xA9]
    assert "".join(_stream(BPE, ids)[0]) == "é"
    assert "".join(_stream(BPE, ids, skip_special=False)[0]).startswith("\ufffd<")


def test_finish_begins_anew_and_bad_ids_leave_no_trace() -> None:
    detokenizer = Detokenizer(BPE)
    assert detokenizer.push(0xC3) == ""
    with pytest.raises(InputError):
        detokenizer.push(10**9)
    assert detokenizer.push(0xA9) == "é"
    assert detokenizer.push(0xC3) == ""
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""
    assert detokenizer.push(0x41) == "A"
