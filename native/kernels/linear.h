// x · Wᵀ in the canonical order (docs/numerics.md, 3.1 to 3.3). Lanes are output rows; the summed axis is never split.
#pragma once
#include <cstring>

#include "isobit/kernels.h"
#include "unpack.h"

namespace isobit::ISOBIT_TARGET {

inline int32_t four_codes(const int8_t* p) {
  int32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

// Sum of (code - offset) · activation over the sub-block made of groups [kFirst, kFirst + kCount).
template <Codes C, Scales S, bool kTwoPass, int kFirst, int kCount>
inline I sub_block_dot(const B (&codes)[8], const int8_t* low, const int8_t* high, int32_t sum) {
  constexpr int kLimit = code_limit(C);
  constexpr int kOffset = code_offset(C, S) - dot_bias<kLimit>;
  I dot = set_i(-kOffset * sum);
  if constexpr (kTwoPass) {
    I dot_high = set_i(0);
#pragma GCC unroll 8
    for (int g = kFirst; g < kFirst + kCount; ++g) {
      dot_high = dot4<kLimit>(dot_high, codes[g], four_codes(high + 4 * g));
      dot = dot4<kLimit>(dot, codes[g], four_codes(low + 4 * g));
    }
    return add_i(dot, shift_left<8>(dot_high));
  }
#pragma GCC unroll 8
  for (int g = kFirst; g < kFirst + kCount; ++g) {
    dot = dot4<kLimit>(dot, codes[g], four_codes(low + 4 * g));
  }
  return dot;
}

// One block of 32 columns for one token: acc with the block's contribution added.
template <Codes C, Scales S, bool kTwoPass>
inline F add_block(F acc, const B (&codes)[8], const BlockScales<S>& w, const Activations& a, int token,
                   int column) {
  constexpr int kSubs = sub_blocks(S);
  const int8_t* low = a.low + static_cast<ptrdiff_t>(token) * a.columns + column;
  const int8_t* high = kTwoPass ? a.high + static_cast<ptrdiff_t>(token) * a.columns + column : low;
  const int32_t* sums = a.sums + static_cast<ptrdiff_t>(token) * a.sums_per_row + column / 16;
  F dot[kSubs];
  int32_t sum[kSubs];
  if constexpr (kSubs == 1) {
    sum[0] = sums[0] + sums[1];
    dot[0] = to_float(sub_block_dot<C, S, kTwoPass, 0, 8>(codes, low, high, sum[0]));
  } else {
    sum[0] = sums[0];
    sum[1] = sums[1];
    dot[0] = to_float(sub_block_dot<C, S, kTwoPass, 0, 4>(codes, low, high, sum[0]));
    dot[1] = to_float(sub_block_dot<C, S, kTwoPass, 4, 4>(codes, low, high, sum[1]));
  }
  F u = kTwoPass ? fma(dot[0], w.scale[0], acc) : mul(dot[0], w.scale[0]);
  if constexpr (kSubs == 2) u = fma(dot[1], w.scale[1], u);
  if constexpr (has_minimum(S)) {
    for (int j = 0; j < kSubs; ++j) u = fma(to_float(set_i(sum[j])), w.minimum[j], u);
  }
  if constexpr (kTwoPass) return u;
  const float d = a.scale[static_cast<ptrdiff_t>(token) * a.scales_per_row + column / kBlockColumns];
  return fma(u, set(d), acc);
}

// The chunk sums of 16 rows for T tokens: sums[t][row].
template <Codes C, Scales S, bool kTwoPass, int T>
inline void chunk_sums(const uint8_t* chunk, int blocks, const Activations& a, int token, int column,
                       float* sums) {
  const uint8_t* codes_at = chunk + header_bytes(S, blocks);
  ISOBIT_EACH_PART {
    F acc[T];
    for (int t = 0; t < T; ++t) acc[t] = set(0.0f);
    for (int b = 0; b < blocks; ++b) {
      B codes[8];
      unpack_block<C>(codes_at + b * code_bytes(C), n * kLanes * 4, codes);
      const BlockScales<S> w = load_scales<S>(chunk, b, n * kLanes);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        acc[t] = add_block<C, S, kTwoPass>(acc[t], codes, w, a, token + t, column + b * kBlockColumns);
      }
    }
    for (int t = 0; t < T; ++t) {
      if constexpr (kTwoPass) {
        const ptrdiff_t row = static_cast<ptrdiff_t>(token + t) * a.scales_per_row;
        acc[t] = mul(acc[t], set(a.scale[row + column / kChunkColumns]));
      }
      store(sums + t * kWidth + n * kLanes, acc[t]);
    }
  }
}

// Writes the 16 rows' values of T tokens, with bias; the last tile may have fewer than 16 rows.
template <int T>
inline void write_tile(const LinearArgs& args, int tile, int token, const float* values) {
  const int first = tile * kTileRows;
  const int count = args.rows - first < kTileRows ? args.rows - first : kTileRows;
  for (int t = 0; t < T; ++t) {
    float* out = args.out + static_cast<ptrdiff_t>(token + t) * args.out_stride + first;
    for (int r = 0; r < count; ++r) {
      const float value = values[t * kWidth + r];
      out[r] = args.bias != nullptr ? value + args.bias[first + r] : value;
    }
  }
}

template <Codes C, Scales S, bool kTwoPass, int T>
inline void linear_tile(const LinearArgs& args, int tile, int token) {
  alignas(64) float slots[VectorTree::kLevels * T * kWidth];
  alignas(64) float sums[T * kWidth];
  VectorTree tree{slots, T * kWidth};
#ifdef ISOBIT_SPECIMEN
  // Deliberately wrong, for the tests of certify: the tree of several tokens is shifted by one chunk.
  constexpr uint32_t kShift = T > 1 ? 1 : 0;
#else
  constexpr uint32_t kShift = 0;
#endif
  const uint8_t* chunk = args.tiles + static_cast<size_t>(tile) * args.tile_bytes;
  for (int column = 0; column < args.columns; column += kChunkColumns) {
    const int rest = (args.columns - column) / kBlockColumns;
    const int blocks = rest < 8 ? rest : 8;
    chunk_sums<C, S, kTwoPass, T>(chunk, blocks, args.activations, token, column, sums);
    tree.push(column / kChunkColumns + kShift, sums);
    chunk += header_bytes(S, blocks) + blocks * code_bytes(C);
  }
  tree.root(sums);
  write_tile<T>(args, tile, token, sums);
}

enum class FloatKind { kF32, kF16, kBF16 };
template <FloatKind K> constexpr int float_bytes = K == FloatKind::kF32 ? 4 : 2;

template <FloatKind K> inline F load_weight(const uint8_t* p) {
  if constexpr (K == FloatKind::kF32) return load(reinterpret_cast<const float*>(p));
  if constexpr (K == FloatKind::kF16) return load_f16(reinterpret_cast<const uint16_t*>(p));
  return from_bits(shift_left<16>(load_u16(reinterpret_cast<const uint16_t*>(p))));
}

template <FloatKind K, int T>
inline void float_tile(const LinearArgs& args, int tile, int token) {
  constexpr int kBytes = float_bytes<K>;
  alignas(64) float slots[VectorTree::kLevels * T * kWidth];
  alignas(64) float sums[T * kWidth];
  VectorTree tree{slots, T * kWidth};
  const uint8_t* weights = args.tiles + static_cast<size_t>(tile) * args.tile_bytes;
  for (int first = 0; first < args.columns; first += kChunk) {
    const int last = first + kChunk < args.columns ? first + kChunk : args.columns;
    ISOBIT_EACH_PART {
      F acc[T];
      for (int t = 0; t < T; ++t) acc[t] = set(0.0f);
      for (int k = first; k < last; ++k) {
        const uint8_t* p = weights + (static_cast<size_t>(k) * kTileRows + n * kLanes) * kBytes;
        const F w = load_weight<K>(p);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          const float x = args.x[static_cast<ptrdiff_t>(token + t) * args.columns + k];
          acc[t] = fma(w, set(x), acc[t]);
        }
      }
      for (int t = 0; t < T; ++t) store(sums + t * kWidth + n * kLanes, acc[t]);
    }
    tree.push(first / kChunk, sums);
  }
  tree.root(sums);
  write_tile<T>(args, tile, token, sums);
}

// Tokens a tile of the kernel takes at once. Changing it changes no bit: it never touches the summed axis.
constexpr int kTokens = kLanes >= 16 ? 8 : kLanes >= 4 ? 4 : 1;

template <template <int> class Tile>
inline void for_each_token_tile(const LinearArgs& args, int tile, int begin, int end) {
  int token = begin;
  for (; token + kTokens <= end; token += kTokens) Tile<kTokens>::run(args, tile, token);
  if constexpr (kTokens > 4) {
    for (; token + 4 <= end; token += 4) Tile<4>::run(args, tile, token);
  }
  if constexpr (kTokens > 2) {
    for (; token + 2 <= end; token += 2) Tile<2>::run(args, tile, token);
  }
  for (; token < end; ++token) Tile<1>::run(args, tile, token);
}

template <Codes C, Scales S, bool kTwoPass> struct IntegerTiles {
  template <int T> struct Tile {
    static void run(const LinearArgs& args, int tile, int token) {
      linear_tile<C, S, kTwoPass, T>(args, tile, token);
    }
  };
  static void run(const LinearArgs& args, int tile, int begin, int end) {
    for_each_token_tile<Tile>(args, tile, begin, end);
  }
};

template <FloatKind K> struct FloatTiles {
  template <int T> struct Tile {
    static void run(const LinearArgs& args, int tile, int token) { float_tile<K, T>(args, tile, token); }
  };
  static void run(const LinearArgs& args, int tile, int begin, int end) {
    for_each_token_tile<Tile>(args, tile, begin, end);
  }
};

template <bool kTwoPass> inline LinearKernel integer_kernel(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0:
      return IntegerTiles<Codes::kNibble, Scales::kHalf, kTwoPass>::run;
    case WeightFormat::kQ4_1:
      return IntegerTiles<Codes::kNibble, Scales::kHalfMin, kTwoPass>::run;
    case WeightFormat::kQ5_0:
      return IntegerTiles<Codes::kFive, Scales::kHalf, kTwoPass>::run;
    case WeightFormat::kQ5_1:
      return IntegerTiles<Codes::kFive, Scales::kHalfMin, kTwoPass>::run;
    case WeightFormat::kQ8_0:
      return IntegerTiles<Codes::kByte, Scales::kHalf, kTwoPass>::run;
    case WeightFormat::kQ2_K:
      return IntegerTiles<Codes::kTwo, Scales::kSuper16Min, kTwoPass>::run;
    case WeightFormat::kQ3_K:
      return IntegerTiles<Codes::kThree, Scales::kSuper16, kTwoPass>::run;
    case WeightFormat::kQ4_K:
      return IntegerTiles<Codes::kNibble, Scales::kSuper32Min, kTwoPass>::run;
    case WeightFormat::kQ5_K:
      return IntegerTiles<Codes::kFive, Scales::kSuper32Min, kTwoPass>::run;
    case WeightFormat::kQ6_K:
      return IntegerTiles<Codes::kSix, Scales::kSuper16, kTwoPass>::run;
    case WeightFormat::kIQ4_NL:
      return IntegerTiles<Codes::kNibbleTable, Scales::kHalf, kTwoPass>::run;
    case WeightFormat::kIQ4_XS:
      return IntegerTiles<Codes::kNibbleTable, Scales::kSuper32, kTwoPass>::run;
    default:
      return nullptr;
  }
}

inline LinearKernel linear_kernel(WeightFormat format, bool two_pass) {
  switch (format) {
    case WeightFormat::kF32:
      return FloatTiles<FloatKind::kF32>::run;
    case WeightFormat::kF16:
      return FloatTiles<FloatKind::kF16>::run;
    case WeightFormat::kBF16:
      return FloatTiles<FloatKind::kBF16>::run;
    default:
      return two_pass ? integer_kernel<true>(format) : integer_kernel<false>(format);
  }
}

}  // namespace isobit::ISOBIT_TARGET
