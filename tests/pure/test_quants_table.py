"""The table of weight types against the `gguf` package's."""

from __future__ import annotations

import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from isobit.errors import InputError
from isobit.quants import QUANT_TYPES, SUPPORTED_NAMES, TYPES_BY_ID, type_by_name


@pytest.mark.parametrize("expected", list(GGMLQuantizationType), ids=lambda kind: kind.name)
def test_type_is_that_of_the_gguf_package(expected: GGMLQuantizationType) -> None:
    found = TYPES_BY_ID[expected.value]
    assert found.name == expected.name
    assert (found.block_size, found.type_size) == GGML_QUANT_SIZES[expected]
    assert type_by_name(expected.name) is found


def test_names_and_ids_are_unique() -> None:
    assert len({kind.name for kind in QUANT_TYPES}) == len(QUANT_TYPES) == len(TYPES_BY_ID)


def test_supported_types() -> None:
    assert set(SUPPORTED_NAMES) == {
        *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
        *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"),
    }


def test_sizes() -> None:
    assert type_by_name("Q4_K").num_bytes((3, 512)) == 3 * 2 * 144
    assert type_by_name("Q4_K").bits_per_weight == 4.5
    with pytest.raises(InputError, match="multiple of the block size 256"):
        type_by_name("Q4_K").num_bytes((3, 288))


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'q4_k'.*Q4_K"):
        type_by_name("q4_k")
