#include "pack.h"

#include <algorithm>
#include <cstring>

#include "isobit/exact.h"

namespace isobit {

namespace {

constexpr int8_t kCodeBook[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct FormatInfo {
  WeightFormat format;
  Codes codes;
  Scales scales;
  int block_columns;
  int block_bytes;
};

constexpr FormatInfo kIntegerFormats[] = {
    {WeightFormat::kQ4_0, Codes::kNibble, Scales::kHalf, 32, 18},
    {WeightFormat::kQ4_1, Codes::kNibble, Scales::kHalfMin, 32, 20},
    {WeightFormat::kQ5_0, Codes::kFive, Scales::kHalf, 32, 22},
    {WeightFormat::kQ5_1, Codes::kFive, Scales::kHalfMin, 32, 24},
    {WeightFormat::kQ8_0, Codes::kByte, Scales::kHalf, 32, 34},
    {WeightFormat::kQ2_K, Codes::kTwo, Scales::kSuper16Min, 256, 84},
    {WeightFormat::kQ3_K, Codes::kThree, Scales::kSuper16, 256, 110},
    {WeightFormat::kQ4_K, Codes::kNibble, Scales::kSuper32Min, 256, 144},
    {WeightFormat::kQ5_K, Codes::kFive, Scales::kSuper32Min, 256, 176},
    {WeightFormat::kQ6_K, Codes::kSix, Scales::kSuper16, 256, 210},
    {WeightFormat::kIQ4_NL, Codes::kNibbleTable, Scales::kHalf, 32, 18},
    {WeightFormat::kIQ4_XS, Codes::kNibbleTable, Scales::kSuper32, 256, 136},
};

const FormatInfo* find_info(WeightFormat format) {
  for (const auto& info : kIntegerFormats) {
    if (info.format == format) return &info;
  }
  return nullptr;
}

int float_size(WeightFormat format) { return format == WeightFormat::kF32 ? 4 : 2; }

// One row of a chunk: unsigned codes as the kernels unpack them, and what the header holds.
struct RowChunk {
  uint8_t codes[kChunkColumns];
  uint16_t d[8];  // per block of 32, or d[0] for the chunk
  uint16_t dmin[8];
  uint8_t scale[16];  // per sub-block
  uint8_t minimum[16];
};

uint16_t half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

// A block's 32 nibbles: the low ones are columns 0 to 15, the high ones 16 to 31.
void split_nibbles(const uint8_t* q, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = q[j] & 15;
    codes[j + 16] = q[j] >> 4;
  }
}

void read_legacy(WeightFormat format, const uint8_t* p, int b, RowChunk& r) {
  uint8_t* codes = r.codes + 32 * b;
  r.d[b] = half_at(p);
  p += 2;
  if (format == WeightFormat::kQ8_0) {
    for (int j = 0; j < 32; ++j) codes[j] = p[j] ^ 0x80;
    return;
  }
  if (format == WeightFormat::kQ4_1 || format == WeightFormat::kQ5_1) {
    r.dmin[b] = half_at(p);
    p += 2;
  }
  uint32_t high = 0;
  if (format == WeightFormat::kQ5_0 || format == WeightFormat::kQ5_1) {
    std::memcpy(&high, p, 4);
    p += 4;
  }
  split_nibbles(p, codes);
  for (int j = 0; j < 32; ++j) codes[j] |= (high >> j & 1) << 4;
}

void read_q2_k(const uint8_t* p, RowChunk& r) {
  std::memcpy(r.scale, p, 16);  // the minimum stays in the high nibble
  const uint8_t* q = p + 16;
  for (int i = 0; i < 256; ++i) r.codes[i] = q[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
  r.d[0] = half_at(p + 80);
  r.dmin[0] = half_at(p + 82);
}

void read_q3_k(const uint8_t* p, RowChunk& r) {
  const uint8_t* q = p + 32;
  const uint8_t* s = p + 96;
  for (int i = 0; i < 256; ++i) {
    const int low = q[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    r.codes[i] = low | (p[i % 32] >> (i / 32) & 1) << 2;
  }
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
    r.scale[i] = (low | (s[8 + i % 4] >> (i / 4 * 2) & 3) << 4) - 32;
  }
  r.d[0] = half_at(p + 108);
}

// Eight scales and minima of 6 bits in 12 bytes.
void read_six_bit_scales(const uint8_t* s, RowChunk& r) {
  for (int j = 0; j < 4; ++j) {
    r.scale[j] = s[j] & 63;
    r.minimum[j] = s[j + 4] & 63;
    r.scale[j + 4] = (s[j + 8] & 15) | (s[j] >> 6) << 4;
    r.minimum[j + 4] = s[j + 8] >> 4 | (s[j + 4] >> 6) << 4;
  }
}

void read_q4_k(const uint8_t* p, RowChunk& r, bool five) {
  r.d[0] = half_at(p);
  r.dmin[0] = half_at(p + 2);
  read_six_bit_scales(p + 4, r);
  const uint8_t* high = p + 16;
  const uint8_t* q = five ? p + 48 : p + 16;
  for (int i = 0; i < 256; ++i) {
    const int nibble = q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
    r.codes[i] = five ? nibble | (high[i % 32] >> (i / 32) & 1) << 4 : nibble;
  }
}

void read_q6_k(const uint8_t* p, RowChunk& r) {
  const uint8_t* high = p + 128;
  for (int i = 0; i < 256; ++i) {
    const int part = i / 32 % 4;
    const int low = p[i / 128 * 64 + i % 64] >> (part / 2 * 4) & 15;
    r.codes[i] = low | (high[i / 128 * 32 + i % 32] >> (part * 2) & 3) << 4;
  }
  std::memcpy(r.scale, p + 192, 16);
  r.d[0] = half_at(p + 208);
}

void read_iq4_xs(const uint8_t* p, RowChunk& r) {
  r.d[0] = half_at(p);
  const uint16_t high = half_at(p + 2);
  for (int b = 0; b < 8; ++b) {
    const int low = p[4 + b / 2] >> (b % 2 * 4) & 15;
    r.scale[b] = (low | (high >> (2 * b) & 3) << 4) - 32;
    split_nibbles(p + 8 + 16 * b, r.codes + 32 * b);
  }
}

void read_chunk(const FormatInfo& info, const uint8_t* row, int chunk, int blocks, RowChunk& r) {
  if (info.block_columns == 32) {
    const uint8_t* p = row + static_cast<size_t>(chunk) * 8 * info.block_bytes;
    for (int b = 0; b < blocks; ++b) {
      const uint8_t* block = p + b * info.block_bytes;
      if (info.format == WeightFormat::kIQ4_NL) {
        r.d[b] = half_at(block);
        split_nibbles(block + 2, r.codes + 32 * b);
      } else {
        read_legacy(info.format, block, b, r);
      }
    }
    return;
  }
  const uint8_t* p = row + static_cast<size_t>(chunk) * info.block_bytes;
  switch (info.format) {
    case WeightFormat::kQ2_K:
      return read_q2_k(p, r);
    case WeightFormat::kQ3_K:
      return read_q3_k(p, r);
    case WeightFormat::kQ4_K:
      return read_q4_k(p, r, false);
    case WeightFormat::kQ5_K:
      return read_q4_k(p, r, true);
    case WeightFormat::kQ6_K:
      return read_q6_k(p, r);
    default:
      return read_iq4_xs(p, r);
  }
}

void put_half(uint8_t* p, int row, uint16_t h) { std::memcpy(p + 2 * row, &h, 2); }

void write_header(Scales scales, const RowChunk& r, int row, int blocks, uint8_t* header) {
  if (has_super_scale(scales)) {
    put_half(header, row, r.d[0]);
    if (has_minimum(scales)) put_half(header + 2 * kTileRows, row, r.dmin[0]);
  }
  for (int b = 0; b < blocks; ++b) {
    uint8_t* p = header + super_bytes(scales) + b * scale_bytes(scales);
    switch (scales) {
      case Scales::kHalfMin:
        put_half(p + 2 * kTileRows, row, r.dmin[b]);
        [[fallthrough]];
      case Scales::kHalf:
        put_half(p, row, r.d[b]);
        break;
      case Scales::kSuper32Min:
        p[kTileRows + row] = r.minimum[b];
        [[fallthrough]];
      case Scales::kSuper32:
        p[row] = r.scale[b];
        break;
      case Scales::kSuper16:
      case Scales::kSuper16Min:
        p[row] = r.scale[2 * b];
        p[kTileRows + row] = r.scale[2 * b + 1];
        break;
    }
  }
}

// Code bits of group g go to the planes; byte 4 row + i of a vector is column 4 g + i.
void write_codes(Codes kind, const uint8_t* codes, int row, uint8_t* out) {
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 4; ++i) {
      const int code = codes[4 * g + i];
      uint8_t* p = out + 4 * row + i;
      const auto put = [&](int vector, int bits) { p[vector * kVectorBytes] |= bits; };
      switch (kind) {
        case Codes::kByte:
          put(g, code);
          break;
        case Codes::kFive:
          put(4, (code >> 4) << g);
          [[fallthrough]];
        case Codes::kNibble:
        case Codes::kNibbleTable:
          put(g % 4, (code & 15) << (g / 4 * 4));
          break;
        case Codes::kSix:
          put(g % 4, (code & 15) << (g / 4 * 4));
          put(4 + g / 4, (code >> 4) << (g % 4 * 2));
          break;
        case Codes::kThree:
          put(2, (code >> 2) << g);
          [[fallthrough]];
        case Codes::kTwo:
          put(g / 4, (code & 3) << (g % 4 * 2));
          break;
      }
    }
  }
}

void pack_float_tile(WeightFormat format, const uint8_t* raw, int rows, int columns, int tile, uint8_t* out) {
  const int size = float_size(format);
  const int count = std::min(kTileRows, rows - tile * kTileRows);
  for (int r = 0; r < count; ++r) {
    const uint8_t* row = raw + (static_cast<size_t>(tile) * kTileRows + r) * columns * size;
    for (int k = 0; k < columns; ++k) {
      std::memcpy(out + (static_cast<size_t>(k) * kTileRows + r) * size, row + k * size, size);
    }
  }
}

// The code's meaning, and scale and minimum of the sub-block of column `i` of a chunk.
float chunk_value(const FormatInfo& info, const RowChunk& r, int i) {
  const int code = r.codes[i];
  const int block = i / 32;
  float q = 0;
  switch (info.codes) {
    case Codes::kByte:
      q = code - 128;
      break;
    case Codes::kNibbleTable:
      q = kCodeBook[code];
      break;
    case Codes::kNibble:
      q = has_minimum(info.scales) ? code : code - 8;
      break;
    case Codes::kFive:
      q = has_minimum(info.scales) ? code : code - 16;
      break;
    case Codes::kSix:
      q = code - 32;
      break;
    case Codes::kTwo:
      q = code;
      break;
    case Codes::kThree:
      q = code - 4;
      break;
  }
  const float d = half_to_float(r.d[has_super_scale(info.scales) ? 0 : block]);
  const float dmin = -half_to_float(r.dmin[0]);
  switch (info.scales) {
    case Scales::kHalf:
      return d * q;
    case Scales::kHalfMin:
      return exact_fma(d, q, half_to_float(r.dmin[block]));
    case Scales::kSuper32:
      return d * static_cast<int8_t>(r.scale[block]) * q;
    case Scales::kSuper32Min:
      return exact_fma(d * r.scale[block], q, dmin * r.minimum[block]);
    case Scales::kSuper16:
      return d * static_cast<int8_t>(r.scale[i / 16]) * q;
    case Scales::kSuper16Min:
      return exact_fma(d * (r.scale[i / 16] & 15), q, dmin * (r.scale[i / 16] >> 4));
  }
  return 0;
}

float float_value(WeightFormat format, const uint8_t* p) {
  if (format == WeightFormat::kF16) return half_to_float(half_at(p));
  if (format == WeightFormat::kBF16) return bfloat_to_float(half_at(p));
  float value;
  std::memcpy(&value, p, 4);
  return value;
}

int blocks_of_chunk(int columns, int chunk) {
  return std::min(8, (columns - chunk * kChunkColumns) / kBlockColumns);
}

}  // namespace

std::optional<WeightFormat> weight_format(int ggml_id) {
  const auto format = static_cast<WeightFormat>(ggml_id);
  const bool is_float =
      format == WeightFormat::kF32 || format == WeightFormat::kF16 || format == WeightFormat::kBF16;
  if (is_float || find_info(format) != nullptr) return format;
  return std::nullopt;
}

bool is_integer(WeightFormat format) { return find_info(format) != nullptr; }

size_t row_bytes(WeightFormat format, int columns) {
  const FormatInfo* info = find_info(format);
  if (info == nullptr) return static_cast<size_t>(columns) * float_size(format);
  return static_cast<size_t>(columns / info->block_columns) * info->block_bytes;
}

size_t packed_tile_bytes(WeightFormat format, int columns) {
  const FormatInfo* info = find_info(format);
  if (info == nullptr) return static_cast<size_t>(columns) * kTileRows * float_size(format);
  return tile_bytes(info->codes, info->scales, columns);
}

void pack_tile(WeightFormat format, const uint8_t* raw, int rows, int columns, int tile, uint8_t* out) {
  std::memset(out, 0, packed_tile_bytes(format, columns));
  const FormatInfo* info = find_info(format);
  if (info == nullptr) return pack_float_tile(format, raw, rows, columns, tile, out);
  const size_t stride = row_bytes(format, columns);
  const int count = std::min(kTileRows, rows - tile * kTileRows);
  RowChunk r;
  for (int chunk = 0; chunk * kChunkColumns < columns; ++chunk) {
    const int blocks = blocks_of_chunk(columns, chunk);
    uint8_t* codes = out + header_bytes(info->scales, blocks);
    for (int row = 0; row < count; ++row) {
      const size_t index = static_cast<size_t>(tile) * kTileRows + row;
      read_chunk(*info, raw + index * stride, chunk, blocks, r);
      write_header(info->scales, r, row, blocks, out);
      for (int b = 0; b < blocks; ++b) {
        write_codes(info->codes, r.codes + 32 * b, row, codes + b * code_bytes(info->codes));
      }
    }
    out = codes + blocks * code_bytes(info->codes);
  }
}

void row_values(WeightFormat format, const uint8_t* row, int columns, float* out) {
  const FormatInfo* info = find_info(format);
  if (info == nullptr) {
    const int size = float_size(format);
    for (int k = 0; k < columns; ++k) out[k] = float_value(format, row + k * size);
    return;
  }
  RowChunk r;
  for (int chunk = 0; chunk * kChunkColumns < columns; ++chunk) {
    const int blocks = blocks_of_chunk(columns, chunk);
    read_chunk(*info, row, chunk, blocks, r);
    for (int i = 0; i < blocks * 32; ++i) out[chunk * kChunkColumns + i] = chunk_value(*info, r, i);
  }
}

}  // namespace isobit
