"""Weight types: what the bytes of a quantized tensor mean. One file per family, one table for all."""

from isobit.quants.blocks import Blocks
from isobit.quants.convert import decompose, dequantize
from isobit.quants.iq4 import IQ4_VALUES
from isobit.quants.table import (
    QUANT_TYPES,
    SUPPORTED_NAMES,
    TYPES_BY_ID,
    TYPES_BY_NAME,
    QuantType,
    type_by_name,
)

__all__ = [
    "IQ4_VALUES",
    "QUANT_TYPES",
    "SUPPORTED_NAMES",
    "TYPES_BY_ID",
    "TYPES_BY_NAME",
    "Blocks",
    "QuantType",
    "decompose",
    "dequantize",
    "type_by_name",
]
