"""How each `tokenizer.ggml.pre` cuts a text into words before the merges of byte pairs.

A pre-tokenizer is a list of patterns (Oniguruma syntax); each one in turn cuts every piece left by those
before into its matches and what lies between them. Source: the tokenizer.json published with each model; a
pattern is part of the model's format. Names: the GGUF format's.
"""

from __future__ import annotations

from dataclasses import dataclass

from isobit.errors import UnsupportedError

_SPACES = r"\s+(?!\S)|\s+"
_CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"


def _modern(digits: str, letters: str = r"\p{L}") -> str:
    """The form that began with GPT-4: digits in short groups, a word may start with any one sign."""
    return (
        rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|{digits}"
        rf"| ?[^\s{letters}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{_SPACES}"
    )


def _cased(digits: str, ending: str) -> str:
    """The form that began with GPT-4o: a word also ends where small letters are followed by a capital."""
    upper, lower = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{start}[{upper}]*[{lower}]+{ending}|{start}[{upper}]+[{lower}]*{ending}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|{_SPACES}"
    )


def _ranges(text: str) -> str:
    """A character class's inside from hexadecimal code points and ranges, as in "41-5A B5"."""
    return "".join("-".join(rf"\x{{{end}}}" for end in item.split("-")) for item in text.split())


_DEEPSEEK_LETTERS = _ranges(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F 386 388-38A "
    "38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF "
    "1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D "
    "1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 "
    "1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F "
    "2145-2149 214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2-2CF3 A640-A66D A680-A69B A722-A76F "
    "A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 "
    "104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_DEEPSEEK_SIGNS = _ranges("21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002")
_DEEPSEEK_CJK = rf"[{_ranges('4E00-9FA5 800-4E00 AC00-D7FF')}]+"


@dataclass(frozen=True)
class Pretokenizer:
    """patterns: applied in order. whole_words: a word that is a token stays whole, whatever the merges say.

    add_bos: what holds where the file has no `add_bos_token`.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False


_gpt2 = Pretokenizer((_GPT2,))
_digits_gpt2 = Pretokenizer((r"\p{N}", _GPT2))
_llama3 = Pretokenizer((_modern(r"\p{N}{1,3}"),), whole_words=True, add_bos=True)
_cl100k = Pretokenizer((_modern(r"\p{N}{1,3}"),))
_qwen2 = Pretokenizer((_modern(r"\p{N}"),))
_gpt4o = Pretokenizer((_cased(r"\p{N}{1,3}", rf"(?i:{_CONTRACTIONS})?"),))

PRETOKENIZERS: dict[str, Pretokenizer] = {
    "gpt-2": _gpt2, "phi-2": _gpt2, "mpt": _gpt2, "olmo": _gpt2, "exaone4": _gpt2,
    "starcoder": _digits_gpt2, "refact": _digits_gpt2, "command-r": _digits_gpt2, "smollm": _digits_gpt2,
    "codeshell": _digits_gpt2, "exaone": _digits_gpt2, "minerva-7b": _digits_gpt2,
    "llama-bpe": _llama3, "llama3": _llama3, "llama-v3": _llama3, "falcon3": _llama3,
    "dbrx": _cl100k, "smaug-bpe": _cl100k, "chatglm-bpe": _cl100k,
    "glm4": Pretokenizer(_cl100k.patterns, whole_words=True),
    "qwen2": _qwen2, "deepseek-r1-qwen": _qwen2, "stablelm2": _qwen2, "megrez": _qwen2, "hunyuan": _qwen2,
    "qwen35": Pretokenizer((_modern(r"\p{N}", letters=r"\p{L}\p{M}"),)),
    "gpt-4o": _gpt4o, "llama4": _gpt4o,
    "tekken": Pretokenizer((_cased(r"\p{N}", ""),), whole_words=True, add_bos=True),
    "falcon": Pretokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "deepseek-llm": Pretokenizer(
        (
            r"[\r\n]", rf"\s?[{_DEEPSEEK_LETTERS}]+", rf"\s?[{_DEEPSEEK_SIGNS}]+", r"\s+$",
            _DEEPSEEK_CJK, r"\p{N}+",
        )
    ),
    "deepseek-coder": Pretokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")),
    "deepseek-v3": Pretokenizer(
        (
            r"\p{N}{1,3}", rf"[{_ranges('4E00-9FA5 3040-309F 30A0-30FF')}]+",
            r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|\s*[\r\n]+|{_SPACES}",
        )
    ),
}  # fmt: skip


def pretokenizer(name: str | None) -> Pretokenizer:
    """The pre-tokenizer of that name; raises UnsupportedError naming it and the known ones."""
    known = ", ".join(sorted(PRETOKENIZERS))
    if name is None:
        raise UnsupportedError(
            "the file does not name its pre-tokenizer ('tokenizer.ggml.pre' is missing), and a guess would "
            f"give wrong token ids; convert the model again with a newer converter (known: {known})"
        )
    found = PRETOKENIZERS.get(name)
    if found is None:
        raise UnsupportedError(f"the pre-tokenizer 'tokenizer.ggml.pre' = {name!r} is not supported; known: {known}")
    return found
