// From the bytes of a model file to the tiles of isobit/layout.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "isobit/kernels.h"

namespace isobit {

std::optional<WeightFormat> weight_format(int ggml_id);
bool is_integer(WeightFormat format);

// Bytes of a row in the file; of a packed tile of 16 rows.
size_t row_bytes(WeightFormat format, int columns);
size_t packed_tile_bytes(WeightFormat format, int columns);

// Packs rows [16 tile, 16 tile + 16), zeros standing for rows beyond `rows`.
void pack_tile(WeightFormat format, const uint8_t* raw, int rows, int columns, int tile, uint8_t* out);

// The values of one row: s * q + m, rounded once.
void row_values(WeightFormat format, const uint8_t* row, int columns, float* out);

}  // namespace isobit
