"""Llama: SmolLM2, Llama 2 and 3 (linear, YaRN and rope_freqs scaling), Mistral (sliding window)."""

from __future__ import annotations

import math

from isobit.formats.checkpoint import Checkpoint
from isobit.models.blocks import Config, ProgramBuilder
from isobit.models.rope import rope_table, scaling_from
from isobit.ops import Program


def build(checkpoint: Checkpoint) -> Program:
    """The program of a `llama` file (rotary pairs are interleaved: the file's query and key rows are permuted)."""
    config = Config.read(checkpoint)
    b = ProgramBuilder(checkpoint, config)
    divisors = None
    if checkpoint.optional_tensor("rope_freqs.weight") is not None:
        divisors = b.vector("rope_freqs.weight", config.rotary_dim // 2)
    table = rope_table(config.rope_theta, config.rotary_dim, "interleaved", scaling_from(checkpoint), divisors)
    scale = checkpoint.key("attention.scale", float, 0.0) or 1.0 / math.sqrt(config.head_dim)
    window = checkpoint.key("attention.sliding_window", int, 0) or None

    b.embed("x")
    for layer in range(config.num_layers):
        prefix = b.layer(layer)
        b.rms_norm("h", "x", f"{prefix}attn_norm.weight", "attn_norm")
        b.add_into("x", b.attention(layer, "h", table, scale, window), "attn_residual")
        b.rms_norm("h", "x", f"{prefix}ffn_norm.weight", "ffn_norm")
        b.add_into("x", b.gated_mlp(layer, "h", "silu"), "ffn_residual")
    return b.head("x")
