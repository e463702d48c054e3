"""The operations that models are written in: their contracts, programs made of them, and batches to run."""

from isobit.ops.batch import PAGE_SIZE, Batch, CacheType, KVCache, check_batch
from isobit.ops.program import (
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
    Scale,
    SelectRows,
    Softcap,
    Weight,
)

__all__ = [
    "PAGE_SIZE",
    "Add",
    "Attention",
    "Batch",
    "CacheType",
    "Embed",
    "GatedActivation",
    "KVCache",
    "KvWrite",
    "Linear",
    "Op",
    "Program",
    "RmsNorm",
    "Rope",
    "RopeTable",
    "Scale",
    "SelectRows",
    "Softcap",
    "Weight",
    "check_batch",
]
