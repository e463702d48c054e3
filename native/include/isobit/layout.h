// How weights and activations lie in memory for the kernels. No target-dependent code here.
//
// Weights: rows in tiles of 16, so that a vector lane is an output row. A tile is a sequence of chunks of 256
// columns (the last may be shorter). A chunk of an integer type is
//   header: [d][dmin] binary16 x 16 rows, once per chunk (types with a super-scale), then per block of 32 columns its
//           scales and minima, binary16 x 16 or bytes x 16 per sub-block; padded to 64 bytes;
//   codes:  per block of 32 columns, unsigned codes in bit planes. Lane r of a plane's vector is row r and has 4 bytes,
//           for the 4 columns of a group; a block has 8 groups:
//     8 bits: vector g is group g; 4 bits: vector i has group i in the low and i + 4 in the high nibble;
//     2 bits: vector i has groups 4 i ... 4 i + 3; 1 bit: one vector, bit g is group g.
// A chunk of a float type is column by column the 16 rows' values.
#pragma once
#include <cstddef>
#include <cstdint>

namespace isobit {

constexpr int kTileRows = 16;
constexpr int kChunkColumns = 256;
constexpr int kBlockColumns = 32;
constexpr int kVectorBytes = 64;
constexpr int kPageSize = 64;  // positions in a page of the cache; isobit.ops.PAGE_SIZE
constexpr int kMaxHeadDim = 256;

// The families of code layouts.
enum class Codes : int { kByte, kNibble, kNibbleTable, kFive, kSix, kTwo, kThree };
// The families of scale layouts.
enum class Scales : int {
  kHalf,        // binary16 per block of 32
  kHalfMin,     // binary16 scale and minimum per block of 32
  kSuper32,     // binary16 d per chunk, signed byte per block of 32 (IQ4_XS)
  kSuper32Min,  // binary16 d, dmin per chunk, unsigned byte scale and minimum per block of 32 (Q4_K, Q5_K)
  kSuper16,     // binary16 d per chunk, signed byte per sub-block of 16 (Q3_K, Q6_K)
  kSuper16Min   // binary16 d, dmin per chunk, nibbles scale | minimum << 4 per sub-block of 16 (Q2_K)
};

static constexpr int code_bytes(Codes codes) {  // per block of 32 columns and 16 rows
  switch (codes) {
    case Codes::kByte:
      return 8 * kVectorBytes;
    case Codes::kNibble:
    case Codes::kNibbleTable:
      return 4 * kVectorBytes;
    case Codes::kFive:
      return 5 * kVectorBytes;
    case Codes::kSix:
      return 6 * kVectorBytes;
    case Codes::kTwo:
      return 2 * kVectorBytes;
    case Codes::kThree:
      return 3 * kVectorBytes;
  }
  return 0;
}

static constexpr bool has_minimum(Scales s) {
  return s == Scales::kHalfMin || s == Scales::kSuper32Min || s == Scales::kSuper16Min;
}
static constexpr bool has_super_scale(Scales s) { return s != Scales::kHalf && s != Scales::kHalfMin; }
static constexpr int sub_blocks(Scales s) {
  return s == Scales::kSuper16 || s == Scales::kSuper16Min ? 2 : 1;
}

static constexpr int super_bytes(Scales s) {
  return !has_super_scale(s) ? 0 : (has_minimum(s) ? 4 : 2) * kTileRows;
}
static constexpr int scale_bytes(Scales s) {  // per block of 32 columns
  switch (s) {
    case Scales::kHalf:
      return 2 * kTileRows;
    case Scales::kHalfMin:
      return 4 * kTileRows;
    case Scales::kSuper32:
      return kTileRows;
    case Scales::kSuper32Min:
    case Scales::kSuper16:
    case Scales::kSuper16Min:
      return 2 * kTileRows;
  }
  return 0;
}
static constexpr int header_bytes(Scales s, int blocks) {
  const int bytes = super_bytes(s) + blocks * scale_bytes(s);
  return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
}

// Bytes of one tile of an integer type with `columns` columns.
static constexpr size_t tile_bytes(Codes codes, Scales scales, int columns) {
  const int full = columns / kChunkColumns;
  const int rest = columns % kChunkColumns / kBlockColumns;
  size_t bytes = static_cast<size_t>(full) * (header_bytes(scales, 8) + 8 * code_bytes(codes));
  if (rest != 0) bytes += header_bytes(scales, rest) + rest * code_bytes(codes);
  return bytes;
}

// Activations of `tokens` tokens rounded for integer weights. Chunk by chunk, so that what a kernel reads of a group
// of tokens lies together whatever the number of columns.
struct Activations {
  int8_t* low;          // [chunks, tokens, 256] codes, or their low parts
  int8_t* high;         // the same, int16 only: code = 256 * high + low
  float* scale;         // int8: [chunks, tokens, 8], per block of 32; int16: [chunks, tokens]
  int32_t* sums;        // [chunks, tokens, 16] of the codes per 16 columns
  int32_t* block_sums;  // [chunks, tokens, 8] of the codes per 32 columns
  int columns;
  int tokens;
  bool two_pass;  // int16

  static constexpr int kSums = kChunkColumns / 16;
  static constexpr int kBlocks = kChunkColumns / kBlockColumns;
  int chunks() const { return (columns + kChunkColumns - 1) / kChunkColumns; }
  // Index of a token within a chunk, of `size` elements each.
  size_t at(int chunk, int token, int size) const {
    return (static_cast<size_t>(chunk) * tokens + token) * size;
  }
};
constexpr int kActivationPadding = 16;  // elements past the end that a kernel may read of each array

}  // namespace isobit
