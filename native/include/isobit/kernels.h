// The table of kernels that each instruction set provides, and the arguments they take.
// Kernels allocate nothing and know nothing of threads: a caller gives them a range of the work.
#pragma once
#include <cstddef>
#include <cstdint>

#include "isobit/layout.h"

namespace isobit {

// Weight types that can be run, with their GGUF ids.
enum class WeightFormat : int {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30
};

struct LinearArgs {
  const uint8_t* tiles;
  size_t tile_bytes;
  int rows;
  int columns;
  Activations activations;  // integer weights
  const float* x;           // float weights: [tokens, columns]
  float* out;               // [tokens, out_stride]
  ptrdiff_t out_stride;
  const float* bias;  // [rows] or null
};
// Tile `tile` of the weights for tokens [begin, end).
using LinearKernel = void (*)(const LinearArgs&, int tile, int begin, int end);

constexpr int kNoToken = INT32_MAX;

struct AttentionArgs {
  const float* q;            // [tokens, heads * head_dim]
  float* out;                // the same shape
  const void* keys;          // [pages, kv_heads, head_dim, kPageSize] of this layer
  const void* values;        // [pages, kv_heads, kPageSize, head_dim]
  bool half;                 // cache in binary16, else binary32
  const int32_t* positions;  // [tokens]
  const int32_t* sequences;  // [tokens]
  const int32_t* page_tables;
  int pages_per_table;
  int heads;
  int kv_heads;
  int head_dim;  // a multiple of 16
  float scale;
  int window;     // 0: none
  float softcap;  // 0: none
};

// Tokens, all of one sequence, and query heads, all of one key/value head.
struct AttentionUnit {
  int token_begin;
  int token_end;
  int head_begin;
  int head_end;
};

// Scratch that attention needs for up to `queries` queries over `positions` cached positions.
static constexpr size_t attention_scratch_floats(int queries, int positions, int head_dim) {
  const size_t padded = (static_cast<size_t>(positions) + kChunkColumns - 1) / kChunkColumns * kChunkColumns;
  return static_cast<size_t>(queries) * (padded + 16 * static_cast<size_t>(head_dim));
}

struct KvWriteArgs {
  const float* k;  // [tokens, kv_heads * head_dim]
  const float* v;
  void* keys;
  void* values;
  bool half;
  const int32_t* positions;
  const int32_t* sequences;
  const int32_t* page_tables;
  int pages_per_table;
  int kv_heads;
  int head_dim;
};

// A function of one array, for tests and for sampling.
using ArrayKernel = void (*)(const float* x, float* y, size_t count);

struct Kernels {
  const char* name;
  // Null where the type is not one of WeightFormat.
  LinearKernel (*linear)(WeightFormat, bool two_pass);
  // Rounds the features of token `token`; false if one of them is not finite.
  bool (*quantize)(const float* x, const Activations&, int token);
  bool (*all_finite)(const float* x, size_t count);
  // One group of `width` features (a token, or one of its heads); false if its sum of squares is not finite.
  bool (*rms_norm)(const float* x, const float* weight, float* y, int width, float eps);
  // cosines and sines, times mscale, of one position.
  void (*rope_angles)(float position, const float* inv_freq, int half, float mscale, float* cosines,
                      float* sines);
  void (*rope)(float* x, int heads, int head_dim, int half, bool interleaved, const float* cosines,
               const float* sines);
  bool (*kv_write)(const KvWriteArgs&, int token);
  // Returns the first token with a score that is not finite, or kNoToken.
  int (*attention)(const AttentionArgs&, const AttentionUnit&, float* scratch);
  void (*silu_mul)(const float* gate, const float* up, float* out, size_t count);
  void (*gelu_mul)(const float* gate, const float* up, float* out, size_t count);
  void (*add)(const float* a, const float* b, float* out, size_t count);
  void (*scale)(float* x, float factor, size_t count);
  void (*softcap)(float* x, float cap, size_t count);
  ArrayKernel exp, sigmoid, silu, gelu, tanh, sin, cos, log;
  float (*sum_striped)(const float* x, size_t count);
  // Loops for ceilings.cpp: reads `bytes` (a multiple of 512); does `rounds` rounds and returns the operations done.
  int32_t (*read_all)(const uint8_t* data, size_t bytes);
  double (*dot_rounds)(size_t rounds, int32_t* sink);
  double (*fma_rounds)(size_t rounds, float* sink);
};

}  // namespace isobit
