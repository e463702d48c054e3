#include "pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "blocks.h"
#include "isobit/layout.h"

namespace isobit {

namespace {

static_assert(std::endian::native == std::endian::little, "a group of 4 columns is read as one word");

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

// Codes of 8 columns at a time: two groups in a word, of which nothing crosses from one byte into the next.
template <int kFirst, int kWidth>
uint64_t bits_of(uint64_t codes) {
  return codes >> kFirst & ((uint64_t{1} << kWidth) - 1) * 0x0101010101010101;
}

// The bits [first, first + width) of the codes of 2 * count groups, one group above the other.
template <int kFirst, int kWidth, int kCount>
uint32_t gather(const uint64_t* pairs) {
  uint64_t word = 0;
  for (int i = 0; i < kCount; ++i) word |= bits_of<kFirst, kWidth>(pairs[i]) << (2 * i * kWidth);
  return static_cast<uint32_t>(word | word >> (32 - kWidth));  // the odd groups go between the even ones
}

// Writes a row's lane, 4 bytes, of each vector of a block's planes.
template <Codes kKind>
void write_codes(const uint8_t* codes, int row, uint8_t* out) {
  uint64_t pairs[4];
  std::memcpy(pairs, codes, sizeof pairs);
  const auto put = [&](int vector, uint64_t word) {
    std::memcpy(out + vector * kVectorBytes + 4 * row, &word, 4);
  };
  const auto put_pair = [&](int vector, uint64_t word) {
    put(vector, word);
    put(vector + 1, word >> 32);
  };
  if constexpr (kKind == Codes::kByte) {
    for (int i = 0; i < 4; ++i) put_pair(2 * i, pairs[i]);
  } else if constexpr (kKind == Codes::kTwo || kKind == Codes::kThree) {
    for (int i = 0; i < 2; ++i) put(i, gather<0, 2, 2>(pairs + 2 * i));
    if constexpr (kKind == Codes::kThree) put(2, gather<2, 1, 4>(pairs));
  } else {
    for (int i = 0; i < 2; ++i) put_pair(2 * i, bits_of<0, 4>(pairs[i]) | bits_of<0, 4>(pairs[i + 2]) << 4);
    if constexpr (kKind == Codes::kFive) put(4, gather<4, 1, 4>(pairs));
    if constexpr (kKind == Codes::kSix) {
      for (int i = 0; i < 2; ++i) put(4 + i, gather<4, 2, 2>(pairs + 2 * i));
    }
  }
}

template <Codes kKind>
void write_blocks(const uint8_t* codes, int blocks, int row, uint8_t* out) {
  for (int b = 0; b < blocks; ++b) write_codes<kKind>(codes + 32 * b, row, out + b * code_bytes(kKind));
}

using BlockWriter = void (*)(const uint8_t* codes, int blocks, int row, uint8_t* out);

BlockWriter block_writer(Codes kind) {
  switch (kind) {
    case Codes::kByte:
      return write_blocks<Codes::kByte>;
    case Codes::kNibble:
    case Codes::kNibbleTable:
      return write_blocks<Codes::kNibble>;
    case Codes::kFive:
      return write_blocks<Codes::kFive>;
    case Codes::kSix:
      return write_blocks<Codes::kSix>;
    case Codes::kTwo:
      return write_blocks<Codes::kTwo>;
    case Codes::kThree:
      return write_blocks<Codes::kThree>;
  }
  return nullptr;
}

template <typename Value>
void pack_values(const uint8_t* rows, int count, int columns, uint8_t* out) {
  for (int k = 0; k < columns; ++k) {
    for (int r = 0; r < count; ++r) {
      const size_t from = static_cast<size_t>(r) * columns + k;
      std::memcpy(out + (static_cast<size_t>(k) * kTileRows + r) * sizeof(Value), rows + from * sizeof(Value),
                  sizeof(Value));
    }
  }
}

void pack_integers(const FormatInfo& info, const uint8_t* rows, int count, int columns, uint8_t* out) {
  const size_t stride = row_bytes(info.format, columns);
  const BlockWriter write = block_writer(info.codes);
  RowChunk r;
  for (int chunk = 0; chunk * kChunkColumns < columns; ++chunk) {
    const int blocks = blocks_of_chunk(columns, chunk);
    const int header = super_bytes(info.scales) + blocks * scale_bytes(info.scales);
    uint8_t* codes = out + header_bytes(info.scales, blocks);
    std::memset(out + header, 0, codes - out - header);
    for (int row = 0; row < count; ++row) {
      read_chunk(info, rows + row * stride, chunk, blocks, r);
      write_header(info.scales, r, row, blocks, out);
      write(r.codes, blocks, row, codes);
    }
    out = codes + blocks * code_bytes(info.codes);
  }
}

}  // namespace

size_t packed_tile_bytes(WeightFormat format, int columns) {
  const FormatInfo* info = find_info(format);
  if (info == nullptr) return static_cast<size_t>(columns) * kTileRows * float_size(format);
  return tile_bytes(info->codes, info->scales, columns);
}

void pack_tile(WeightFormat format, const uint8_t* raw, int rows, int columns, int tile, uint8_t* out) {
  const FormatInfo* info = find_info(format);
  const int count = std::min(kTileRows, rows - tile * kTileRows);
  if (count < kTileRows) std::memset(out, 0, packed_tile_bytes(format, columns));
  const uint8_t* first = raw + static_cast<size_t>(tile) * kTileRows * row_bytes(format, columns);
  if (info != nullptr) return pack_integers(*info, first, count, columns, out);
  if (float_size(format) == 2) return pack_values<uint16_t>(first, count, columns, out);
  pack_values<uint32_t>(first, count, columns, out);
}

}  // namespace isobit
