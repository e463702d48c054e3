// Deterministic inputs, the same on every machine: integers from splitmix64, floats from them by exact operations only.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace isobit::tests {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int below(int limit) { return static_cast<int>(next() % static_cast<uint64_t>(limit)); }
  bool one_in(int n) { return below(n) == 0; }
  template <class T, size_t N> T pick(const T (&choices)[N]) { return choices[below(N)]; }

  // [-1, 1) in steps of 2^-23
  float unit() { return static_cast<float>(static_cast<int32_t>(next() >> 40) - (1 << 23)) * 0x1p-23f; }
  // sign and mantissa random, exponent in [low, high]; -126 <= low, high <= 127
  float magnitude(int low, int high) {
    const uint32_t exponent = static_cast<uint32_t>(low + below(high - low + 1) + 127);
    const uint32_t word = static_cast<uint32_t>(next());
    return std::bit_cast<float>((word & 0x807fffff) | exponent << 23);
  }
  // any finite bit pattern
  float any_finite() {
    for (;;) {
      const uint32_t word = static_cast<uint32_t>(next());
      if ((word & 0x7f800000) != 0x7f800000) return std::bit_cast<float>(word);
    }
  }
  // zeros, subnormals, the borders of the normal range, ones, halves
  float hostile() {
    static constexpr uint32_t words[] = {0x00000000, 0x00000001, 0x00000002, 0x007fffff,
                                         0x00800000, 0x00800001, 0x33800000, 0x3effffff,
                                         0x3f000000, 0x3f7fffff, 0x3f800000, 0x3f800001};
    return std::bit_cast<float>(pick(words) | (one_in(2) ? 0x80000000u : 0u));
  }
  // What features look like, with a zero, a subnormal or an outlier now and then.
  float feature() {
    if (one_in(16)) return hostile();
    if (one_in(64)) return magnitude(4, 8);
    return unit();
  }
  // A finite binary16 of the size of a scale, now and then zero or subnormal.
  uint16_t scale_half() {
    const uint16_t sign = one_in(2) ? 0x8000 : 0;
    const uint16_t mantissa = static_cast<uint16_t>(next() & 0x3ff);
    if (one_in(12)) return sign;
    if (one_in(8)) return sign | mantissa;
    return static_cast<uint16_t>(sign | (5 + below(11)) << 10 | mantissa);  // 2^-10 to 2^1
  }

 private:
  uint64_t state_;
};

template <class Make> std::vector<float> floats(size_t count, Make make) {
  std::vector<float> values(count);
  for (float& v : values) v = make();
  return values;
}

}  // namespace isobit::tests
