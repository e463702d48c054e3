// What the linear kernels share: groups of tokens and the writing of a tile.
#pragma once
#include "isobit/kernels.h"
#include "tree.h"

namespace isobit::ISOBIT_TARGET {

inline int larger(int a, int b) { return a > b ? a : b; }
inline int smaller(int a, int b) { return a < b ? a : b; }

// Tokens that registers hold at once, tokens whose dot products are interleaved, and tokens for which a chunk of
// weights is unpacked once. None changes a bit: they never touch the summed axis.
constexpr int kTokens = kLanes >= 16 ? 8 : kLanes >= 4 ? 4 : 1;
constexpr int kChains = kLanes >= 16 ? 8 : 2;
constexpr int kTokenBlock = 64;

// Calls take<T>(first) for groups of T tokens, of the largest sizes that fit.
template <class Take> inline void for_each_group(int tokens, Take take) {
  int t = 0;
  for (; t + kTokens <= tokens; t += kTokens) take.template operator()<kTokens>(t);
  if constexpr (kTokens > 4) {
    for (; t + 4 <= tokens; t += 4) take.template operator()<4>(t);
  }
  if constexpr (kTokens > 2) {
    for (; t + 2 <= tokens; t += 2) take.template operator()<2>(t);
  }
  for (; t < tokens; ++t) take.template operator()<1>(t);
}

// Writes the 16 rows' values of some tokens, with bias; the last tile may have fewer than 16 rows.
inline void write_tile(const LinearArgs& args, int tile, int token, int tokens, const float* values) {
  const int first = tile * kTileRows;
  const int count = smaller(args.rows - first, kTileRows);
  const float* bias = args.bias != nullptr ? args.bias + first : nullptr;
  for (int t = 0; t < tokens; ++t, values += kWidth) {
    float* out = args.out + static_cast<ptrdiff_t>(token + t) * args.out_stride + first;
    if (count < kTileRows) {
      for (int r = 0; r < count; ++r) out[r] = bias != nullptr ? values[r] + bias[r] : values[r];
    } else {
      const Wide sum = load_wide(values);
      store_wide(out, bias != nullptr ? add(sum, load_wide(bias)) : sum);
    }
  }
}

}  // namespace isobit::ISOBIT_TARGET
