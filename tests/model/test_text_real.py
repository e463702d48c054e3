"""Tokenizers and chat templates of the real models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from isobit.errors import TemplateError
from isobit.formats.gguf import open_gguf
from isobit.text.detokenizer import Detokenizer
from isobit.text.template import ChatTemplate
from isobit.text.tokenizer import Tokenizer, load_tokenizer

TEXTS = Path(__file__).parents[1] / "golden" / "texts"
MODELS = ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b"]

USER = {"role": "user", "content": "Hi"}
ASSISTANT = {"role": "assistant", "content": "Hello!"}
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def _open(path: Path) -> tuple[Tokenizer, dict[str, object]]:
    with open_gguf(path) as file:
        return load_tokenizer(file.metadata), dict(file.metadata)


@pytest.mark.parametrize("name", MODELS)
def test_ids_equal_those_of_transformers(model_path: Callable[[str], Path], name: str) -> None:
    tokenizer, _ = _open(model_path(name))
    expected = json.loads((TEXTS / "tokens.json").read_text(encoding="utf-8"))[name]
    text = (TEXTS / "numerics.txt").read_text(encoding="utf-8")
    ids = tokenizer.encode(text)
    assert ids[: len(expected)] == expected
    detokenizer = Detokenizer(tokenizer)
    assert "".join(map(detokenizer.push, ids)) + detokenizer.finish() == text


@pytest.mark.parametrize("name", MODELS)
def test_hostile_texts_come_back(model_path: Callable[[str], Path], name: str) -> None:
    tokenizer, _ = _open(model_path(name))
    text = "a<|im_end|><end_of_turn><eos>\r\n\t  ▁e\u0301 👩‍👩‍👧‍👦 \u00a0ﷺ\n\n\n" + "x" * 3000 + "\n" * 70
    ids = tokenizer.encode(text, add_special=False)
    assert not any(map(tokenizer.is_special, ids))
    assert tokenizer.decode(ids) == (text.replace("▁", " ") if name.startswith("gemma") else text)


def test_smollm2_template(model_path: Callable[[str], Path]) -> None:
    tokenizer, metadata = _open(model_path("smollm2-135m"))
    template = ChatTemplate.from_metadata(metadata, tokenizer)
    default = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    prompt = template.render([USER])
    assert prompt == default + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.encode(prompt, add_special=False, parse_special=True)
    assert [ids.count(1), ids.count(2)] == [3, 2]
    assert tokenizer.decode(ids, skip_special=False) == prompt
    assert template.render([SYSTEM, USER, ASSISTANT], add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n"
    )


def test_qwen_template_with_tools(model_path: Callable[[str], Path]) -> None:
    tokenizer, metadata = _open(model_path("qwen2.5-coder-0.5b"))
    template = ChatTemplate.from_metadata(metadata, tokenizer)
    plain = template.render([SYSTEM, USER])
    assert plain == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    prompt = template.render([SYSTEM, USER, CALL, {"role": "tool", "content": "2"}], tools=[TOOL])
    assert '<tools>\n{"type": "function", "function": {"name": "f", "parameters": {}}}\n</tools>' in prompt
    assert prompt.endswith(
        '<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n2\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_gemma_base_model_has_no_template(model_path: Callable[[str], Path]) -> None:
    tokenizer, metadata = _open(model_path("gemma3-270m"))
    with pytest.raises(TemplateError, match="--raw"):
        ChatTemplate.from_metadata(metadata, tokenizer)


def test_stop_tokens(model_path: Callable[[str], Path]) -> None:
    texts = {}
    for name in MODELS:
        tokenizer, _ = _open(model_path(name))
        texts[name] = {tokenizer.token_text(index) for index in tokenizer.stop_ids}
    assert texts == {
        "smollm2-135m": {"<|im_end|>", "<|endoftext|>"},
        "gemma3-270m": {"<eos>", "<end_of_turn>"},
        "qwen2.5-coder-0.5b": {"<|im_end|>", "<|endoftext|>"},
    }
