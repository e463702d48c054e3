// Codes, scales and minima of a block of 32 columns x 16 rows, out of the layouts of isobit/layout.h.
#pragma once
#include "isobit/layout.h"
#include "wide.h"

namespace isobit::ISOBIT_TARGET {

// Smallest integer above every code; what is subtracted from a code where the type has no minimum.
constexpr int code_limit(Codes c) {
  switch (c) {
    case Codes::kByte:
    case Codes::kNibbleTable:
      return 256;
    case Codes::kNibble:
      return 16;
    case Codes::kFive:
      return 32;
    case Codes::kSix:
      return 64;
    case Codes::kTwo:
      return 4;
    case Codes::kThree:
      return 8;
  }
  return 0;
}
constexpr int code_offset(Codes c, Scales s) { return has_minimum(s) ? 0 : code_limit(c) / 2; }

// The non-linear 4-bit code book, plus 128.
alignas(16) inline constexpr uint8_t kCodeBook[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                      129, 141, 153, 166, 181, 197, 217, 241};

// Bits from position `kFrom` on to position `kTo`; the caller masks.
template <int kFrom, int kTo> inline B move_bits(B a) {
  if constexpr (kFrom > kTo) return shift_right_b<kFrom - kTo>(a);
  else if constexpr (kFrom < kTo) return shift_left_b<kTo - kFrom>(a);
  else return a;
}

// Group G (4 columns) of a block, for the register at byte `at` of each 64-byte vector.
template <Codes C, int G> inline B unpack(const uint8_t* block, int at) {
  const uint8_t* p = block + at;
  if constexpr (C == Codes::kByte) {
    return load_b(p + G * kVectorBytes);
  } else if constexpr (C == Codes::kTwo || C == Codes::kThree) {
    const B pairs = load_b(p + G / 4 * kVectorBytes);
    const B low = and_b(move_bits<G % 4 * 2, 0>(pairs), set_b(3));
    if constexpr (C == Codes::kTwo) return low;
    return or_b(low, and_b(move_bits<G, 2>(load_b(p + 2 * kVectorBytes)), set_b(4)));
  } else {
    const B pairs = load_b(p + G % 4 * kVectorBytes);
    const B low = and_b(move_bits<G / 4 * 4, 0>(pairs), set_b(15));
    if constexpr (C == Codes::kNibble) return low;
    if constexpr (C == Codes::kNibbleTable) return lookup_b(kCodeBook, low);
    if constexpr (C == Codes::kFive) {
      return or_b(low, and_b(move_bits<G, 4>(load_b(p + 4 * kVectorBytes)), set_b(16)));
    }
    const B high = load_b(p + (4 + G / 4) * kVectorBytes);
    return or_b(low, and_b(move_bits<G % 4 * 2, 4>(high), set_b(48)));
  }
}

template <Codes C> inline void unpack_block(const uint8_t* block, int at, B (&codes)[8]) {
  codes[0] = unpack<C, 0>(block, at);
  codes[1] = unpack<C, 1>(block, at);
  codes[2] = unpack<C, 2>(block, at);
  codes[3] = unpack<C, 3>(block, at);
  codes[4] = unpack<C, 4>(block, at);
  codes[5] = unpack<C, 5>(block, at);
  codes[6] = unpack<C, 6>(block, at);
  codes[7] = unpack<C, 7>(block, at);
}

template <Scales S> struct BlockScales {
  F scale[sub_blocks(S)];
  F minimum[sub_blocks(S)];
  F shift;  // -kMagic * scale[0]
};

inline F half_at(const uint8_t* p, int lane) { return load_f16(reinterpret_cast<const uint16_t*>(p) + lane); }

// Scales of block `b` of a chunk, for the rows from `lane` on. Every product is exact.
template <Scales S> inline BlockScales<S> load_scales(const uint8_t* header, int b, int lane) {
  BlockScales<S> r;
  const uint8_t* p = header + super_bytes(S) + b * scale_bytes(S);
  if constexpr (S == Scales::kHalf || S == Scales::kHalfMin) {
    r.scale[0] = half_at(p, lane);
    if constexpr (S == Scales::kHalfMin) r.minimum[0] = half_at(p + 2 * kTileRows, lane);
    return r;
  }
  const F d = half_at(header, lane);
  p += lane;
  if constexpr (S == Scales::kSuper32) {
    r.scale[0] = mul(d, to_float(load_s8(p)));
  } else if constexpr (S == Scales::kSuper16) {
    r.scale[0] = mul(d, to_float(load_s8(p)));
    r.scale[1] = mul(d, to_float(load_s8(p + kTileRows)));
  } else if constexpr (S == Scales::kSuper32Min) {
    const F dmin = from_bits(xor_i(bits(half_at(header + 2 * kTileRows, lane)), set_i(INT32_MIN)));
    r.scale[0] = mul(d, to_float(load_u8(p)));
    r.minimum[0] = mul(dmin, to_float(load_u8(p + kTileRows)));
  } else if constexpr (S == Scales::kSuper16Min) {
    const F dmin = from_bits(xor_i(bits(half_at(header + 2 * kTileRows, lane)), set_i(INT32_MIN)));
    for (int j = 0; j < 2; ++j) {
      const I both = load_u8(p + j * kTileRows);
      r.scale[j] = mul(d, to_float(and_i(both, set_i(15))));
      r.minimum[j] = mul(dmin, to_float(shift_right<4>(both)));
    }
  }
  return r;
}

// How far ahead of their use weights are fetched. Each is read once in a decode step, and where scales and codes are
// streams of their own, processors do not fetch enough ahead by themselves.
constexpr int kPrefetchAhead = 8192;

// A chunk as it lies in memory.
template <Codes C, Scales S> struct PackedChunk {
  const uint8_t* header;
  int blocks;

  PackedChunk(const uint8_t* at, int blocks) : header(at), blocks(blocks) {}
  const uint8_t* block(int b) const { return header + header_bytes(S, blocks) + b * code_bytes(C); }
  const uint8_t* end() const { return block(blocks); }
  // Fetches what lies kPrefetchAhead after block `b`, also past the end of the matrix, where it does no harm.
  void prefetch(int b) const {
    constexpr int kBytes = code_bytes(C) + scale_bytes(S);
#pragma GCC unroll 16
    for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(header + b * kBytes + i + kPrefetchAhead);
  }
  // Codes and scales of block `b` for register `n` of the 16 rows.
  void codes(int b, int n, B (&out)[8]) const { unpack_block<C>(block(b), n * kLanes * 4, out); }
  BlockScales<S> scales(int b, int n) const {
    BlockScales<S> w = load_scales<S>(header, b, n * kLanes);
    w.shift = mul(set(-kMagic), w.scale[0]);
    return w;
  }
};

// The same, unpacked for several groups of tokens.
template <Codes C, Scales S> struct UnpackedChunk {
  static constexpr int kSubs = sub_blocks(S);
  alignas(64) uint8_t bytes[8][8][kVectorBytes];
  alignas(64) float scale[8][kSubs][kTileRows];
  alignas(64) float shift[8][kTileRows];
  alignas(64) float minimum[8][has_minimum(S) ? kSubs : 1][kTileRows];

  explicit UnpackedChunk(const PackedChunk<C, S>& packed) {
    for (int b = 0; b < packed.blocks; ++b) {
      packed.prefetch(b);
      ISOBIT_EACH_PART {
        B groups[8];
        packed.codes(b, n, groups);
#pragma GCC unroll 8
        for (int g = 0; g < 8; ++g) store_b(&bytes[b][g][n * kLanes * 4], groups[g]);
        const BlockScales<S> w = packed.scales(b, n);
        store(&shift[b][n * kLanes], w.shift);
#pragma GCC unroll 2
        for (int j = 0; j < kSubs; ++j) {
          store(&scale[b][j][n * kLanes], w.scale[j]);
          if constexpr (has_minimum(S)) store(&minimum[b][j][n * kLanes], w.minimum[j]);
        }
      }
    }
  }
  void prefetch(int) const {}
  void codes(int b, int n, B (&out)[8]) const {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) out[g] = load_b(&bytes[b][g][n * kLanes * 4]);
  }
  BlockScales<S> scales(int b, int n) const {
    BlockScales<S> w;
    w.shift = load(&shift[b][n * kLanes]);
#pragma GCC unroll 2
    for (int j = 0; j < kSubs; ++j) {
      w.scale[j] = load(&scale[b][j][n * kLanes]);
      if constexpr (has_minimum(S)) w.minimum[j] = load(&minimum[b][j][n * kLanes]);
    }
    return w;
  }
};

}  // namespace isobit::ISOBIT_TARGET
