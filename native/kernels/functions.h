// exp, sigmoid forms, tanh, sin, cos, log: operation by operation as in docs/numerics.md, 1.3.
#pragma once
#include "wide.h"

namespace isobit::ISOBIT_TARGET {

inline F negate(F a) { return from_bits(xor_i(bits(a), set_i(INT32_MIN))); }
inline F absolute(F a) { return from_bits(and_i(bits(a), set_i(INT32_MAX))); }
// 2^k for -126 <= k <= 127
inline F power_of_two(I k) { return from_bits(shift_left<23>(add_i(k, set_i(127)))); }

// Coefficients with the constant first.
template <int N> inline F polynomial(F x, const float (&c)[N]) {
  F y = set(c[N - 1]);
#pragma GCC unroll 8
  for (int i = N - 2; i >= 0; --i) y = fma(y, x, set(c[i]));
  return y;
}

inline F exp(F x) {
  static constexpr float c[] = {1.0f,           1.0f,           0x1p-1f,        0x1.5554dcp-3f,
                                0x1.555518p-5f, 0x1.120cbap-7f, 0x1.6d1254p-10f};
  x = min(max(x, set(-104.0f)), set(89.0f));
  const F z = fma(x, set(0x1.715476p+0f), set(kMagic));
  const I k = sub_i(bits(z), bits(set(kMagic)));
  const F n = sub(z, set(kMagic));
  F r = fma(n, set(-0x1.62e4p-1f), x);
  r = fma(n, set(-0x1.7f7d1cp-20f), r);
  const F p = polynomial(r, c);
  const I half = shift_right<1>(k);  // two steps, since 2^k alone may not be representable
  return mul(mul(p, power_of_two(half)), power_of_two(sub_i(k, half)));
}

inline F silu(F x) { return div(x, add(set(1.0f), exp(negate(x)))); }
inline F sigmoid(F x) { return div(set(1.0f), add(set(1.0f), exp(negate(x)))); }
inline F gelu(F x) {
  const F w = fma(mul(x, x), set(0x1.2444f2p-4f), set(0x1.988454p+0f));
  return div(x, add(set(1.0f), exp(negate(mul(x, w)))));
}

inline F tanh(F x) {
  static constexpr float c[] = {-0x1.555556p-2f, 0x1.1110eap-3f,  -0x1.ba08c4p-5f,
                                0x1.64a976p-6f,  -0x1.116a16p-7f, 0x1.2c83cp-9f};
  const F a = absolute(x);
  const F u = mul(a, a);
  const F small = fma(mul(a, u), polynomial(u, c), a);
  const F e = exp(mul(set(2.0f), a));
  const F large = sub(set(1.0f), div(set(2.0f), add(e, set(1.0f))));
  const F y = select_less(a, set(0.625f), small, large);
  return from_bits(or_i(bits(y), and_i(bits(x), set_i(INT32_MIN))));
}

inline void sincos(F a, F& sine, F& cosine) {
  static constexpr float sp[] = {-0x1.555556p-3f, 0x1.11110ep-7f, -0x1.a013ap-13f, 0x1.6dbb5ap-19f};
  static constexpr float cp[] = {0x1.555554p-5f, -0x1.6c12cep-10f, 0x1.9bd5d8p-16f};
  const F z = fma(a, set(0x1.45f306p-1f), set(kMagic));
  const I k = sub_i(bits(z), bits(set(kMagic)));
  const F n = sub(z, set(kMagic));
  F r = fma(n, set(-0x1.921fb6p+0f), a);
  r = fma(n, set(0x1.777a5cp-25f), r);
  r = fma(n, set(0x1.ee59dap-50f), r);
  const F u = mul(r, r);
  const I s = bits(fma(mul(r, u), polynomial(u, sp), r));
  const I c = bits(fma(mul(u, u), polynomial(u, cp), fma(set(-0.5f), u, set(1.0f))));
  const I odd = and_i(k, set_i(1));
  const I sine_sign = shift_left<30>(and_i(k, set_i(2)));
  const I cosine_sign = shift_left<30>(and_i(add_i(k, set_i(1)), set_i(2)));
  sine = from_bits(xor_i(select_nonzero(odd, c, s), sine_sign));
  cosine = from_bits(xor_i(select_nonzero(odd, s, c), cosine_sign));
}

inline F log(F x) {
  static constexpr float c[] = {0x1.555556p-1f, 0x1.9999ecp-2f, 0x1.245c3ap-2f, 0x1.ddd0bep-3f};
  const I e = shift_right<23>(sub_i(bits(x), set_i(0x3f3504f3)));
  const F m = from_bits(sub_i(bits(x), shift_left<23>(e)));
  const F f = sub(m, set(1.0f));
  const F s = div(f, add(set(2.0f), f));
  const F u = mul(s, s);
  const F t = fma(mul(s, u), polynomial(u, c), mul(set(2.0f), s));
  const F ef = to_float(e);
  return fma(ef, set(0x1.62e4p-1f), fma(ef, set(0x1.7f7d1cp-20f), t));
}

}  // namespace isobit::ISOBIT_TARGET
