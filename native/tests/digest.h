// A 64-bit hash of output bits, and the lines that carry it.
#pragma once
#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include "isobit/kernels.h"
#include "random.h"

namespace isobit::tests {

class Digest {
 public:
  void add(uint32_t word) {
    state_ = (state_ ^ word) * 0x9e3779b97f4a7c15u;
    state_ ^= state_ >> 29;
  }
  // Which NaN it is does not count: a NaN is an error wherever it appears.
  void add(float value) { add(value != value ? 0x7fc00000u : std::bit_cast<uint32_t>(value)); }
  void add(bool value) { add(static_cast<uint32_t>(value)); }
  template <class T> void add(const std::vector<T>& values) {
    for (const T value : values) {
      if constexpr (std::is_same_v<T, float>) add(value);
      else add(static_cast<uint32_t>(value));
    }
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0x243f6a8885a308d3u;
};

// Floats that the kernel must not touch follow each output and are hashed with it.
constexpr size_t kGuard = 32;
constexpr float kUntouched = -0x1.234568p+55f;

inline std::vector<float> output(size_t count) { return std::vector<float>(count + kGuard, kUntouched); }

// Prints one line per case: `isa operation case hash`.
class Report {
 public:
  explicit Report(const Kernels& kernels) : kernels(kernels) {}
  void line(const std::string& operation, const std::string& label, const Digest& digest) {
    std::printf("%s %s %s %016llx\n", kernels.name, operation.c_str(), label.c_str(),
                static_cast<unsigned long long>(digest.value()));
  }
  // A call split over token ranges must give the bits of the whole call.
  void expect_same(const std::string& operation, const std::string& label, const Digest& whole,
                   const Digest& split) {
    if (whole.value() == split.value()) return;
    failed = true;
    std::fprintf(stderr, "%s %s %s: the result depends on how the tokens are split\n", kernels.name,
                 operation.c_str(), label.c_str());
  }

  const Kernels& kernels;
  bool failed = false;
};

void array_cases(Report& report);
void attention_cases(Report& report);
void linear_cases(Report& report);

}  // namespace isobit::tests
