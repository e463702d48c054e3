// AVX-512 (F, BW, DQ, VL), with VNNI where the compiler's flags allow it: 16 lanes, one register.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace isobit::ISOBIT_TARGET {

constexpr int kLanes = 16;
using F = __m512;
using I = __m512i;
using B = __m512i;  // 4 bytes per lane

inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F a) { _mm512_storeu_ps(p, a); }
inline F set(float a) { return _mm512_set1_ps(a); }
inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F div(F a, F b) { return _mm512_div_ps(a, b); }
inline F sqrt(F a) { return _mm512_sqrt_ps(a); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm512_max_ps(a, b); }
inline F min(F a, F b) { return _mm512_min_ps(a, b); }
// a < b ? x : y
inline F select_less(F a, F b, F x, F y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
inline I bits(F a) { return _mm512_castps_si512(a); }
inline F from_bits(I a) { return _mm512_castsi512_ps(a); }
inline F to_float(I a) { return _mm512_cvtepi32_ps(a); }
inline I load_i(const int32_t* p) { return _mm512_loadu_si512(p); }
inline void store_i(int32_t* p, I a) { _mm512_storeu_si512(p, a); }
inline I set_i(int32_t a) { return _mm512_set1_epi32(a); }
inline I add_i(I a, I b) { return _mm512_add_epi32(a, b); }
inline I sub_i(I a, I b) { return _mm512_sub_epi32(a, b); }
inline I mul_i(I a, I b) { return _mm512_mullo_epi32(a, b); }
inline I and_i(I a, I b) { return _mm512_and_si512(a, b); }
inline I or_i(I a, I b) { return _mm512_or_si512(a, b); }
inline I xor_i(I a, I b) { return _mm512_xor_si512(a, b); }
inline I max_u(I a, I b) { return _mm512_max_epu32(a, b); }
template <int S> inline I shift_left(I a) { return _mm512_slli_epi32(a, S); }
template <int S> inline I shift_right(I a) { return _mm512_srai_epi32(a, S); }
inline uint32_t reduce_max_u(I a) { return _mm512_reduce_max_epu32(a); }
inline int32_t reduce_add(I a) { return _mm512_reduce_add_epi32(a); }
// each lane: mask != 0 ? x : y
inline I select_nonzero(I mask, I x, I y) {
  return _mm512_mask_blend_epi32(_mm512_test_epi32_mask(mask, mask), y, x);
}

inline F load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void store_f16(uint16_t* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline I load_u16(const uint16_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline I load_u8(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline I load_s8(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// the low byte of each lane
inline void store_s8(int8_t* p, I a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}

inline B load_b(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline void store_b(uint8_t* p, B a) { _mm512_storeu_si512(p, a); }
inline B set_b(uint8_t a) { return _mm512_set1_epi8(static_cast<char>(a)); }
inline B and_b(B a, B b) { return _mm512_and_si512(a, b); }
inline B xor_b(B a, B b) { return _mm512_xor_si512(a, b); }
inline B or_b(B a, B b) { return _mm512_or_si512(a, b); }
// Bits may cross into the neighbouring byte: the caller masks them off.
template <int S> inline B shift_left_b(B a) { return _mm512_slli_epi16(a, S); }
template <int S> inline B shift_right_b(B a) { return _mm512_srli_epi16(a, S); }
inline B lookup_b(const uint8_t* table, B index) {
  const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), index);
}

inline B set_four(int32_t a4) { return _mm512_set1_epi32(a4); }
#ifdef __AVX512VNNI__
template <int kLimit> constexpr int dot4_bias = 0;
template <int kLimit> inline I dot4(I acc, B codes, B a) { return _mm512_dpbusd_epi32(acc, codes, a); }
#else
#define ISOBIT_PAIR_SUMS
inline B pair_sums(B codes, B a) { return _mm512_maddubs_epi16(codes, a); }
inline B add_pairs(B a, B b) { return _mm512_add_epi16(a, b); }
template <int kFactor> inline I widen_pairs(B pairs) {
  return _mm512_madd_epi16(pairs, _mm512_set1_epi16(kFactor));
}
// a with the sign of b: -a where b is negative.
inline B with_sign(B a, B b) {
  return _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(b), _mm512_setzero_si512(), a);
}
inline B magnitude_b(B a) { return _mm512_abs_epi8(a); }
#endif

}  // namespace isobit::ISOBIT_TARGET
