// Exact binary32 operations in portable C++: the scalar target and the packers use them.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace isobit {

// a * b + c with one rounding. The product of two binary32 is exact in binary64; their sum is rounded to odd
// there (TwoSum gives the error), so that the final rounding to binary32 cannot round twice.
static inline float exact_fma(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = c;
  const double sum = product + addend;
  const double virtual_addend = sum - product;
  const double error = (product - (sum - virtual_addend)) + (addend - virtual_addend);
  // An infinite or NaN sum makes the error NaN: nothing to correct.
  if (error < 0.0 || error > 0.0) {
    int64_t word = std::bit_cast<int64_t>(sum);
    if ((word & 1) == 0) word += ((error > 0) == (sum > 0)) ? 1 : -1;
    return static_cast<float>(std::bit_cast<double>(word));
  }
  return static_cast<float>(sum);
}

static inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = (h >> 10) & 31;
  const uint32_t mantissa = h & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

// Nearest even, subnormals kept; beyond the range: infinity.
static inline uint16_t float_to_half(float f) {
  const uint32_t word = std::bit_cast<uint32_t>(f);
  const uint32_t sign = word >> 16 & 0x8000;
  const uint32_t magnitude = word & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude >= 0x38800000) {  // normal in binary16; a carry may reach infinity, which is right
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
  }
  // subnormal: in [0.5, 1) the spacing of binary32 is 2^-24, that of subnormal binary16
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
}

static inline float bfloat_to_float(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

}  // namespace isobit
