// Writing to the paged cache and attending over it: ragged batches, groups, windows, soft caps, pages in random order.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "digest.h"
#include "isobit/exact.h"

namespace isobit::tests {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Part {
  int start;
  int count;
};

// Tokens of several sequences; pages are dealt in random order, with some left over.
struct Batch {
  std::vector<int32_t> positions, sequences, page_tables;
  int pages_per_table = 0;
  int pages = 0;
  int longest = 0;
};

Batch make_batch(Random& random, const std::vector<Part>& parts) {
  Batch batch;
  for (size_t s = 0; s < parts.size(); ++s) {
    for (int i = 0; i < parts[s].count; ++i) {
      batch.positions.push_back(parts[s].start + i);
      batch.sequences.push_back(static_cast<int32_t>(s));
    }
    batch.longest = std::max(batch.longest, parts[s].start + parts[s].count);
  }
  batch.pages_per_table = (batch.longest + kPageSize - 1) / kPageSize;
  batch.pages = batch.pages_per_table * static_cast<int>(parts.size()) + 3;
  std::vector<int32_t> order(batch.pages);
  std::iota(order.begin(), order.end(), 0);
  for (int i = batch.pages - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  batch.page_tables.assign(order.begin(), order.begin() + batch.pages_per_table * parts.size());
  return batch;
}

struct Shape {
  int heads;
  int kv_heads;
  int head_dim;
  bool half;
  int window;
  float softcap;
  std::vector<Part> parts;
};

std::string label_of(const Shape& s) {
  std::string label = std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + "x" +
                      std::to_string(s.head_dim) + (s.half ? ",f16" : ",f32");
  if (s.window != 0) label += ",window=" + std::to_string(s.window);
  if (s.softcap != 0) label += ",softcap=" + std::to_string(static_cast<int>(s.softcap));
  for (const Part& p : s.parts) label += "," + std::to_string(p.start) + "+" + std::to_string(p.count);
  return label;
}

// A cache in which every slot that no query may see holds NaN.
template <class Element> struct Cache {
  std::vector<Element> keys, values;

  Cache(Random& random, const Shape& s, const Batch& batch) {
    const size_t size = static_cast<size_t>(batch.pages) * s.kv_heads * s.head_dim * kPageSize;
    const Element nan =
        sizeof(Element) == 2 ? static_cast<Element>(0x7e00) : static_cast<Element>(0.0f / 0.0f);
    keys.assign(size, nan);
    values.assign(size, nan);
    for (size_t sequence = 0; sequence < s.parts.size(); ++sequence) {
      const int end = s.parts[sequence].start + s.parts[sequence].count;
      const int seen = s.window > 0 ? std::max(0, s.parts[sequence].start + 1 - s.window) : 0;
      for (int position = seen; position < end; ++position) {
        const int32_t page = batch.page_tables[sequence * batch.pages_per_table + position / kPageSize];
        for (int h = 0; h < s.kv_heads; ++h) fill(random, s, page * s.kv_heads + h, position % kPageSize);
      }
    }
  }
  void fill(Random& random, const Shape& s, int page_head, int slot) {
    const size_t base = static_cast<size_t>(page_head) * kPageSize * s.head_dim;
    for (int d = 0; d < s.head_dim; ++d) {
      keys[base + d * kPageSize + slot] = element(random.feature());
      values[base + slot * s.head_dim + d] =
          element(random.feature() * (random.one_in(50) ? 0x1p-20f : 1.0f));
    }
  }
  static Element element(float value) {
    if constexpr (sizeof(Element) == 2) return float_to_half(value);
    else return value;
  }
};

// Attention for token ranges of one sequence of at most `longest_range` tokens each, and for single tokens
// head by head. Where a score is not finite, only the first such token counts.
Digest attend(const Kernels& k, const AttentionArgs& shape, int tokens, int longest, int longest_range) {
  AttentionArgs args = shape;
  auto out = output(static_cast<size_t>(tokens) * args.heads * args.head_dim);
  args.out = out.data();
  std::vector<float> scratch(attention_scratch_floats(8, longest, args.head_dim), 0.0f / 0.0f);
  const int together = longest_range > 1 ? args.heads / args.kv_heads : 1;
  int failed = kNoToken;
  for (int begin = 0; begin < tokens;) {
    int end = begin + 1;
    while (end < tokens && end - begin < longest_range && args.sequences[end] == args.sequences[begin]) ++end;
    for (int h = 0; h < args.heads; h += together) {
      failed = std::min(failed, k.attention(args, {begin, end, h, h + together}, scratch.data()));
    }
    begin = end;
  }
  Digest digest;
  digest.add(static_cast<uint32_t>(failed));
  if (failed == kNoToken) digest.add(out);
  return digest;
}

template <class Element> void attention_case(Report& report, const Shape& s, int seed, bool finite) {
  Random random(7000 + seed);
  const Batch batch = make_batch(random, s.parts);
  const Cache<Element> cache(random, s, batch);
  const int tokens = static_cast<int>(batch.positions.size());
  const float size = random.one_in(4) ? 8.0f : 1.0f;  // now and then a few positions take all the weight
  auto q =
      floats(static_cast<size_t>(tokens) * s.heads * s.head_dim, [&] { return random.feature() * size; });
  if (!finite) {  // one head of two tokens
    q[static_cast<size_t>(tokens / 2 * s.heads + s.heads - 1) * s.head_dim] = 0.0f / 0.0f;
    q[static_cast<size_t>(tokens - 1) * s.heads * s.head_dim] = kInfinity;
  }
  const float scale = random.one_in(2) ? 0.125f : 0.0883883f;
  const AttentionArgs args{q.data(),
                           nullptr,
                           cache.keys.data(),
                           cache.values.data(),
                           s.half,
                           batch.positions.data(),
                           batch.sequences.data(),
                           batch.page_tables.data(),
                           batch.pages_per_table,
                           s.heads,
                           s.kv_heads,
                           s.head_dim,
                           scale,
                           s.window,
                           s.softcap};
  const std::string label = label_of(s) + (finite ? "" : ",infinite");
  const Digest whole = attend(report.kernels, args, tokens, batch.longest, 8);
  report.line("attention", label, whole);
  for (const int range : {1, 3}) {
    report.expect_same("attention", label, whole, attend(report.kernels, args, tokens, batch.longest, range));
  }
}

void attention_shapes(Report& report) {
  const Shape shapes[] = {
      {1, 1, 16, true, 0, 0, {{0, 1}}},
      {1, 1, 16, false, 0, 0, {{0, 9}}},
      {9, 3, 64, true, 0, 0, {{0, 13}, {60, 6}}},
      {9, 3, 64, false, 0, 0, {{250, 12}, {0, 1}}},
      {14, 2, 64, true, 0, 0, {{690, 3}}},
      {14, 2, 64, false, 0, 0, {{511, 1}, {512, 1}}},
      {8, 1, 16, true, 0, 0, {{695, 5}, {254, 4}, {0, 2}}},
      {8, 1, 80, true, 0, 50, {{130, 5}}},
      {4, 1, 256, true, 512, 0, {{508, 9}}},
      {4, 1, 256, false, 512, 0, {{600, 2}}},
      {5, 1, 48, true, 100, 0, {{350, 8}, {3, 2}}},
      {6, 2, 32, false, 64, 30, {{120, 17}}},
      {12, 6, 128, true, 0, 0, {{259, 2}}},
      {6, 3, 32, true, 1, 0, {{300, 3}}},
      {7, 1, 16, false, 300, 20, {{692, 8}, {0, 8}, {255, 2}}},
      {8, 2, 112, true, 257, 0, {{510, 4}}},
  };
  int seed = 0;
  for (const Shape& s : shapes) {
    ++seed;
    for (const bool finite : {true, false}) {
      if (s.half) attention_case<uint16_t>(report, s, seed, finite);
      else attention_case<float>(report, s, seed, finite);
    }
  }
}

// kind 0: features, 1: any magnitude that binary16 can hold, 2 and 3: one key or value too large, 4: a NaN.
template <class Element> void write_case(Report& report, const Shape& s, int kind) {
  Random random(8000 + 100 * kind + s.head_dim);
  const Batch batch = make_batch(random, s.parts);
  const int tokens = static_cast<int>(batch.positions.size());
  const size_t features = static_cast<size_t>(tokens) * s.kv_heads * s.head_dim;
  const auto value = [&] { return kind == 1 ? random.magnitude(-30, 14) : random.feature() * 0x1p-10f; };
  auto k = floats(features, value);
  auto v = floats(features, value);
  // 65519.996 rounds to the largest binary16, 65520 to infinity.
  k[random.below(static_cast<int>(features))] = std::bit_cast<float>(0x477fefffu);
  const float large = s.half ? 65520.0f : kInfinity;
  if (kind == 2) k[random.below(static_cast<int>(features))] = large;
  if (kind == 3) v[random.below(static_cast<int>(features))] = -large;
  if (kind == 4) v[random.below(static_cast<int>(features))] = 0.0f / 0.0f;
  const size_t size = static_cast<size_t>(batch.pages) * s.kv_heads * s.head_dim * kPageSize;
  std::vector<Element> keys(size, Element{});
  std::vector<Element> values(size, Element{});
  const KvWriteArgs args{k.data(),
                         v.data(),
                         keys.data(),
                         values.data(),
                         s.half,
                         batch.positions.data(),
                         batch.sequences.data(),
                         batch.page_tables.data(),
                         batch.pages_per_table,
                         s.kv_heads,
                         s.head_dim};
  Digest digest;
  for (int t = 0; t < tokens; ++t) digest.add(report.kernels.kv_write(args, t));
  if (kind < 2) {
    digest.add(keys);
    digest.add(values);
  }
  report.line("kv_write", label_of(s) + ",kind=" + std::to_string(kind), digest);
}

void write_shapes(Report& report) {
  for (const int head_dim : {16, 80, 128}) {
    for (int kind = 0; kind < 5; ++kind) {
      const int kv_heads = head_dim == 128 ? 1 : 3;
      const std::vector<Part> parts = {{60, 7}, {0, 2}, {191, 1}};
      write_case<uint16_t>(report, {kv_heads, kv_heads, head_dim, true, 0, 0, parts}, kind);
      write_case<float>(report, {kv_heads, kv_heads, head_dim, false, 0, 0, parts}, kind);
    }
  }
}

}  // namespace

void attention_cases(Report& report) {
  write_shapes(report);
  attention_shapes(report);
}

}  // namespace isobit::tests
