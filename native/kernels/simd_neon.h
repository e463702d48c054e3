// NEON on 64-bit Arm, with the dot product extension where the compiler's flags allow it: 4 lanes.
#pragma once
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace isobit::ISOBIT_TARGET {

constexpr int kLanes = 4;
using F = float32x4_t;
using I = int32x4_t;
using B = uint8x16_t;  // 4 bytes per lane

inline F load(const float* p) { return vld1q_f32(p); }
inline void store(float* p, F a) { vst1q_f32(p, a); }
inline F set(float a) { return vdupq_n_f32(a); }
inline F add(F a, F b) { return vaddq_f32(a, b); }
inline F sub(F a, F b) { return vsubq_f32(a, b); }
inline F mul(F a, F b) { return vmulq_f32(a, b); }
inline F div(F a, F b) { return vdivq_f32(a, b); }
inline F sqrt(F a) { return vsqrtq_f32(a); }
inline F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
inline F max(F a, F b) { return vmaxq_f32(a, b); }
inline F min(F a, F b) { return vminq_f32(a, b); }
// a < b ? x : y
inline F select_less(F a, F b, F x, F y) { return vbslq_f32(vcltq_f32(a, b), x, y); }
inline I bits(F a) { return vreinterpretq_s32_f32(a); }
inline F from_bits(I a) { return vreinterpretq_f32_s32(a); }
inline F to_float(I a) { return vcvtq_f32_s32(a); }
inline I load_i(const int32_t* p) { return vld1q_s32(p); }
inline void store_i(int32_t* p, I a) { vst1q_s32(p, a); }
inline I set_i(int32_t a) { return vdupq_n_s32(a); }
inline I add_i(I a, I b) { return vaddq_s32(a, b); }
inline I sub_i(I a, I b) { return vsubq_s32(a, b); }
inline I mul_i(I a, I b) { return vmulq_s32(a, b); }
inline I and_i(I a, I b) { return vandq_s32(a, b); }
inline I or_i(I a, I b) { return vorrq_s32(a, b); }
inline I xor_i(I a, I b) { return veorq_s32(a, b); }
inline I max_u(I a, I b) {
  return vreinterpretq_s32_u32(vmaxq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}
template <int S> inline I shift_left(I a) { return vshlq_n_s32(a, S); }
template <int S> inline I shift_right(I a) { return vshrq_n_s32(a, S); }
inline uint32_t reduce_max_u(I a) { return vmaxvq_u32(vreinterpretq_u32_s32(a)); }
inline int32_t reduce_add(I a) { return vaddvq_s32(a); }
// each lane: mask != 0 ? x : y
inline I select_nonzero(I mask, I x, I y) { return vbslq_s32(vtstq_s32(mask, mask), x, y); }

inline F load_f16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
inline void store_f16(uint16_t* p, F a) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a))); }
inline I load_u16(const uint16_t* p) { return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p))); }
inline I load_u8(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  const uint16x8_t wide = vmovl_u8(vcreate_u8(word));
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
}
inline I load_s8(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  const int16x8_t wide = vmovl_s8(vcreate_s8(word));
  return vmovl_s16(vget_low_s16(wide));
}
// the low byte of each lane
inline void store_s8(int8_t* p, I a) {
  const int16x4_t half = vmovn_s32(a);
  const int8x8_t bytes = vmovn_s16(vcombine_s16(half, half));
  const uint32_t word = vget_lane_u32(vreinterpret_u32_s8(bytes), 0);
  std::memcpy(p, &word, 4);
}

inline B load_b(const uint8_t* p) { return vld1q_u8(p); }
inline void store_b(uint8_t* p, B a) { vst1q_u8(p, a); }
inline B set_b(uint8_t a) { return vdupq_n_u8(a); }
inline B and_b(B a, B b) { return vandq_u8(a, b); }
inline B or_b(B a, B b) { return vorrq_u8(a, b); }
template <int S> inline B shift_left_b(B a) {
  if constexpr (S == 0) return a;
  else return vshlq_n_u8(a, S);
}
template <int S> inline B shift_right_b(B a) {
  if constexpr (S == 0) return a;
  else return vshrq_n_u8(a, S);
}
inline B lookup_b(const uint8_t* table, B index) { return vqtbl1q_u8(vld1q_u8(table), index); }

inline B set_four(int32_t a4) { return vreinterpretq_u8_s32(vdupq_n_s32(a4)); }
// Codes above 127 are centred first.
template <int kLimit> constexpr int dot4_bias = kLimit > 128 ? 128 : 0;
template <int kLimit> inline I dot4(I acc, B codes, B a4) {
  if constexpr (kLimit > 128) codes = veorq_u8(codes, vdupq_n_u8(0x80));
  const int8x16_t w = vreinterpretq_s8_u8(codes);
  const int8x16_t a = vreinterpretq_s8_u8(a4);
#ifdef __ARM_FEATURE_DOTPROD
  return vdotq_s32(acc, w, a);
#else
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(a)));
  const int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8(w), vget_high_s8(a)));
  return vaddq_s32(acc, vpaddq_s32(low, high));
#endif
}

}  // namespace isobit::ISOBIT_TARGET
