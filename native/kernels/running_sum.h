// The trees of tree.h without a tree: chunk sums are added one after the other, in registers where that is quickest.
// This is not the canonical order. It is for the benchmark of what the canonical order costs (bench/order.py) alone.
#pragma once
#include "wide.h"

namespace isobit::ISOBIT_TARGET {

struct ScalarTree {
  float sum = 0.0f;

  void push(uint32_t, float value) { sum = sum + value; }
  float root() const { return sum; }
};

struct VectorTree {
  static constexpr int kLevels = 1;
  float* slots;
  int width;
  bool empty = true;

  struct Place {
    bool first;
  };
  Place place(uint32_t) {
    const Place p{empty};
    empty = false;
    return p;
  }
  // A chunk goes on from the sum of those before it, unless a factor of its own is still to come.
  template <bool kScaled> F start(const Place& p, int at) const {
    return kScaled || p.first ? set(0.0f) : load(slots + at);
  }
  template <bool kScaled, int T> void put(const Place& p, int at, F (&sums)[T]) const {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      float* to = slots + at + t * kWidth;
      store(to, kScaled && !p.first ? add(load(to), sums[t]) : sums[t]);
    }
  }
  void root(float* out) const {
    for (int i = 0; i < width; i += kWidth) store_wide(out + i, load_wide(slots + i));
  }
};

}  // namespace isobit::ISOBIT_TARGET
