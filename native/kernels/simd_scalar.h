// Plain C++: one lane. What every other target must equal.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "isobit/exact.h"

namespace isobit::ISOBIT_TARGET {

constexpr int kLanes = 1;
using F = float;
using I = int32_t;
using B = uint32_t;  // 4 bytes

inline F load(const float* p) { return *p; }
inline void store(float* p, F a) { *p = a; }
inline F set(float a) { return a; }
inline F add(F a, F b) { return a + b; }
inline F sub(F a, F b) { return a - b; }
inline F mul(F a, F b) { return a * b; }
inline F div(F a, F b) { return a / b; }
inline F sqrt(F a) { return __builtin_sqrtf(a); }
inline F fma(F a, F b, F c) { return exact_fma(a, b, c); }
inline F max(F a, F b) { return a > b ? a : b; }
inline F min(F a, F b) { return a < b ? a : b; }
// a < b ? x : y
inline F select_less(F a, F b, F x, F y) { return a < b ? x : y; }
inline I bits(F a) { return std::bit_cast<I>(a); }
inline F from_bits(I a) { return std::bit_cast<F>(a); }
inline F to_float(I a) { return static_cast<float>(a); }
inline I load_i(const int32_t* p) { return *p; }
inline void store_i(int32_t* p, I a) { *p = a; }
inline I set_i(int32_t a) { return a; }
// Integer sums wrap, as vector registers do.
inline I add_i(I a, I b) { return static_cast<I>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b)); }
inline I sub_i(I a, I b) { return static_cast<I>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b)); }
inline I mul_i(I a, I b) { return a * b; }
inline I and_i(I a, I b) { return a & b; }
inline I or_i(I a, I b) { return a | b; }
inline I xor_i(I a, I b) { return a ^ b; }
inline I max_u(I a, I b) { return static_cast<uint32_t>(a) > static_cast<uint32_t>(b) ? a : b; }
template <int S> inline I shift_left(I a) { return static_cast<I>(static_cast<uint32_t>(a) << S); }
template <int S> inline I shift_right(I a) { return a >> S; }
inline uint32_t reduce_max_u(I a) { return static_cast<uint32_t>(a); }
inline int32_t reduce_add(I a) { return a; }
// mask != 0 ? x : y
inline I select_nonzero(I mask, I x, I y) { return mask != 0 ? x : y; }

inline F load_f16(const uint16_t* p) { return half_to_float(*p); }
inline void store_f16(uint16_t* p, F a) { *p = float_to_half(a); }
inline I load_u16(const uint16_t* p) { return *p; }
inline I load_u8(const uint8_t* p) { return *p; }
inline I load_s8(const uint8_t* p) { return static_cast<int8_t>(*p); }
inline void store_s8(int8_t* p, I a) { *p = static_cast<int8_t>(a); }

inline B load_b(const uint8_t* p) {
  B word;
  std::memcpy(&word, p, 4);
  return word;
}
inline void store_b(uint8_t* p, B a) { std::memcpy(p, &a, 4); }
inline B set_b(uint8_t a) { return a * 0x01010101u; }
inline B and_b(B a, B b) { return a & b; }
inline B or_b(B a, B b) { return a | b; }
template <int S> inline B shift_left_b(B a) { return a << S; }
template <int S> inline B shift_right_b(B a) { return a >> S; }
inline B lookup_b(const uint8_t* table, B index) {
  B word = 0;
  for (int i = 0; i < 32; i += 8) word |= static_cast<B>(table[index >> i & 15]) << i;
  return word;
}

inline B set_four(int32_t a4) { return static_cast<B>(a4); }
template <int kLimit> constexpr int dot4_bias = 0;
template <int kLimit> inline I dot4(I acc, B codes, B a) {
  for (int i = 0; i < 32; i += 8) {
    acc += static_cast<int32_t>(codes >> i & 255) * static_cast<int8_t>(a >> i & 255);
  }
  return acc;
}

}  // namespace isobit::ISOBIT_TARGET
