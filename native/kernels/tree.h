// How chunk sums are combined: by the aligned binary tree of the canonical order.
#pragma once
#include "wide.h"

#ifdef ISOBIT_FREE_ORDER
#include "running_sum.h"
#else
namespace isobit::ISOBIT_TARGET {

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
  // From what a chunk's sum starts at float `at`; kScaled if it is multiplied by something before it is put.
  template <bool kScaled> F start(const Place&, int) const { return set(0.0f); }
  // Registers of chunk sums, kWidth apart from float `at` of the vector on, go to their place without a detour over
  // memory; they are changed on the way.
  template <bool kScaled, int T> void put(const Place& p, int at, F (&sums)[T]) const {
    for (uint32_t rest = p.merged; rest != 0; rest &= rest - 1) {
      const float* left = slots + __builtin_ctz(rest) * width + at;
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) sums[t] = add(load(left + t * kWidth), sums[t]);
    }
    float* to = slots + p.level * width + at;
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) store(to + t * kWidth, sums[t]);
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
#endif

namespace isobit::ISOBIT_TARGET {

// A chunk's sum out of memory, for all of the vector.
inline void push(VectorTree& tree, uint32_t chunk, const float* value) {
  const VectorTree::Place place = tree.place(chunk);
  for (int i = 0; i < tree.width; i += kLanes) {
    F sum[1] = {load(value + i)};
    tree.template put<true>(place, i, sum);
  }
}

}  // namespace isobit::ISOBIT_TARGET
