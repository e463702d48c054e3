"""Qwen 2 and 2.5: attention with biases, rotary pairs in halves."""

from __future__ import annotations

import math

from isobit.formats.checkpoint import Checkpoint
from isobit.models.blocks import Config, ProgramBuilder
from isobit.models.rope import rope_table, scaling_from
from isobit.ops import Program


def build(checkpoint: Checkpoint) -> Program:
    """The program of a `qwen2` file."""
    config = Config.read(checkpoint, rope_theta=1_000_000.0)
    b = ProgramBuilder(checkpoint, config)
    table = rope_table(config.rope_theta, config.rotary_dim, "halves", scaling_from(checkpoint))
    scale = 1.0 / math.sqrt(config.head_dim)

    b.embed("x")
    for layer in range(config.num_layers):
        prefix = b.layer(layer)
        b.rms_norm("h", "x", f"{prefix}attn_norm.weight", "attn_norm")
        b.add_into("x", b.attention(layer, "h", table, scale), "attn_residual")
        b.rms_norm("h", "x", f"{prefix}ffn_norm.weight", "ffn_norm")
        b.add_into("x", b.gated_mlp(layer, "h", "silu"), "ffn_residual")
    return b.head("x")
