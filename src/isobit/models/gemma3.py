"""Gemma 3 (text): local and global layers, norms of queries and keys, a norm before and after each half."""

from __future__ import annotations

import math

from isobit.formats.checkpoint import Checkpoint
from isobit.models.blocks import Config, ProgramBuilder
from isobit.models.rope import rope_table, scaling_from
from isobit.ops import Program, Scale

LAYERS_27B = 62


def build(checkpoint: Checkpoint) -> Program:
    """The program of a `gemma3` file. Norm weights in the file already include the + 1."""
    config = Config.read(checkpoint, rope_theta=1_000_000.0)
    b = ProgramBuilder(checkpoint, config)
    local_theta = checkpoint.key("rope.freq_base_swa", float, 10000.0)
    local_table = rope_table(local_theta, config.rotary_dim, "halves")
    global_table = rope_table(config.rope_theta, config.rotary_dim, "halves", scaling_from(checkpoint))
    window = checkpoint.key("attention.sliding_window", int)
    pattern = checkpoint.key("attention.sliding_window_pattern", int, 6)  # every 6th layer is global
    # The 27B model scales queries by hidden size / heads, all others by head_dim.
    query_size = config.hidden_size / config.num_heads if config.num_layers == LAYERS_27B else config.head_dim

    b.embed("x")
    b.add(Scale("x", math.sqrt(config.hidden_size)), "embed_scale")
    for layer in range(config.num_layers):
        prefix = b.layer(layer)
        is_local = (layer + 1) % pattern != 0
        b.rms_norm("h", "x", f"{prefix}attn_norm.weight", "attn_norm")
        mixed = b.attention(
            layer,
            "h",
            local_table if is_local else global_table,
            1.0 / math.sqrt(query_size),
            window if is_local else None,
            qk_norm=True,
        )
        b.rms_norm(mixed, mixed, f"{prefix}post_attention_norm.weight", "post_attention_norm")
        b.add_into("x", mixed, "attn_residual")
        b.rms_norm("h", "x", f"{prefix}ffn_norm.weight", "ffn_norm")
        mixed = b.gated_mlp(layer, "h", "gelu")
        b.rms_norm(mixed, mixed, f"{prefix}post_ffw_norm.weight", "post_ffw_norm")
        b.add_into("x", mixed, "ffn_residual")
    return b.head("x", softcap=checkpoint.key("final_logit_softcapping", float, 0.0))
