// Integer dot products of weight codes and activation codes: exact, so each target takes its shortest way.
#pragma once
#include <cstring>

#include "wide.h"

namespace isobit::ISOBIT_TARGET {

inline B four_codes(const int8_t* p) {
  int32_t word;
  std::memcpy(&word, p, 4);
  return set_four(word);
}

// dot<kLimit, kWhole, kFirst, kCount, N>(sums, codes, a) adds to sums[i], lane by lane, the sum over the 4-column
// groups kFirst ... of (code - dot_bias) * activation, for N tokens whose activations are kChunk apart. Codes are
// unsigned and below kLimit; activations are in -127 ... 127, or reach -128 too if kWhole. The tokens' chains are
// interleaved, so that none waits for itself.
#define ISOBIT_EACH_TOKEN _Pragma("GCC unroll 16") for (int i = 0; i < N; ++i)
#ifndef ISOBIT_PAIR_SUMS
template <int kLimit, bool kWhole> constexpr int dot_bias = dot4_bias<kLimit>;

template <int kLimit, bool kWhole, int kFirst, int kCount, int N>
inline void dot(I (&sums)[N], const B (&codes)[8], const int8_t* a) {
#pragma GCC unroll 8
  for (int g = kFirst; g < kFirst + kCount; ++g) {
    ISOBIT_EACH_TOKEN sums[i] = dot4<kLimit>(sums[i], codes[g], four_codes(a + i * kChunk + 4 * g));
  }
}
#else
// Products are summed in pairs, in 16 bits with saturation. Codes of 7 bits never saturate; shorter ones leave room
// for several pairs. Codes of 8 bits: centred as |w| * (a with w's sign), or, where a may be -128, which cannot be
// negated, with the top bit apart.
template <int kLimit, bool kWhole> constexpr int dot_bias = kLimit > 128 && !kWhole ? 128 : 0;

template <int kLimit, bool kWhole> inline I dot4(I sum, B codes, B a) {
  if constexpr (kWhole) {
    const B top = and_b(shift_right_b<7>(codes), set_b(1));
    sum = add_i(sum, widen_pairs<1>(pair_sums(and_b(codes, set_b(127)), a)));
    return add_i(sum, widen_pairs<128>(pair_sums(top, a)));
  }
  const B w = xor_b(codes, set_b(128));
  return add_i(sum, widen_pairs<1>(pair_sums(magnitude_b(w), with_sign(a, w))));
}

template <int kLimit, bool kWhole, int kFirst, int kCount, int N>
inline void dot(I (&sums)[N], const B (&codes)[8], const int8_t* a) {
  constexpr int kRoom = kLimit > 128 ? 1 : 32767 / (2 * (kLimit - 1) * 128);
  constexpr int kRun = kRoom < kCount ? kRoom : kCount;
  static_assert(kCount % kRun == 0);
#pragma GCC unroll 8
  for (int first = kFirst; first < kFirst + kCount; first += kRun) {
    const auto four = [&](int i, int g) { return four_codes(a + i * kChunk + 4 * g); };
    if constexpr (kLimit > 128) {
      ISOBIT_EACH_TOKEN sums[i] = dot4<kLimit, kWhole>(sums[i], codes[first], four(i, first));
      continue;
    }
    B pairs[N];
    ISOBIT_EACH_TOKEN pairs[i] = pair_sums(codes[first], four(i, first));
#pragma GCC unroll 8
    for (int g = first + 1; g < first + kRun; ++g) {
      ISOBIT_EACH_TOKEN pairs[i] = add_pairs(pairs[i], pair_sums(codes[g], four(i, g)));
    }
    ISOBIT_EACH_TOKEN sums[i] = add_i(sums[i], widen_pairs<1>(pairs[i]));
  }
}
#endif

}  // namespace isobit::ISOBIT_TARGET
