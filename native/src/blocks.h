// What the bytes of a row in a model file mean.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "isobit/kernels.h"
#include "isobit/layout.h"

namespace isobit {

struct FormatInfo {
  WeightFormat format;
  Codes codes;
  Scales scales;
  int block_columns;
  int block_bytes;
};

// One row of a chunk: unsigned codes as the kernels unpack them, and what the header holds.
struct RowChunk {
  alignas(64) uint8_t codes[kChunkColumns];
  uint16_t d[8];  // per block of 32, or d[0] for the chunk
  uint16_t dmin[8];
  uint8_t scale[16];  // per sub-block
  uint8_t minimum[16];
};

std::optional<WeightFormat> weight_format(int ggml_id);
bool is_integer(WeightFormat format);
const FormatInfo* find_info(WeightFormat format);  // null for a float type
int float_size(WeightFormat format);

// Bytes of a row.
size_t row_bytes(WeightFormat format, int columns);

// Blocks of 32 columns in a chunk; 8 but for the last chunk of a row.
int blocks_of_chunk(int columns, int chunk);
void read_chunk(const FormatInfo& info, const uint8_t* row, int chunk, int blocks, RowChunk& r);

// The values of one row: s * q + m, rounded once.
void row_values(WeightFormat format, const uint8_t* row, int columns, float* out);

}  // namespace isobit
