// x · Wᵀ with integer weights in the canonical order (docs/numerics.md, 3.1 and 3.2). Lanes are output rows, tiles are
// 16 rows by some tokens; the summed axis is never split.
#pragma once
#include "dot.h"
#include "tile.h"
#include "unpack.h"

namespace isobit::ISOBIT_TARGET {

// A chunk's activations of the tokens of a block, and what depends on their sums: the integer from which a dot
// product starts (codes without a minimum stand for code - offset), or the sum as a float for the minimum.
template <Codes C, Scales S, bool kTwoPass> struct ChunkActivations {
  static constexpr int kOffset = code_offset(C, S) - dot_bias<code_limit(C), kTwoPass>;
  static constexpr int kSums = sub_blocks(S) == 1 ? Activations::kBlocks : Activations::kSums;  // of a token
  static constexpr bool kStarts = kOffset != 0;
  const int8_t* low;
  const int8_t* high;
  const float* scale;
  alignas(64) int32_t start[kStarts ? kTokenBlock * kSums + kActivationPadding : 1];
  alignas(64) float sums[has_minimum(S) ? kTokenBlock * kSums + kActivationPadding : 1];

  ChunkActivations(const Activations& a, int chunk, int token, int tokens) {
    low = a.low + a.at(chunk, token, kChunk);
    high = kTwoPass ? a.high + a.at(chunk, token, kChunk) : nullptr;
    scale = a.scale + a.at(chunk, token, kTwoPass ? 1 : Activations::kBlocks);
    const int32_t* from = (sub_blocks(S) == 1 ? a.block_sums : a.sums) + a.at(chunk, token, kSums);
    for (int i = 0; i < tokens * kSums; i += kLanes) {
      const I sum = load_i(from + i);
      if constexpr (kStarts) {
        store_i(start + i, add_i(mul_i(sum, set_i(-kOffset)), set_i(kTwoPass ? 0 : kMagicBits)));
      }
      if constexpr (has_minimum(S)) store(sums + i, to_float(sum));
    }
  }
};

// The sums of (code - offset) · activation over sub-block `j` of block `b`, which has the groups kFirst ...
template <Codes C, Scales S, bool kTwoPass, int kFirst, int N>
inline void sub_block_dots(F (&out)[N], const B (&codes)[8], const ChunkActivations<C, S, kTwoPass>& a,
                           int token, int b, int j) {
  using Chunk = ChunkActivations<C, S, kTwoPass>;
  constexpr int kLimit = code_limit(C);
  constexpr int kCount = 8 / sub_blocks(S);
  const ptrdiff_t at = static_cast<ptrdiff_t>(token) * kChunk + b * kBlockColumns;
  const int32_t* start = a.start + token * Chunk::kSums + b * sub_blocks(S) + j;
  constexpr bool kStarts = Chunk::kStarts;
  I sum[N];
  ISOBIT_EACH_TOKEN sum[i] = kStarts ? set_i(start[i * Chunk::kSums]) : set_i(kTwoPass ? 0 : kMagicBits);
  dot<kLimit, kTwoPass, kFirst, kCount>(sum, codes, a.low + at);
  if constexpr (kTwoPass) {
    I high[N];
    ISOBIT_EACH_TOKEN high[i] = set_i(0);
    dot<kLimit, kTwoPass, kFirst, kCount>(high, codes, a.high + at);
    ISOBIT_EACH_TOKEN sum[i] = add_i(sum[i], shift_left<8>(high[i]));
  }
  ISOBIT_EACH_TOKEN out[i] = kTwoPass ? to_float(sum[i]) : from_bits(sum[i]);
}

// Adds the contribution of block `b` of a chunk to acc[0 ... N - 1], the sums of N tokens.
template <Codes C, Scales S, bool kTwoPass, int N>
inline void add_block(F* acc, const B (&codes)[8], const BlockScales<S>& w,
                      const ChunkActivations<C, S, kTwoPass>& a, int token, int b) {
  constexpr int kSubs = sub_blocks(S);
  constexpr int kSums = ChunkActivations<C, S, kTwoPass>::kSums;
  F dots[N];
  F u[N];
  sub_block_dots<C, S, kTwoPass, 0>(dots, codes, a, token, b, 0);
  ISOBIT_EACH_TOKEN u[i] = fma(dots[i], w.scale[0], kTwoPass ? acc[i] : w.shift);
  if constexpr (kSubs == 2) {
    sub_block_dots<C, S, kTwoPass, 4>(dots, codes, a, token, b, 1);
    ISOBIT_EACH_TOKEN u[i] = fma(kTwoPass ? dots[i] : sub(dots[i], set(kMagic)), w.scale[1], u[i]);
  }
  if constexpr (has_minimum(S)) {
    const float* sums = a.sums + token * kSums + b * kSubs;
#pragma GCC unroll 2
    for (int j = 0; j < kSubs; ++j)
      ISOBIT_EACH_TOKEN u[i] = fma(set(sums[i * kSums + j]), w.minimum[j], u[i]);
  }
  const float* scale = a.scale + token * Activations::kBlocks + b;
  ISOBIT_EACH_TOKEN acc[i] = kTwoPass ? u[i] : fma(u[i], set(scale[i * Activations::kBlocks]), acc[i]);
}

// The chunk sums of 16 rows for T tokens go to their place in the tree. `Source` is a PackedChunk or an UnpackedChunk.
template <Codes C, Scales S, bool kTwoPass, int T, class Source>
inline void chunk_sums(const Source& weights, int blocks, const ChunkActivations<C, S, kTwoPass>& a,
                       int token, const VectorTree& tree, const VectorTree::Place& place) {
  constexpr int N = T < kChains ? T : kChains;
  ISOBIT_EACH_PART {
    F acc[T];
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      acc[t] = tree.template start<kTwoPass>(place, (token + t) * kWidth + n * kLanes);
    }
#pragma GCC unroll 1
    for (int b = 0; b < blocks; ++b) {
      if (n == 0) weights.prefetch(b);
      B codes[8];
      weights.codes(b, n, codes);
      const BlockScales<S> w = weights.scales(b, n);
#pragma GCC unroll 16
      for (int t = 0; t < T; t += N) add_block<C, S, kTwoPass, N>(acc + t, codes, w, a, token + t, b);
    }
    if constexpr (kTwoPass) {
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) acc[t] = mul(acc[t], set(a.scale[token + t]));
    }
    tree.template put<kTwoPass>(place, token * kWidth + n * kLanes, acc);
  }
}

// One tile for tokens [token, token + tokens), at most kTokenBlock of them.
template <Codes C, Scales S, bool kTwoPass>
inline void token_block(const LinearArgs& args, int tile, int token, int tokens) {
  using Chunk = ChunkActivations<C, S, kTwoPass>;
  alignas(64) float slots[VectorTree::kLevels * kTokenBlock * kWidth];
  VectorTree tree{slots, tokens * kWidth};
#ifdef ISOBIT_SPECIMEN
  // Deliberately wrong, for the tests of certify: the tree of several tokens is shifted by one chunk.
  const uint32_t shift = tokens > 1 ? 1 : 0;
#else
  constexpr uint32_t shift = 0;
#endif
  const uint8_t* at = args.tiles + static_cast<size_t>(tile) * args.tile_bytes;
  for (int chunk = 0; chunk < args.activations.chunks(); ++chunk) {
    const int rest = (args.columns - chunk * kChunk) / kBlockColumns;
    const PackedChunk<C, S> packed(at, rest < 8 ? rest : 8);
    const Chunk activations(args.activations, chunk, token, tokens);
    const VectorTree::Place place = tree.place(chunk + shift);
    if (tokens == 1) {
      chunk_sums<C, S, kTwoPass, 1>(packed, packed.blocks, activations, 0, tree, place);
    } else {
      const UnpackedChunk<C, S> weights(packed);
      for_each_group(tokens, [&]<int T>(int t) {
        chunk_sums<C, S, kTwoPass, T>(weights, packed.blocks, activations, t, tree, place);
      });
    }
    at = packed.end();
  }
  alignas(64) float sums[kTokenBlock * kWidth];
  tree.root(sums);
  write_tile(args, tile, token, tokens, sums);
}

template <Codes C, Scales S, bool kTwoPass> struct IntegerTiles {
  static void run(const LinearArgs& args, int tile, int begin, int end) {
    for (int token = begin; token < end; token += kTokenBlock) {
      token_block<C, S, kTwoPass>(args, tile, token, smaller(kTokenBlock, end - token));
    }
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

}  // namespace isobit::ISOBIT_TARGET
