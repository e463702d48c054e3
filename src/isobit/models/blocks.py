"""What the architectures share: a builder that collects operations, and the two halves of a transformer layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isobit.errors import FormatError, UnsupportedError
from isobit.formats.checkpoint import Checkpoint
from isobit.ops import (
    Add,
    Attention,
    Embed,
    GatedActivation,
    KvWrite,
    Linear,
    Op,
    Program,
    RmsNorm,
    Rope,
    RopeTable,
    SelectRows,
    Softcap,
    Weight,
)
from isobit.quants import dequantize


@dataclass(frozen=True)
class Config:
    """Sizes that every supported architecture has, from `{arch}.*` metadata."""

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    rms_norm_eps: float
    rope_theta: float
    rotary_dim: int

    @classmethod
    def read(cls, checkpoint: Checkpoint, rope_theta: float = 10000.0) -> Config:
        """Reads and checks the sizes; `rope_theta` is the default of the architecture."""
        key = checkpoint.key
        hidden, heads = key("embedding_length", int), key("attention.head_count", int)
        if hidden <= 0 or heads <= 0:
            raise FormatError(f"hidden size {hidden}, {heads} heads; both must be positive", field="head_count")
        head_dim = key("attention.key_length", int, hidden // heads)
        config = cls(
            checkpoint.architecture,
            hidden,
            key("feed_forward_length", int),
            key("block_count", int),
            heads,
            key("attention.head_count_kv", int, heads),
            head_dim,
            key("context_length", int),
            key("attention.layer_norm_rms_epsilon", float),
            key("rope.freq_base", float, rope_theta),
            key("rope.dimension_count", int, head_dim),
        )
        config.check(key("attention.value_length", int, head_dim), key("expert_count", int, 0))
        return config

    def check(self, value_length: int, experts: int) -> None:
        """Refuses shapes that the blocks below would silently get wrong."""
        if self.num_kv_heads <= 0 or self.num_heads % self.num_kv_heads:
            raise FormatError(
                f"{self.num_heads} heads cannot share {self.num_kv_heads} key/value heads",
                field="head_count_kv",
            )
        if value_length != self.head_dim:
            raise UnsupportedError(
                f"value heads of {value_length} features with key heads of {self.head_dim} are not supported"
            )
        if experts:
            raise UnsupportedError(f"{experts} experts: mixture-of-experts models are not supported yet")
        if self.rotary_dim % 2 or not 0 < self.rotary_dim <= self.head_dim:
            raise FormatError(
                f"is {self.rotary_dim}; expected an even number up to {self.head_dim}",
                field="rope.dimension_count",
            )
        if min(self.num_layers, self.context_length, self.intermediate_size) <= 0 or not self.rms_norm_eps > 0:
            raise FormatError("layers, context, feed-forward size and epsilon must be positive", field="config")


class ProgramBuilder:
    """Collects operations and the width of each buffer, checking that shapes fit."""

    def __init__(self, checkpoint: Checkpoint, config: Config) -> None:
        self.checkpoint = checkpoint
        self.config = config
        self._ops: list[Op] = []
        self._layers: list[int] = []
        self._labels: list[str] = []
        self._windows: list[int | None] = []
        self._widths: dict[str, int] = {}
        self._layer = -1

    def layer(self, index: int) -> str:
        """Starts a layer (−1: outside all layers); returns the prefix of its tensors' names."""
        self._layer = index
        return f"blk.{index}."

    def add(self, op: Op, label: str, out: str = "", width: int = 0) -> None:
        """Appends an operation that writes `width` features to buffer `out`."""
        if out and self._widths.setdefault(out, width) != width:
            raise FormatError(f"buffer {out} has {self._widths[out]} features, not {width}", field=label)
        self._ops.append(op)
        self._layers.append(self._layer)
        self._labels.append(f"layers.{self._layer}.{label}" if self._layer >= 0 else label)

    def vector(self, name: str, size: int) -> npt.NDArray[np.float32]:
        """A one-dimensional tensor as float32 [size]."""
        tensor = self.checkpoint.tensor(name)
        if tensor.shape != (size,):
            raise FormatError(f"shape is {tensor.shape}, expected ({size},)", field=name)
        return dequantize(tensor.type, tensor.data, (1, size)).reshape(size)

    def matrix(self, name: str, rows: int, columns: int) -> Weight:
        """A two-dimensional tensor [rows, columns], as it lies in the file."""
        tensor = self.checkpoint.tensor(name)
        if tensor.shape != (rows, columns):
            raise FormatError(f"shape is {tensor.shape}, expected ({rows}, {columns})", field=name)
        return tensor

    def embed(self, out: str) -> None:
        """Looks the token embeddings up."""
        table = self.matrix("token_embd.weight", self.vocabulary_size, self.config.hidden_size)
        self.add(Embed(out, table), "embed", out, self.config.hidden_size)

    @property
    def vocabulary_size(self) -> int:
        """Rows of the embedding."""
        return self.checkpoint.tensor("token_embd.weight").shape[0]

    def rms_norm(self, out: str, x: str, tensor: str, label: str, heads: int = 1) -> None:
        """out = rms_norm(x), with `heads` > 1 over each head."""
        width = self._widths[x]
        weight = self.vector(tensor, width // heads)
        self.add(RmsNorm(out, x, weight, self.config.rms_norm_eps, heads), label, out, width)

    def linear(self, out: str, x: str, tensor: str, width: int, label: str, *, precise: bool = False) -> None:
        """out = x · tensorᵀ, with the bias if the file has one of that name."""
        weight = self.matrix(f"{tensor}.weight", width, self._widths[x])
        has_bias = self.checkpoint.optional_tensor(f"{tensor}.bias") is not None
        bias = self.vector(f"{tensor}.bias", width) if has_bias else None
        self.add(Linear(out, x, weight, bias, precise), label, out, width)

    def add_into(self, x: str, y: str, label: str) -> None:
        """x = x + y."""
        self.add(Add(x, x, y), label, x, self._widths[x])

    def attention(
        self,
        layer: int,
        x: str,
        table: RopeTable,
        scale: float,
        window: int | None = None,
        qk_norm: bool = False,
    ) -> str:
        """Self-attention of the normalised `x`; returns the buffer with the projected output."""
        c, prefix = self.config, f"blk.{layer}."
        self.linear("q", x, f"{prefix}attn_q", c.num_heads * c.head_dim, "q_proj")
        self.linear("k", x, f"{prefix}attn_k", c.num_kv_heads * c.head_dim, "k_proj")
        self.linear("v", x, f"{prefix}attn_v", c.num_kv_heads * c.head_dim, "v_proj")
        if qk_norm:
            self.rms_norm("q", "q", f"{prefix}attn_q_norm.weight", "q_norm", c.num_heads)
            self.rms_norm("k", "k", f"{prefix}attn_k_norm.weight", "k_norm", c.num_kv_heads)
        self.add(Rope("q", c.num_heads, table), "q_rope")
        self.add(Rope("k", c.num_kv_heads, table), "k_rope")
        self.add(KvWrite(layer, "k", "v"), "kv_write")
        width = c.num_heads * c.head_dim
        self.add(Attention("heads", "q", layer, c.num_heads, scale, window), "attention", "heads", width)
        self._windows.append(window)
        self.linear("mixed", "heads", f"{prefix}attn_output", c.hidden_size, "o_proj")
        return "mixed"

    def gated_mlp(self, layer: int, x: str, activation: str) -> str:
        """down(activation(gate(x)) · up(x)); returns the buffer with the output."""
        c, prefix = self.config, f"blk.{layer}."
        self.linear("gate", x, f"{prefix}ffn_gate", c.intermediate_size, "gate_proj")
        self.linear("up", x, f"{prefix}ffn_up", c.intermediate_size, "up_proj")
        kind = GatedActivation("gate", "gate", "up", "gelu" if activation == "gelu" else "silu")
        self.add(kind, activation, "gate", c.intermediate_size)
        self.linear("mixed", "gate", f"{prefix}ffn_down", c.hidden_size, "down_proj")
        return "mixed"

    def head(self, x: str, softcap: float = 0.0) -> Program:
        """Final norm and vocabulary projection (tied to the embedding where the file has no own), as a program."""
        self.layer(-1)
        self.add(SelectRows("last", x), "select_rows", "last", self.config.hidden_size)
        self.rms_norm("last", "last", "output_norm.weight", "output_norm")
        own = self.checkpoint.optional_tensor("output.weight") is not None
        # Rounding errors of this layer reach the logits undamped, and few rows need it: int16 costs next to nothing.
        self.linear("logits", "last", "output" if own else "token_embd", self.vocabulary_size, "lm_head", precise=True)
        if softcap:
            self.add(Softcap("logits", softcap), "logit_softcap")
        c = self.config
        return Program(
            c.architecture,
            self.vocabulary_size,
            c.context_length,
            c.num_layers,
            c.num_kv_heads,
            c.head_dim,
            tuple(self._ops),
            dict(self._widths),
            tuple(self._layers),
            tuple(self._labels),
            tuple(self._windows),
        )
