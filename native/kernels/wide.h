// Sixteen lanes on every target: the unit in which the canonical order is written.
// A `Wide` is 16 / kLanes registers; its operations are those of the target, register by register.
#pragma once

#if defined(ISOBIT_SIMD_AVX512)
#include "simd_avx512.h"
#elif defined(ISOBIT_SIMD_AVX2)
#include "simd_avx2.h"
#elif defined(ISOBIT_SIMD_NEON)
#include "simd_neon.h"
#else
#include "simd_scalar.h"
#endif

namespace isobit::ISOBIT_TARGET {

constexpr int kWidth = 16;               // lanes of the canonical order, rows of a weight tile
constexpr int kParts = kWidth / kLanes;  // registers that hold them
constexpr int kChunk = 256;              // terms of a chunk sum
constexpr float kMagic = 12582912.0f;    // 1.5 * 2^23: adding it rounds to the nearest integer
constexpr int32_t kMagicBits = 0x4b400000;

struct Wide {
  F part[kParts];
};

#define ISOBIT_EACH_PART _Pragma("GCC unroll 16") for (int n = 0; n < kParts; ++n)

inline Wide zero_wide() {
  Wide r;
  ISOBIT_EACH_PART r.part[n] = set(0.0f);
  return r;
}
inline Wide load_wide(const float* p) {
  Wide r;
  ISOBIT_EACH_PART r.part[n] = load(p + n * kLanes);
  return r;
}
inline void store_wide(float* p, const Wide& a) { ISOBIT_EACH_PART store(p + n * kLanes, a.part[n]); }
inline Wide add(const Wide& a, const Wide& b) {
  Wide r;
  ISOBIT_EACH_PART r.part[n] = add(a.part[n], b.part[n]);
  return r;
}

// Folds the 16 lanes of a striped sum: l + 8, l + 4, l + 2, l + 1.
inline float fold(const Wide& a) {
  float lanes[kWidth];
  store_wide(lanes, a);
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] = lanes[l] + lanes[l + half];
  }
  return lanes[0];
}

}  // namespace isobit::ISOBIT_TARGET
