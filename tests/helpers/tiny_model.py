"""Small models with random weights, as real GGUF files: the whole path from file to text in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from helpers.gguf_writer import Tensor, Value, write

HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 96, 800, 2, 4, 2, 32
CONTEXT = 1024
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_model(
    path: Path,
    architecture: str = "llama",
    *,
    weights: str = "Q8_0",
    seed: int = 0,
    metadata: Mapping[str, object] | None = None,
    extra: tuple[Tensor, ...] = (),
    spread: float = 0.4,
) -> Path:
    """A model of about 300,000 weights of type `weights`; `spread` is their standard deviation."""
    tokens, types = _vocabulary()
    keys: dict[str, object] = {
        "general.architecture": architecture,
        **{f"{architecture}.{k}": v for k, v in _sizes(architecture).items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.merges": Value("array", ["h e", "l l"], "string"),
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 257,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
        **(metadata or {}),
    }
    random = np.random.default_rng(seed)
    tensors = [
        _matrix(name, shape, weights, random, spread) for name, shape in _shapes(architecture, len(tokens)).items()
    ]
    return write(path, keys, [*tensors, *extra])


def _sizes(architecture: str) -> dict[str, object]:
    sizes: dict[str, object] = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "feed_forward_length": FEED_FORWARD,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    if architecture == "gemma3":
        sizes |= {"attention.sliding_window": 20, "attention.sliding_window_pattern": 2}
    return sizes


def _shapes(architecture: str, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Tensor names with their shapes; one-dimensional ones are norms and biases."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocabulary, HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        block: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (HIDDEN,),
            "attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            "attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            "ffn_norm.weight": (HIDDEN,),
            "ffn_gate.weight": (FEED_FORWARD, HIDDEN),
            "ffn_up.weight": (FEED_FORWARD, HIDDEN),
            "ffn_down.weight": (HIDDEN, FEED_FORWARD),
        }
        if architecture == "qwen2":
            block |= {
                f"attn_{n}.bias": (heads * HEAD_DIM,) for n, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
            }
        if architecture == "gemma3":
            block |= {f"{n}.weight": (HEAD_DIM,) for n in ("attn_q_norm", "attn_k_norm")}
            block |= {f"{n}.weight": (HIDDEN,) for n in ("post_attention_norm", "post_ffw_norm")}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    return shapes


def _matrix(name: str, shape: tuple[int, ...], kind: str, random: np.random.Generator, spread: float) -> Tensor:
    values = random.normal(0.0, spread, shape).astype(np.float32)
    if len(shape) == 1:
        centre = 0.0 if name.endswith("bias") else 1.0
        return Tensor(name, shape, "F32", (values * 0.1 + centre).astype(np.float32).tobytes())
    if kind == "F32":
        return Tensor(name, shape, kind, values.tobytes())
    packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
    return Tensor(name, shape, kind, packed.tobytes())


def _vocabulary() -> tuple[list[str], list[int]]:
    """The 256 bytes in GPT-2's alphabet, special tokens, and two merged pieces."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    alphabet = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    tokens = [alphabet[b] for b in range(256)]
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    return [*tokens, *special, "he", "ll"], [1] * 256 + [3] * len(special) + [1, 1]
