// What the machine can do at best with this instruction set: loops that do nothing but read, multiply integers, or
// multiply floats. Speeds of real work are shown as a share of theirs.
#pragma once
#include "dot.h"

namespace isobit::ISOBIT_TARGET {

// Makes the compiler forget what it knows of a register, so that it neither hoists nor drops what is made of it.
template <class T> inline void forget(T& value) {
#if defined(ISOBIT_SIMD_AVX512)
  asm volatile("" : "+v"(value));
#elif defined(ISOBIT_SIMD_AVX2)
  asm volatile("" : "+x"(value));
#elif defined(ISOBIT_SIMD_NEON)
  asm volatile("" : "+w"(value));
#else
  asm volatile("" : "+g"(value));
#endif
}

constexpr int kReadStreams = 8;                 // loads that do not wait for each other
constexpr size_t kReadStep = 8 * kVectorBytes;  // bytes of a step of the loop
constexpr size_t kReadAhead = 4096;             // prefetched; past the end a prefetch does nothing

// The exclusive or of all words of `bytes` bytes, a multiple of kReadStep.
inline int32_t read_all(const uint8_t* data, size_t bytes) {
  constexpr int kWords = static_cast<int>(kReadStep / 4);
  I sums[kReadStreams];
  for (I& sum : sums) sum = set_i(0);
  for (size_t at = 0; at < bytes; at += kReadStep) {
    const auto* words = reinterpret_cast<const int32_t*>(data + at);
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) __builtin_prefetch(data + at + kReadAhead + line * kVectorBytes);
#pragma GCC unroll 128
    for (int i = 0; i < kWords / kLanes; ++i) {
      sums[i % kReadStreams] = xor_i(sums[i % kReadStreams], load_i(words + i * kLanes));
    }
  }
  int32_t lanes[kLanes];
  for (int i = 1; i < kReadStreams; ++i) sums[0] = xor_i(sums[0], sums[i]);
  store_i(lanes, sums[0]);
  for (int i = 1; i < kLanes; ++i) lanes[0] ^= lanes[i];
  return lanes[0];
}

constexpr int kDotChains = kLanes == 16 ? 12 : 8;
constexpr int kDotRun = 8;

// Dot products of 4-bit codes by the target's shortest way, all in registers. Returns the operations done in `rounds`
// rounds, two for a multiplication with its addition.
inline double dot_rounds(size_t rounds, int32_t* sink) {
  I sums[kDotChains];
  for (I& sum : sums) sum = set_i(0);
  B codes[2] = {set_b(3), set_b(5)};
  B activations = set_b(7);
  for (size_t round = 0; round < rounds; ++round) {
    forget(codes[0]);
    forget(codes[1]);
    forget(activations);
#ifdef ISOBIT_PAIR_SUMS
#pragma GCC unroll 16
    for (I& sum : sums) {
      B pairs = pair_sums(codes[0], activations);
#pragma GCC unroll 8
      for (int g = 1; g < kDotRun; ++g) {
        forget(activations);  // or equal products would be made once
        pairs = add_pairs(pairs, pair_sums(codes[g % 2], activations));
      }
      sum = add_i(sum, widen_pairs<1>(pairs));
    }
#else
#pragma GCC unroll 8
    for (int g = 0; g < kDotRun; ++g) {
#pragma GCC unroll 16
      for (I& sum : sums) {
        sum = dot4<16>(sum, codes[g % 2], activations);
        forget(sum);
      }
    }
#endif
  }
  for (const I& sum : sums) sums[0] = add_i(sums[0], sum);
  *sink = reduce_add(sums[0]);
  return 2.0 * 4 * kLanes * kDotChains * kDotRun * static_cast<double>(rounds);
}

constexpr int kFmaChains = kLanes == 16 ? 24 : 12;

// The same for fused multiply-adds of binary32. The scalar target's fma is a function where the processor has none.
inline double fma_rounds(size_t rounds, float* sink) {
  F sums[kFmaChains];
  for (F& sum : sums) sum = set(1.0f);
  F a = set(0.5f);
  F b = set(0.25f);
  for (size_t round = 0; round < rounds; ++round) {
    forget(a);
    forget(b);
#pragma GCC unroll 8
    for (int g = 0; g < kDotRun; ++g) {
#pragma GCC unroll 32
      for (F& sum : sums) sum = fma(sum, a, b);
    }
  }
  for (int i = 1; i < kFmaChains; ++i) sums[0] = add(sums[0], sums[i]);
  float lanes[kLanes];
  store(lanes, sums[0]);
  *sink = lanes[0];
  return 2.0 * kLanes * kFmaChains * kDotRun * static_cast<double>(rounds);
}

}  // namespace isobit::ISOBIT_TARGET
