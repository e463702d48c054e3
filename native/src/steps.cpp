#include "steps.h"

#include <algorithm>
#include <cstring>

#include "blocks.h"

namespace isobit {

namespace {

int ceil_div(int a, int b) { return (a + b - 1) / b; }

// A step whose units are single rows.
struct RowStep : Step {
  RowStep() { kind = Kind::kRow; }
  int units(const Executor&, const Run& run) const override { return run.rows; }
};

float* row_of(Executor& e, int buffer, int row) {
  Buffer& b = e.buffer(buffer);
  return b.data.data() + static_cast<size_t>(row) * b.width;
}

struct EmbedStep : RowStep {
  int out, weight;
  EmbedStep(int out, int weight) : out(out), weight(weight) {}
  void run(Executor& e, const Run& run, int row, int) override {
    const PackedWeight& w = e.weight(weight);
    const size_t at = static_cast<size_t>(run.batch.ids[row]) * row_bytes(w.format, w.columns);
    row_values(w.format, w.raw.data() + at, w.columns, row_of(e, out, row));
  }
};

struct RmsNormStep : RowStep {
  int out, x, weight, heads;
  float eps;
  RmsNormStep(int out, int x, int weight, float eps, int heads)
      : out(out), x(x), weight(weight), heads(heads), eps(eps) {}
  void run(Executor& e, const Run& run, int row, int) override {
    const int width = e.buffer(x).width / heads;
    const float* w = e.vector(weight).data();
    const float* from = row_of(e, x, row);
    float* to = row_of(e, out, row);
    bool finite = true;
    for (int h = 0; h < heads; ++h) {
      finite &= e.kernels().rms_norm(from + h * width, w, to + h * width, width, eps);
    }
    if (!finite) run.report(row);
  }
};

struct RoundStep : RowStep {
  int x;
  bool integer, two_pass;
  RoundStep(int x, bool integer, bool two_pass) : x(x), integer(integer), two_pass(two_pass) {}

  void prepare(Executor& e, const Run& run) override {
    if (integer) e.rounded().reserve(run.rows, e.buffer(x).width, two_pass);
  }
  void run(Executor& e, const Run& run, int row, int) override {
    const int columns = e.buffer(x).width;
    const float* from = row_of(e, x, row);
    const bool finite = integer
                            ? e.kernels().quantize(from, e.rounded().view(run.rows, columns, two_pass), row)
                            : e.kernels().all_finite(from, columns);
    if (!finite) run.report(row);
  }
};

struct LinearStep : Step {
  static constexpr int kTokens = 64;  // whose activations stay in the cache while tiles pass by
  int out, x, weight, bias;
  bool two_pass;
  LinearStep(int out, int x, int weight, int bias, bool two_pass)
      : out(out), x(x), weight(weight), bias(bias), two_pass(two_pass) {
    kind = Kind::kParallel;  // linear steps in a row share their rounded input
  }

  // Several tiles a unit, so that taking a unit costs little, but enough units for every thread.
  int tiles_per_unit(const Executor& e) const {
    const int tiles = e.weight(weight).tiles;
    return std::clamp(tiles / (e.threads() * 8), 1, 64);
  }
  int units(const Executor& e, const Run&) const override {
    return ceil_div(e.weight(weight).tiles, tiles_per_unit(e));
  }
  void run(Executor& e, const Run& run, int unit, int) override {
    const PackedWeight& w = e.weight(weight);
    const LinearKernel kernel = e.kernels().linear(w.format, two_pass);
    LinearArgs args{};
    args.tiles = w.data.get();
    args.tile_bytes = w.tile_bytes;
    args.rows = w.rows;
    args.columns = w.columns;
    if (is_integer(w.format)) args.activations = e.rounded().view(run.rows, w.columns, two_pass);
    args.x = e.buffer(x).data.data();
    args.out = e.buffer(out).data.data();
    args.out_stride = e.buffer(out).width;
    args.bias = bias >= 0 ? e.vector(bias).data() : nullptr;
    const int step = tiles_per_unit(e);
    const int last = std::min(w.tiles, (unit + 1) * step);
    for (int token = 0; token < run.rows; token += kTokens) {
      const int end = std::min(token + kTokens, run.rows);
      for (int tile = unit * step; tile < last; ++tile) kernel(args, tile, token, end);
    }
  }
};

struct RopeAnglesStep : RowStep {
  int inv_freq, angles;
  float mscale;
  RopeAnglesStep(int inv_freq, float mscale, int angles)
      : inv_freq(inv_freq), angles(angles), mscale(mscale) {}
  void run(Executor& e, const Run& run, int row, int) override {
    const auto& f = e.vector(inv_freq);
    const int half = static_cast<int>(f.size());
    float* cosines = row_of(e, angles, row);
    e.kernels().rope_angles(static_cast<float>(run.batch.positions[row]), f.data(), half, mscale, cosines,
                            cosines + half);
  }
};

struct RopeStep : RowStep {
  int x, heads, half, angles;
  bool interleaved;
  RopeStep(int x, int heads, bool interleaved, int half, int angles)
      : x(x), heads(heads), half(half), angles(angles), interleaved(interleaved) {}
  void run(Executor& e, const Run&, int row, int) override {
    const float* cosines = row_of(e, angles, row);
    e.kernels().rope(row_of(e, x, row), heads, e.buffer(x).width / heads, half, interleaved, cosines,
                     cosines + half);
  }
};

struct KvWriteStep : RowStep {
  int k, v, layer, kv_heads, head_dim;
  KvWriteStep(int k, int v, int layer, int kv_heads, int head_dim)
      : k(k), v(v), layer(layer), kv_heads(kv_heads), head_dim(head_dim) {}
  void run(Executor& e, const Run& run, int row, int) override {
    const BatchView& b = run.batch;
    const size_t at = static_cast<size_t>(layer) * run.cache.layer_bytes;
    const KvWriteArgs args{e.buffer(k).data.data(),
                           e.buffer(v).data.data(),
                           run.cache.keys + at,
                           run.cache.values + at,
                           run.cache.half,
                           b.positions,
                           b.sequences,
                           b.page_tables,
                           b.pages_per_table,
                           kv_heads,
                           head_dim};
    if (!e.kernels().kv_write(args, row)) run.report(row);
  }
};

struct AttentionStep : Step {
  static constexpr int kTokens = 8;  // queries of 8 tokens share their loads of the cache
  int out, q;
  AttentionShape shape;
  std::vector<std::pair<int, int>> blocks;  // token ranges, each within one sequence

  AttentionStep(int out, int q, const AttentionShape& shape) : out(out), q(q), shape(shape) {}

  void prepare(Executor& e, const Run& run) override {
    blocks.clear();
    int longest = 0;
    for (int t = 0; t < run.batch.tokens; ++t) {
      longest = std::max(longest, run.batch.positions[t] + 1);
      const bool joins = !blocks.empty() && t - blocks.back().first < kTokens &&
                         run.batch.sequences[t] == run.batch.sequences[blocks.back().first];
      if (joins) blocks.back().second = t + 1;
      else blocks.emplace_back(t, t + 1);
    }
    const size_t need = attention_scratch_floats(kTokens, longest, shape.head_dim);
    for (int i = 0; i < e.threads(); ++i) {
      if (e.scratch(i).size() < need) e.scratch(i).resize(need);
    }
  }
  // Heads that share keys and values are a unit, or several where there is no work for every thread otherwise.
  int parts(const Executor& e) const {
    const int whole = static_cast<int>(blocks.size()) * shape.kv_heads;
    return std::clamp(ceil_div(e.threads(), whole), 1, shape.heads / shape.kv_heads);
  }
  int units(const Executor& e, const Run&) const override {
    return static_cast<int>(blocks.size()) * shape.kv_heads * parts(e);
  }
  // The longest blocks, which are the last of a prompt, come first.
  AttentionUnit unit_at(const Executor& e, int unit) const {
    const int of_block = shape.kv_heads * parts(e);
    const auto [begin, end] = blocks[blocks.size() - 1 - unit / of_block];
    const int part = unit % of_block;
    return {begin, end, shape.heads * part / of_block, shape.heads * (part + 1) / of_block};
  }
  void run(Executor& e, const Run& run, int unit, int thread) override {
    const BatchView& b = run.batch;
    const size_t at = static_cast<size_t>(shape.layer) * run.cache.layer_bytes;
    const AttentionArgs args{e.buffer(q).data.data(),
                             e.buffer(out).data.data(),
                             run.cache.keys + at,
                             run.cache.values + at,
                             run.cache.half,
                             b.positions,
                             b.sequences,
                             b.page_tables,
                             b.pages_per_table,
                             shape.heads,
                             shape.kv_heads,
                             shape.head_dim,
                             shape.scale,
                             shape.window,
                             shape.softcap};
    const int failed = e.kernels().attention(args, unit_at(e, unit), e.scratch(thread).data());
    if (failed != kNoToken) run.report(failed);
  }
};

struct GatedStep : RowStep {
  int out, gate, up;
  bool gelu;
  GatedStep(int out, int gate, int up, bool gelu) : out(out), gate(gate), up(up), gelu(gelu) {}
  void run(Executor& e, const Run&, int row, int) override {
    const auto kernel = gelu ? e.kernels().gelu_mul : e.kernels().silu_mul;
    kernel(row_of(e, gate, row), row_of(e, up, row), row_of(e, out, row), e.buffer(out).width);
  }
};

struct AddStep : RowStep {
  int out, a, b;
  AddStep(int out, int a, int b) : out(out), a(a), b(b) {}
  void run(Executor& e, const Run&, int row, int) override {
    e.kernels().add(row_of(e, a, row), row_of(e, b, row), row_of(e, out, row), e.buffer(out).width);
  }
};

struct ScaleStep : RowStep {
  int x;
  float factor;
  ScaleStep(int x, float factor) : x(x), factor(factor) {}
  void run(Executor& e, const Run&, int row, int) override {
    e.kernels().scale(row_of(e, x, row), factor, e.buffer(x).width);
  }
};

struct SoftcapStep : RowStep {
  int x;
  float cap;
  SoftcapStep(int x, float cap) : x(x), cap(cap) {}
  void run(Executor& e, const Run& run, int row, int) override {
    if (!e.kernels().all_finite(row_of(e, x, row), e.buffer(x).width)) run.report(row);
    e.kernels().softcap(row_of(e, x, row), cap, e.buffer(x).width);
  }
};

struct SelectRowsStep : Step {
  int out, x;
  SelectRowsStep(int out, int x) : out(out), x(x) { selects = true; }
  int units(const Executor&, const Run& run) const override {
    return static_cast<int>(run.batch.wanted.size());
  }
  void run(Executor& e, const Run& run, int row, int) override {
    std::memcpy(row_of(e, out, row), row_of(e, x, run.batch.wanted[row]), sizeof(float) * e.buffer(x).width);
  }
};

struct CheckFiniteStep : RowStep {
  int x;
  explicit CheckFiniteStep(int x) : x(x) {}
  void run(Executor& e, const Run& run, int row, int) override {
    if (!e.kernels().all_finite(row_of(e, x, row), e.buffer(x).width)) run.report(row);
  }
};

}  // namespace

StepPtr make_embed(int out, int weight) { return std::make_unique<EmbedStep>(out, weight); }
StepPtr make_rms_norm(int out, int x, int weight, float eps, int heads) {
  return std::make_unique<RmsNormStep>(out, x, weight, eps, heads);
}
StepPtr make_round(int x, bool integer, bool two_pass) {
  return std::make_unique<RoundStep>(x, integer, two_pass);
}
StepPtr make_linear(int out, int x, int weight, int bias, bool two_pass) {
  return std::make_unique<LinearStep>(out, x, weight, bias, two_pass);
}
StepPtr make_rope_angles(int inv_freq, float mscale, int angles) {
  return std::make_unique<RopeAnglesStep>(inv_freq, mscale, angles);
}
StepPtr make_rope(int x, int heads, bool interleaved, int half, int angles) {
  return std::make_unique<RopeStep>(x, heads, interleaved, half, angles);
}
StepPtr make_kv_write(int k, int v, int layer, int kv_heads, int head_dim) {
  return std::make_unique<KvWriteStep>(k, v, layer, kv_heads, head_dim);
}
StepPtr make_attention(int out, int q, const AttentionShape& shape) {
  return std::make_unique<AttentionStep>(out, q, shape);
}
StepPtr make_gated(int out, int gate, int up, bool gelu) {
  return std::make_unique<GatedStep>(out, gate, up, gelu);
}
StepPtr make_add(int out, int a, int b) { return std::make_unique<AddStep>(out, a, b); }
StepPtr make_scale(int x, float factor) { return std::make_unique<ScaleStep>(x, factor); }
StepPtr make_softcap(int x, float cap) { return std::make_unique<SoftcapStep>(x, cap); }
StepPtr make_select_rows(int out, int x) { return std::make_unique<SelectRowsStep>(out, x); }
StepPtr make_check_finite(int x) { return std::make_unique<CheckFiniteStep>(x); }

}  // namespace isobit
