// Keys and values of a token go to their page of the cache. Keys lie by feature, so that positions are lanes.
#pragma once
#include "pointwise.h"

namespace isobit::ISOBIT_TARGET {

inline bool kv_write_half(const KvWriteArgs& args, const float* k, const float* v, size_t page_head,
                          int slot) {
  uint16_t* keys = static_cast<uint16_t*>(args.keys) + page_head;
  uint16_t* values = static_cast<uint16_t*>(args.values) + page_head + slot * args.head_dim;
  uint16_t largest = 0;
  uint16_t lanes[kLanes];
  for (int d = 0; d < args.head_dim; d += kLanes) {
    store_f16(lanes, load(k + d));
    store_f16(values + d, load(v + d));
    for (int i = 0; i < kLanes; ++i) {
      keys[(d + i) * kPageSize + slot] = lanes[i];
      const uint16_t magnitude_k = lanes[i] & 0x7fff;
      const uint16_t magnitude_v = values[d + i] & 0x7fff;
      largest = magnitude_k > largest ? magnitude_k : largest;
      largest = magnitude_v > largest ? magnitude_v : largest;
    }
  }
  return largest < 0x7c00;
}

inline bool kv_write_float(const KvWriteArgs& args, const float* k, const float* v, size_t page_head,
                           int slot) {
  float* keys = static_cast<float*>(args.keys) + page_head;
  float* values = static_cast<float*>(args.values) + page_head + slot * args.head_dim;
  for (int d = 0; d < args.head_dim; ++d) {
    keys[d * kPageSize + slot] = k[d];
    values[d] = v[d];
  }
  return all_finite(k, args.head_dim) && all_finite(v, args.head_dim);
}

// False if a key or value of the token is not finite after rounding.
inline bool kv_write(const KvWriteArgs& args, int token) {
  const int position = args.positions[token];
  const ptrdiff_t table = static_cast<ptrdiff_t>(args.sequences[token]) * args.pages_per_table;
  const int32_t page = args.page_tables[table + position / kPageSize];
  bool finite = true;
  for (int h = 0; h < args.kv_heads; ++h) {
    const size_t page_head = (static_cast<size_t>(page) * args.kv_heads + h) * kPageSize * args.head_dim;
    const ptrdiff_t at = (static_cast<ptrdiff_t>(token) * args.kv_heads + h) * args.head_dim;
    const auto write = args.half ? kv_write_half : kv_write_float;
    finite &= write(args, args.k + at, args.v + at, page_head, position % kPageSize);
  }
  return finite;
}

}  // namespace isobit::ISOBIT_TARGET
