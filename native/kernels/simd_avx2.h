// AVX2 with FMA and F16C: 8 lanes.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace isobit::ISOBIT_TARGET {

constexpr int kLanes = 8;
using F = __m256;
using I = __m256i;
using B = __m256i;  // 4 bytes per lane

inline F load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, F a) { _mm256_storeu_ps(p, a); }
inline F set(float a) { return _mm256_set1_ps(a); }
inline F add(F a, F b) { return _mm256_add_ps(a, b); }
inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
inline F div(F a, F b) { return _mm256_div_ps(a, b); }
inline F sqrt(F a) { return _mm256_sqrt_ps(a); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm256_max_ps(a, b); }
inline F min(F a, F b) { return _mm256_min_ps(a, b); }
// a < b ? x : y
inline F select_less(F a, F b, F x, F y) { return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
inline I bits(F a) { return _mm256_castps_si256(a); }
inline F from_bits(I a) { return _mm256_castsi256_ps(a); }
inline F to_float(I a) { return _mm256_cvtepi32_ps(a); }
inline I load_i(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void store_i(int32_t* p, I a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }
inline I set_i(int32_t a) { return _mm256_set1_epi32(a); }
inline I add_i(I a, I b) { return _mm256_add_epi32(a, b); }
inline I sub_i(I a, I b) { return _mm256_sub_epi32(a, b); }
inline I mul_i(I a, I b) { return _mm256_mullo_epi32(a, b); }
inline I and_i(I a, I b) { return _mm256_and_si256(a, b); }
inline I or_i(I a, I b) { return _mm256_or_si256(a, b); }
inline I xor_i(I a, I b) { return _mm256_xor_si256(a, b); }
inline I max_u(I a, I b) { return _mm256_max_epu32(a, b); }
template <int S> inline I shift_left(I a) { return _mm256_slli_epi32(a, S); }
template <int S> inline I shift_right(I a) { return _mm256_srai_epi32(a, S); }
inline uint32_t reduce_max_u(I a) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1))));
}
inline int32_t reduce_add(I a) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
// each lane: mask != 0 ? x : y
inline I select_nonzero(I mask, I x, I y) {
  return _mm256_blendv_epi8(x, y, _mm256_cmpeq_epi32(mask, _mm256_setzero_si256()));
}

inline F load_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void store_f16(uint16_t* p, F a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
inline I load_u16(const uint16_t* p) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline I load_u8(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
inline I load_s8(const uint8_t* p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
// the low byte of each lane
inline void store_s8(int8_t* p, I a) {
  const __m256i low = _mm256_set1_epi64x(0x000000000c080400);
  const __m256i packed = _mm256_shuffle_epi8(a, low);
  const int32_t first = _mm256_extract_epi32(packed, 0);
  const int32_t second = _mm256_extract_epi32(packed, 4);
  __builtin_memcpy(p, &first, 4);
  __builtin_memcpy(p + 4, &second, 4);
}

inline B load_b(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void store_b(uint8_t* p, B a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }
inline B set_b(uint8_t a) { return _mm256_set1_epi8(static_cast<char>(a)); }
inline B and_b(B a, B b) { return _mm256_and_si256(a, b); }
inline B xor_b(B a, B b) { return _mm256_xor_si256(a, b); }
inline B or_b(B a, B b) { return _mm256_or_si256(a, b); }
// Bits may cross into the neighbouring byte: the caller masks them off.
template <int S> inline B shift_left_b(B a) { return _mm256_slli_epi16(a, S); }
template <int S> inline B shift_right_b(B a) { return _mm256_srli_epi16(a, S); }
inline B lookup_b(const uint8_t* table, B index) {
  const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), index);
}

inline B set_four(int32_t a4) { return _mm256_set1_epi32(a4); }
#define ISOBIT_PAIR_SUMS
inline B pair_sums(B codes, B a) { return _mm256_maddubs_epi16(codes, a); }
inline B add_pairs(B a, B b) { return _mm256_add_epi16(a, b); }
template <int kFactor> inline I widen_pairs(B pairs) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(kFactor));
}
// a with the sign of b, zero where b is zero
inline B with_sign(B a, B b) { return _mm256_sign_epi8(a, b); }
inline B magnitude_b(B a) { return _mm256_abs_epi8(a); }

}  // namespace isobit::ISOBIT_TARGET
