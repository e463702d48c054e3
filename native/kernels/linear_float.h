// x · Wᵀ with float weights in the canonical order (docs/numerics.md, 3.3).
#pragma once
#include "tile.h"

namespace isobit::ISOBIT_TARGET {

enum class FloatKind { kF32, kF16, kBF16 };
template <FloatKind K> constexpr int float_bytes = K == FloatKind::kF32 ? 4 : 2;

template <FloatKind K> inline F load_weight(const uint8_t* p) {
  if constexpr (K == FloatKind::kF32) return load(reinterpret_cast<const float*>(p));
  if constexpr (K == FloatKind::kF16) return load_f16(reinterpret_cast<const uint16_t*>(p));
  return from_bits(shift_left<16>(load_u16(reinterpret_cast<const uint16_t*>(p))));
}

// The chunk sums of 16 rows over columns [first, last) for T tokens. `weights` is the tile.
template <FloatKind K, int T>
inline void float_chunk_sums(const LinearArgs& args, const uint8_t* weights, int first, int last, int token,
                             float* sums) {
  const float* x = args.x + static_cast<ptrdiff_t>(token) * args.columns;
  ISOBIT_EACH_PART {
    F acc[T];
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) acc[t] = set(0.0f);
#pragma GCC unroll 1
    for (int k = first; k < last; ++k) {
      const F w =
          load_weight<K>(weights + (static_cast<size_t>(k) * kTileRows + n * kLanes) * float_bytes<K>);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t)
        acc[t] = fma(w, set(x[static_cast<ptrdiff_t>(t) * args.columns + k]), acc[t]);
    }
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) store(sums + t * kWidth + n * kLanes, acc[t]);
  }
}

template <FloatKind K> struct FloatTiles {
  static void run(const LinearArgs& args, int tile, int begin, int end) {
    const uint8_t* weights = args.tiles + static_cast<size_t>(tile) * args.tile_bytes;
    for_each_group(end - begin, [&]<int T>(int t) { group<T>(args, weights, tile, begin + t); });
  }

 private:
  template <int T> static void group(const LinearArgs& args, const uint8_t* weights, int tile, int token) {
    alignas(64) float slots[VectorTree::kLevels * T * kWidth];
    alignas(64) float sums[T * kWidth];
    VectorTree tree{slots, T * kWidth};
    for (int first = 0; first < args.columns; first += kChunk) {
      float_chunk_sums<K, T>(args, weights, first, smaller(first + kChunk, args.columns), token, sums);
      push(tree, first / kChunk, sums);
    }
    tree.root(sums);
    write_tile(args, tile, token, T, sums);
  }
};

}  // namespace isobit::ISOBIT_TARGET
