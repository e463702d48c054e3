// From the bytes of a model file to the tiles of isobit/layout.h.
#pragma once
#include <cstddef>
#include <cstdint>

#include "isobit/kernels.h"

namespace isobit {

// Bytes of a packed tile of 16 rows.
size_t packed_tile_bytes(WeightFormat format, int columns);

// Packs rows [16 tile, 16 tile + 16), zeros standing for rows beyond `rows`. Writes every byte of the tile.
void pack_tile(WeightFormat format, const uint8_t* raw, int rows, int columns, int tile, uint8_t* out);

}  // namespace isobit
