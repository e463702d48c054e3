#include "blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "isobit/exact.h"

namespace isobit {

namespace {

static_assert(std::endian::native == std::endian::little, "bytes are read eight at a time");

constexpr int8_t kCodeBook[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

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

uint16_t half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

// Eight bytes at a time; nothing crosses from one byte into the next.
constexpr uint64_t kOnes = 0x0101010101010101;

uint64_t load_word(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

void put_word(uint8_t* p, uint64_t word) { std::memcpy(p, &word, 8); }

void or_into(uint8_t* p, uint64_t word) { put_word(p, load_word(p) | word); }

// Bit j of a byte as the lowest bit of byte j.
uint64_t spread_bits(uint64_t byte) {
  const uint64_t bits = byte * kOnes & 0x8040201008040201;
  return (bits + 0x7F * kOnes) >> 7 & kOnes;
}

// A block's 32 nibbles: the low ones are columns 0 to 15, the high ones 16 to 31.
void split_nibbles(const uint8_t* q, uint8_t* codes) {
  for (int i = 0; i < 2; ++i) {
    const uint64_t word = load_word(q + 8 * i);
    put_word(codes + 8 * i, word & 15 * kOnes);
    put_word(codes + 16 + 8 * i, word >> 4 & 15 * kOnes);
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
  if (high == 0) return;
  for (int i = 0; i < 4; ++i) or_into(codes + 8 * i, spread_bits(high >> (8 * i) & 255) << 4);
}

// Codes of 2 bits: 64 bytes for 256 columns, each byte for 4 columns that are 32 apart.
void split_twos(const uint8_t* q, uint8_t* codes) {
  for (int half = 0; half < 2; ++half) {
    for (int part = 0; part < 4; ++part) {
      for (int j = 0; j < 32; ++j) codes[128 * half + 32 * part + j] = q[32 * half + j] >> (2 * part) & 3;
    }
  }
}

// A further bit of each code: bit b of byte j belongs to column 32 b + j.
void add_bits(const uint8_t* high, int shift, uint8_t* codes) {
  for (int b = 0; b < 8; ++b) {
    for (int i = 0; i < 4; ++i) {
      or_into(codes + 32 * b + 8 * i, (load_word(high + 8 * i) >> b & kOnes) << shift);
    }
  }
}

void read_q2_k(const uint8_t* p, RowChunk& r) {
  std::memcpy(r.scale, p, 16);  // the minimum stays in the high nibble
  split_twos(p + 16, r.codes);
  r.d[0] = half_at(p + 80);
  r.dmin[0] = half_at(p + 82);
}

void read_q3_k(const uint8_t* p, RowChunk& r) {
  const uint8_t* s = p + 96;
  split_twos(p + 32, r.codes);
  add_bits(p, 2, r.codes);
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
  const uint8_t* q = five ? p + 48 : p + 16;
  for (int pair = 0; pair < 4; ++pair) {
    for (int j = 0; j < 32; ++j) {
      r.codes[64 * pair + j] = q[32 * pair + j] & 15;
      r.codes[64 * pair + 32 + j] = q[32 * pair + j] >> 4;
    }
  }
  if (five) add_bits(p + 16, 4, r.codes);
}

void read_q6_k(const uint8_t* p, RowChunk& r) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = p + 64 * half;
    const uint8_t* high = p + 128 + 32 * half;
    uint8_t* codes = r.codes + 128 * half;
    for (int j = 0; j < 32; ++j) {
      codes[j] = (low[j] & 15) | (high[j] & 3) << 4;
      codes[32 + j] = (low[32 + j] & 15) | (high[j] >> 2 & 3) << 4;
      codes[64 + j] = low[j] >> 4 | (high[j] >> 4 & 3) << 4;
      codes[96 + j] = low[32 + j] >> 4 | (high[j] >> 6) << 4;
    }
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

}  // namespace

const FormatInfo* find_info(WeightFormat format) {
  for (const auto& info : kIntegerFormats) {
    if (info.format == format) return &info;
  }
  return nullptr;
}

int float_size(WeightFormat format) { return format == WeightFormat::kF32 ? 4 : 2; }

int blocks_of_chunk(int columns, int chunk) {
  return std::min(8, (columns - chunk * kChunkColumns) / kBlockColumns);
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
