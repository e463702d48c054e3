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

// The aligned binary tree over chunk sums, for one number (docs/numerics.md, 1.1).
struct ScalarTree {
  float slot[32];
  uint32_t occupied = 0;

  void push(uint32_t chunk, float value) {
    int level = 0;
    for (; chunk >> level & 1; ++level) {
      if (occupied >> level & 1) value = slot[level] + value;
      occupied &= ~(1u << level);
    }
    slot[level] = value;
    occupied |= 1u << level;
  }
  float root() const {
    float value = 0.0f;
    bool first = true;
    for (int level = 0; level < 32; ++level) {
      if (!(occupied >> level & 1)) continue;
      value = first ? slot[level] : slot[level] + value;
      first = false;
    }
    return value;
  }
};

// The same over vectors of `width` floats (a multiple of 16); `slots` has room for kLevels of them.
struct VectorTree {
  static constexpr int kLevels = 14;
  float* slots;
  int width;
  uint32_t occupied = 0;

  // Where a chunk's sum goes, and the levels whose sums are added to it on the way.
  struct Place {
    int level;
    uint32_t merged;
  };
  Place place(uint32_t chunk) {
    Place p{0, 0};
    for (; chunk >> p.level & 1; ++p.level) p.merged |= occupied & 1u << p.level;
    occupied = (occupied & ~p.merged) | 1u << p.level;
    return p;
  }
  // One register of the chunk's sum, at float `at` of the vector: it goes to its place without a detour over memory.
  void put(const Place& p, int at, F value) const {
    for (int level = 0; level < p.level; ++level) {
      if (p.merged >> level & 1) value = add(load(slots + level * width + at), value);
    }
    store(slots + p.level * width + at, value);
  }
  void push(uint32_t chunk, const float* value) {
    const Place p = place(chunk);
    for (int i = 0; i < width; i += kLanes) put(p, i, load(value + i));
  }
  // `out` receives the root.
  void root(float* out) const {
    bool first = true;
    for (int level = 0; level < kLevels; ++level) {
      if (!(occupied >> level & 1)) continue;
      if (first) {
        for (int i = 0; i < width; i += kWidth) {
          store_wide(out + i, load_wide(slots + level * width + i));
        }
      } else {
        add_slot(level, out);
      }
      first = false;
    }
  }

 private:
  void add_slot(int level, float* value) const {
    const float* left = slots + level * width;
    for (int i = 0; i < width; i += kWidth) {
      store_wide(value + i, add(load_wide(left + i), load_wide(value + i)));
    }
  }
};

}  // namespace isobit::ISOBIT_TARGET
