"""Every variant of the architectures against transformers, on small files with random float weights.

The real models cover the plain settings; these cover RoPE scalings, sliding windows, untied outputs and biases.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import isobit
from helpers.gguf_writer import Tensor
from helpers.oracle import mean_kl
from helpers.tiny_model import (
    CONTEXT,
    FEED_FORWARD,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    write_tiny_model,
)
from isobit.formats.checkpoint import Checkpoint, load_checkpoint

torch = pytest.importorskip("torch", reason="needs the extra `peers`")
transformers = pytest.importorskip("transformers", reason="needs the extra `peers`")

IDS = np.random.default_rng(1).integers(0, 256, 400).tolist()
NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA_NAMES = {
    **NAMES,
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}


def plain_rope(theta: float = 10000.0) -> dict[str, object]:
    return {"rope_type": "default", "rope_theta": theta}


def sizes() -> dict[str, object]:
    return {
        "vocab_size": 261,
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "attn_implementation": "eager",
        "bos_token_id": 256,
        "eos_token_id": 257,
        "pad_token_id": None,
    }


def state_of(checkpoint: Checkpoint, names: dict[str, str], *, interleaved: bool, norm_offset: float):
    """The file's weights under transformers' names."""
    state = {}
    for name, tensor in checkpoint.tensors.items():
        values = np.frombuffer(tensor.data, np.float32).reshape(tensor.shape).copy()
        if name == "token_embd.weight":
            state["model.embed_tokens.weight"] = values
        elif name == "output.weight":
            state["lm_head.weight"] = values
        elif name == "output_norm.weight":
            state["model.norm.weight"] = values - np.float32(norm_offset)
        elif name.startswith("blk."):
            _, layer, part, kind = name.split(".")
            if interleaved and part in ("attn_q", "attn_k"):
                values = halves_from_interleaved(values)
            if part.endswith("norm"):
                values -= np.float32(norm_offset)
            state[f"model.layers.{layer}.{names[part]}.{kind}"] = values
    return {name: torch.from_numpy(values) for name, values in state.items()}


def halves_from_interleaved(values: np.ndarray) -> np.ndarray:
    """Undoes the permutation of query and key rows in llama files."""
    heads = values.shape[0] // HEAD_DIM
    return values.reshape(heads, HEAD_DIM // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)


def check(path: Path, model, names: dict[str, str], *, interleaved: bool = False, norm_offset: float = 0.0) -> None:
    checkpoint = load_checkpoint(path)
    state = state_of(checkpoint, names, interleaved=interleaved, norm_offset=norm_offset)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    with torch.no_grad():
        expected = model.eval()(torch.tensor([IDS])).logits[0].numpy()
    with isobit.load(str(path), cache="f32") as ours:
        logits = ours.logits(IDS, chunk=150)
    kl, agreement = mean_kl(expected, logits)
    assert np.abs(logits - expected).max() < 2e-3 * np.abs(expected).max()
    assert kl < 1e-6
    assert agreement >= 0.99


LLAMA_VARIANTS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "plain": ({}, {"rope_parameters": plain_rope()}),
    "theta": ({"llama.rope.freq_base": 500000.0}, {"rope_parameters": plain_rope(500000.0)}),
    "linear": (
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    ),
    "yarn": (
        {
            "llama.rope.scaling.type": "yarn",
            "llama.rope.scaling.factor": 4.0,
            "llama.rope.scaling.original_context_length": 256,
        },
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 256,
                "rope_theta": 10000.0,
            }
        },
    ),
}


@pytest.mark.parametrize("variant", LLAMA_VARIANTS)
def test_llama(variant: str, tmp_path: Path) -> None:
    metadata, settings = LLAMA_VARIANTS[variant]
    path = write_tiny_model(tmp_path / "m.gguf", weights="F32", spread=0.15, metadata=metadata)
    config = transformers.LlamaConfig(**sizes(), **settings)
    check(path, transformers.LlamaForCausalLM(config), NAMES, interleaved=True)


def test_llama3_frequency_factors(tmp_path: Path) -> None:
    """The tensor rope_freqs.weight holds what transformers computes from its llama3 parameters."""
    parameters = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
        "rope_theta": 10000.0,
    }
    config = transformers.LlamaConfig(**sizes(), rope_parameters=parameters)
    model = transformers.LlamaForCausalLM(config)
    plain = 10000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    divisors = (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    assert divisors.max() > 4
    factors = Tensor("rope_freqs.weight", (HEAD_DIM // 2,), "F32", divisors.tobytes())
    path = write_tiny_model(tmp_path / "m.gguf", weights="F32", spread=0.15, extra=(factors,))
    check(path, model, NAMES, interleaved=True)


def test_mistral_sliding_window(tmp_path: Path) -> None:
    path = write_tiny_model(
        tmp_path / "m.gguf", weights="F32", spread=0.15, metadata={"llama.attention.sliding_window": 50}
    )
    config = transformers.MistralConfig(**sizes(), sliding_window=50, rope_parameters=plain_rope())
    check(path, transformers.MistralForCausalLM(config), NAMES, interleaved=True)


def test_llama_with_an_output_of_its_own(tmp_path: Path) -> None:
    values = np.random.default_rng(9).normal(0, 0.15, (261, HIDDEN)).astype(np.float32)
    output = Tensor("output.weight", (261, HIDDEN), "F32", values.tobytes())
    path = write_tiny_model(tmp_path / "m.gguf", weights="F32", spread=0.15, extra=(output,))
    config = transformers.LlamaConfig(**{**sizes(), "tie_word_embeddings": False}, rope_parameters=plain_rope())
    check(path, transformers.LlamaForCausalLM(config), NAMES, interleaved=True)


def test_qwen2(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", "qwen2", weights="F32", spread=0.15)
    config = transformers.Qwen2Config(**sizes(), rope_parameters=plain_rope())
    check(path, transformers.Qwen2ForCausalLM(config), NAMES)


def test_gemma3(tmp_path: Path) -> None:
    metadata = {"gemma3.rope.freq_base": 1e6, "gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}
    path = write_tiny_model(tmp_path / "m.gguf", "gemma3", weights="F32", spread=0.15, metadata=metadata)
    config = transformers.Gemma3TextConfig(
        **sizes(),
        sliding_window=20,
        layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=HEAD_DIM,
        rope_parameters={
            "sliding_attention": plain_rope(),
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        },
    )
    model = transformers.Gemma3ForCausalLM(config)
    check(path, model, GEMMA_NAMES, norm_offset=1.0)
