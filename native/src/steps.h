// The operations of isobit.ops as steps of an executor. Indices name buffers, weights and vectors of the executor.
#pragma once
#include <memory>
#include <vector>

#include "executor.h"

namespace isobit {

using StepPtr = std::unique_ptr<Step>;

StepPtr make_embed(int out, int weight);
StepPtr make_rms_norm(int out, int x, int weight, float eps, int heads);
// Rounds x for the linear steps that follow (integer weights), or checks that it is finite (float weights).
StepPtr make_round(int x, bool integer, bool two_pass);
StepPtr make_linear(int out, int x, int weight, int bias, bool two_pass);
StepPtr make_rope_angles(int inv_freq, float mscale, int angles);
StepPtr make_rope(int x, int heads, bool interleaved, int half, int angles);
StepPtr make_kv_write(int k, int v, int layer, int kv_heads, int head_dim);
struct AttentionShape {
  int layer;
  int heads;
  int kv_heads;
  int head_dim;
  float scale;
  int window;
  float softcap;
};
StepPtr make_attention(int out, int q, const AttentionShape& shape);
StepPtr make_gated(int out, int gate, int up, bool gelu);
StepPtr make_add(int out, int a, int b);
StepPtr make_scale(int x, float factor);
StepPtr make_softcap(int x, float cap);
StepPtr make_select_rows(int out, int x);
StepPtr make_check_finite(int x);

}  // namespace isobit
