// Operations on a token's own features (docs/numerics.md, 3.4), and the rounding of activations (3.1, 3.2).
#pragma once
#include <cstring>

#include "functions.h"
#include "isobit/exact.h"
#include "isobit/kernels.h"
#include "tree.h"

namespace isobit::ISOBIT_TARGET {

// y[i] = f(x[i], ...) for any count: the tail goes through a padded copy, which gives the same bits.
template <class Function, class... Inputs>
inline void map(Function f, float* y, size_t count, const Inputs*... x) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, f(load(x + i)...));
  if (i == count) return;
  const auto padded = [&](const float* p) {
    float lanes[kLanes] = {};
    std::memcpy(lanes, p + i, (count - i) * sizeof(float));
    return load(lanes);
  };
  float lanes[kLanes];
  store(lanes, f(padded(x)...));
  std::memcpy(y + i, lanes, (count - i) * sizeof(float));
}

inline void silu_mul(const float* gate, const float* up, float* out, size_t count) {
  map([](F g, F u) { return mul(silu(g), u); }, out, count, gate, up);
}
inline void gelu_mul(const float* gate, const float* up, float* out, size_t count) {
  map([](F g, F u) { return mul(gelu(g), u); }, out, count, gate, up);
}
inline void add_arrays(const float* a, const float* b, float* out, size_t count) {
  map([](F x, F y) { return add(x, y); }, out, count, a, b);
}
inline void scale_array(float* x, float factor, size_t count) {
  const F f = set(factor);
  map([f](F a) { return mul(a, f); }, x, count, static_cast<const float*>(x));
}
inline F soft_cap(F x, F cap) { return mul(cap, tanh(div(x, cap))); }
inline void softcap_array(float* x, float cap, size_t count) {
  const F c = set(cap);
  map([c](F a) { return soft_cap(a, c); }, x, count, static_cast<const float*>(x));
}

// Folds one striped chunk sum per 256 terms; `take(lane sums, x)` adds 16 terms to the lanes.
template <class Take> inline float striped(const float* x, size_t count, Take take) {
  ScalarTree tree;
  for (size_t first = 0; first < count; first += kChunk) {
    const size_t last = first + kChunk < count ? first + kChunk : count;
    Wide lanes = zero_wide();
    size_t i = first;
    for (; i + kWidth <= last; i += kWidth) {
      ISOBIT_EACH_PART lanes.part[n] = take(lanes.part[n], load(x + i + n * kLanes));
    }
    if (i < last) {  // the missing terms leave their lanes as they are
      float sums[kWidth];
      float terms[kWidth] = {};
      std::memcpy(terms, x + i, (last - i) * sizeof(float));
      store_wide(sums, lanes);
      Wide updated;
      ISOBIT_EACH_PART updated.part[n] = take(lanes.part[n], load(terms + n * kLanes));
      float taken[kWidth];
      store_wide(taken, updated);
      for (size_t l = 0; l < last - i; ++l) sums[l] = taken[l];
      lanes = load_wide(sums);
    }
    tree.push(static_cast<uint32_t>(first / kChunk), fold(lanes));
  }
  return tree.root();
}

inline float sum_striped(const float* x, size_t count) {
  return striped(x, count, [](F lanes, F terms) { return add(lanes, terms); });
}

inline bool rms_norm(const float* x, const float* weight, float* y, int width, float eps) {
  const float squares = striped(x, width, [](F lanes, F t) { return fma(t, t, lanes); });
  const float mean = squares / static_cast<float>(width);
  const float factor = 1.0f / __builtin_sqrtf(mean + eps);
  const F f = set(factor);
  map([f](F a, F w) { return mul(mul(a, f), w); }, y, width, x, weight);
  return squares < __builtin_inff();  // false for NaN too
}

// Largest magnitude as bits; bits order like magnitudes, and NaN and infinity stand above all finite ones.
inline uint32_t largest_bits(const float* x, int count) {
  I largest = set_i(0);
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    largest = max_u(largest, and_i(bits(load(x + i)), set_i(INT32_MAX)));
  }
  uint32_t result = reduce_max_u(largest);
  for (; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, x + i, 4);
    word &= INT32_MAX;
    if (word > result) result = word;
  }
  return result;
}

constexpr uint32_t kInfinityBits = 0x7f800000;

inline bool all_finite(const float* x, size_t count) {
  while (count > 0) {
    const int part = count < (1u << 30) ? static_cast<int>(count) : 1 << 30;
    if (largest_bits(x, part) >= kInfinityBits) return false;
    x += part;
    count -= part;
  }
  return true;
}

// The scale of a group and the factor that turns a value into a code; (0, 0) for a group that counts as zero.
struct GroupScale {
  float scale;
  float inverse;
};
inline GroupScale group_scale(uint32_t largest, float limit) {
  float a;
  std::memcpy(&a, &largest, 4);
  if (a < 0x1p-100f) return {0.0f, 0.0f};
  return {a / limit, limit / a};
}

inline I round_codes(const float* x, F inverse) {
  const F z = add(mul(load(x), inverse), set(kMagic));
  return sub_i(bits(z), bits(set(kMagic)));
}

// Codes of 16 columns, from x + i on; `write` stores a register of them. Returns their sum.
template <class Write> inline int32_t round_sixteen(const float* x, int i, F inverse, Write write) {
  I sum = set_i(0);
  ISOBIT_EACH_PART {
    const I code = round_codes(x + i + n * kLanes, inverse);
    write(i + n * kLanes, code);
    sum = add_i(sum, code);
  }
  return reduce_add(sum);
}

// Rounds `count` columns that share a scale, a multiple of 32. False if one of them is not finite.
template <class Write>
inline bool round_group(const float* x, int count, float limit, float* scale, int32_t* sums,
                        int32_t* block_sums, Write write) {
  const uint32_t largest = largest_bits(x, count);
  if (largest >= kInfinityBits) return false;
  const GroupScale g = group_scale(largest, limit);
  *scale = g.scale;
  const F inverse = set(g.inverse);
  for (int b = 0; b < count / kBlockColumns; ++b) {
    sums[2 * b] = round_sixteen(x, b * kBlockColumns, inverse, write);
    sums[2 * b + 1] = round_sixteen(x, b * kBlockColumns + 16, inverse, write);
    block_sums[b] = sums[2 * b] + sums[2 * b + 1];
  }
  return true;
}

// A chunk of `count` columns; the pointers are the token's in the chunk.
inline bool quantize_int8(const float* x, int count, int8_t* codes, float* scale, int32_t* sums,
                          int32_t* block_sums) {
  for (int b = 0; b < count / kBlockColumns; ++b) {
    const int at = b * kBlockColumns;
    const auto write = [=](int i, I code) { store_s8(codes + at + i, code); };
    if (!round_group(x + at, kBlockColumns, 127.0f, scale + b, sums + 2 * b, block_sums + b, write))
      return false;
  }
  return true;
}

// code = 256 * high + low with low in -128 ... 127, high in -127 ... 127.
inline bool quantize_int16(const float* x, int count, int8_t* low, int8_t* high, float* scale, int32_t* sums,
                           int32_t* block_sums) {
  return round_group(x, count, 32512.0f, scale, sums, block_sums, [=](int i, I code) {
    const I carried = add_i(code, set_i(128));
    store_s8(high + i, shift_right<8>(carried));
    store_s8(low + i, sub_i(code, shift_left<8>(shift_right<8>(carried))));
  });
}

inline bool quantize(const float* x, const Activations& a, int token) {
  for (int chunk = 0; chunk < a.chunks(); ++chunk, x += kChunk) {
    const int rest = a.columns - chunk * kChunk;
    const int count = rest < kChunk ? rest : kChunk;
    int8_t* low = a.low + a.at(chunk, token, kChunk);
    int32_t* sums = a.sums + a.at(chunk, token, a.kSums);
    int32_t* block_sums = a.block_sums + a.at(chunk, token, a.kBlocks);
    float* scale = a.scale + a.at(chunk, token, a.two_pass ? 1 : a.kBlocks);
    const bool finite = a.two_pass ? quantize_int16(x, count, low, a.high + a.at(chunk, token, kChunk), scale,
                                                    sums, block_sums)
                                   : quantize_int8(x, count, low, scale, sums, block_sums);
    if (!finite) return false;
  }
  return true;
}

inline void rope_angles(float position, const float* inv_freq, int half, float mscale, float* cosines,
                        float* sines) {
  const F p = set(position);
  const F m = set(mscale);
  const auto part = [&](F frequency, bool cosine) {
    F s;
    F c;
    sincos(mul(p, frequency), s, c);
    return mul(cosine ? c : s, m);
  };
  map([&](F f) { return part(f, true); }, cosines, half, inv_freq);
  map([&](F f) { return part(f, false); }, sines, half, inv_freq);
}

inline void rotate_pair(float& x0, float& x1, float c, float s) {
  // One lane of the wide form below.
  const float y0 = exact_fma(x0, c, -(x1 * s));
  x1 = exact_fma(x1, c, x0 * s);
  x0 = y0;
}

inline void rotate_halves(float* x, int half, const float* cosines, const float* sines) {
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const F x0 = load(x + i);
    const F x1 = load(x + half + i);
    const F c = load(cosines + i);
    const F s = load(sines + i);
    store(x + i, fma(x0, c, negate(mul(x1, s))));
    store(x + half + i, fma(x1, c, mul(x0, s)));
  }
  for (; i < half; ++i) rotate_pair(x[i], x[half + i], cosines[i], sines[i]);
}

// Interleaved pairs are brought into halves, rotated and brought back: moving changes no bit.
inline void rope(float* x, int heads, int head_dim, int half, bool interleaved, const float* cosines,
                 const float* sines) {
  for (int h = 0; h < heads; ++h, x += head_dim) {
    if (!interleaved) {
      rotate_halves(x, half, cosines, sines);
      continue;
    }
    float split[kMaxHeadDim];
    for (int i = 0; i < half; ++i) {
      split[i] = x[2 * i];
      split[half + i] = x[2 * i + 1];
    }
    rotate_halves(split, half, cosines, sines);
    for (int i = 0; i < half; ++i) {
      x[2 * i] = split[i];
      x[2 * i + 1] = split[half + i];
    }
  }
}

}  // namespace isobit::ISOBIT_TARGET
