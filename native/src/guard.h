// The floating-point control register: rounding to nearest, no flush to zero, whatever the process has set.
#pragma once
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace isobit {

class FloatGuard {
 public:
  FloatGuard() : saved_(read()) { write(kDefault); }
  ~FloatGuard() { write(saved_); }
  FloatGuard(const FloatGuard&) = delete;
  FloatGuard& operator=(const FloatGuard&) = delete;

#if defined(__x86_64__)
  using Word = unsigned;
  static Word read() { return _mm_getcsr(); }
  static void write(Word word) { _mm_setcsr(word); }
  static constexpr Word kDefault = 0x1f80;
  static constexpr Word kFlushToZero = 0x8040;  // and denormals are zero
#else
  using Word = uint64_t;
  static Word read() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" ::"r"(word)); }
  static constexpr Word kDefault = 0;
  static constexpr Word kFlushToZero = 1u << 24;
#endif

 private:
  Word saved_;
};

}  // namespace isobit
