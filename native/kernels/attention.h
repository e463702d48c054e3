// Attention over the paged cache in the canonical order (docs/numerics.md, 3.4).
// Scores: lanes are positions. Values: lanes are features. Several queries share each load of the cache.
#pragma once
#include "pointwise.h"
#include "tile.h"

namespace isobit::ISOBIT_TARGET {

struct HalfCache {
  using Element = uint16_t;
  static F load_lanes(const uint16_t* p) { return load_f16(p); }
};
struct FloatCache {
  using Element = float;
  static F load_lanes(const float* p) { return load(p); }
};

// One query (a token's head) and the positions [begin, end) that it sees.
struct Query {
  const float* q;
  float* out;
  float* scores;  // by position, room for whole chunks
  int token;
  int begin;
  int end;
  float total;
};

template <class Cache> struct Pages {
  const typename Cache::Element* base;
  const int32_t* table;
  size_t page_stride;
  const typename Cache::Element* page(int position) const {
    return base + static_cast<size_t>(table[position / kPageSize]) * page_stride;
  }
  // The page after that of `position`, or the same where the next begins at `end` or later.
  const typename Cache::Element* page_after(int position, int end) const {
    return page(position + kPageSize < end ? position + kPageSize : position);
  }
};

// Queries that share a load of the cache. A full set keeps the multipliers busy; a smaller one, that of a decode step,
// takes several registers of positions or features at once and fetches the next page ahead. No bit depends on it.
constexpr int kQueries = kLanes >= 16 ? 8 : kLanes >= 4 ? 4 : 1;
template <int Q> constexpr int span = Q == kQueries ? 1 : kLanes >= 8 ? 2 : 4;
template <int Q> inline void prefetch(const void* p) {
  if constexpr (Q < kQueries) __builtin_prefetch(p);
}

#define ISOBIT_EACH_QUERY _Pragma("GCC unroll 8") for (int i = 0; i < Q; ++i)
#define ISOBIT_EACH_REGISTER _Pragma("GCC unroll 4") for (int r = 0; r < R; ++r)

// scores[position] = dot * scale for all positions of the pages that hold [begin, end).
template <class Cache, int Q>
inline void score_tile(const AttentionArgs& args, const Pages<Cache>& keys, Query* queries, int begin,
                       int end) {
  constexpr int R = span<Q>;
  const F scale = set(args.scale);
  const float* q[Q];
  ISOBIT_EACH_QUERY q[i] = queries[i].q;
  for (int first = begin / kPageSize * kPageSize; first < end; first += kPageSize) {
    const auto* page = keys.page(first);
    const auto* next = keys.page_after(first, end);
    for (int lane = 0; lane < kPageSize && first + lane < end; lane += R * kLanes) {
      F dot[Q][R];
      ISOBIT_EACH_QUERY ISOBIT_EACH_REGISTER dot[i][r] = set(0.0f);
#pragma GCC unroll 4
      for (int d = 0; d < args.head_dim; ++d) {
        const int at = d * kPageSize + lane;
        prefetch<Q>(next + at);
        F k[R];
        ISOBIT_EACH_REGISTER k[r] = Cache::load_lanes(page + at + r * kLanes);
        ISOBIT_EACH_QUERY ISOBIT_EACH_REGISTER dot[i][r] = fma(set(q[i][d]), k[r], dot[i][r]);
      }
      ISOBIT_EACH_QUERY ISOBIT_EACH_REGISTER {
        store(queries[i].scores + first + lane + r * kLanes, mul(dot[i][r], scale));
      }
    }
  }
}

// The largest of `count` numbers.
inline float largest(const float* x, int count) {
  float maximum = x[0];
  int j = 0;
  if (count >= kLanes) {
    F m = load(x);
    for (j = kLanes; j + kLanes <= count; j += kLanes) m = max(m, load(x + j));
    float lanes[kLanes];
    store(lanes, m);
    for (int l = 0; l < kLanes; ++l) maximum = lanes[l] > maximum ? lanes[l] : maximum;
  }
  for (; j < count; ++j) maximum = x[j] > maximum ? x[j] : maximum;
  return maximum;
}

// Scores become weights exp(score - maximum), zero outside [begin, end); `total` is their striped sum.
// False, and nothing is done, if a score that the query sees is not finite.
inline bool softmax_weights(Query& query, float softcap) {
  if (!all_finite(query.scores + query.begin, query.end - query.begin)) return false;
  const int first = query.begin / kWidth * kWidth;
  const int last = (query.end + kWidth - 1) / kWidth * kWidth;
  if (softcap != 0.0f) softcap_array(query.scores + first, softcap, last - first);
  const F m = set(largest(query.scores + query.begin, query.end - query.begin));
  for (int j = first; j < last; j += kLanes) {
    store(query.scores + j, exp(sub(load(query.scores + j), m)));
  }
  // Adding +0 to a sum of weights, which is never -0, changes nothing.
  for (int j = first; j < query.begin; ++j) query.scores[j] = 0.0f;
  for (int j = query.end; j < last; ++j) query.scores[j] = 0.0f;
  ScalarTree tree;
  for (int chunk = first / kChunk; chunk * kChunk < last; ++chunk) {
    const int from = chunk * kChunk > first ? chunk * kChunk : first;
    const int to = (chunk + 1) * kChunk < last ? (chunk + 1) * kChunk : last;
    Wide lanes = zero_wide();
    for (int j = from; j < to; j += kWidth) lanes = add(lanes, load_wide(query.scores + j));
    tree.push(chunk, fold(lanes));
  }
  query.total = tree.root();
  return true;
}

// Rows of a page, from some feature on, and those of the page that comes next.
template <class Cache> struct Rows {
  const typename Cache::Element* at;
  const typename Cache::Element* next;
  int head_dim;
};

// acc[i] += weight * value for positions [begin, end) of one page and R registers of features.
// Not inlined: in the middle of more code, compilers keep some of the sums in memory.
template <class Cache, int Q, int R>
[[gnu::noinline]] void value_rows(const Rows<Cache>& rows, const Query* queries, int begin, int end,
                                  F (*acc)[R]) {
  F sum[Q][R];
  const float* weights[Q];
  ISOBIT_EACH_QUERY ISOBIT_EACH_REGISTER sum[i][r] = acc[i][r];
  ISOBIT_EACH_QUERY weights[i] = queries[i].scores;
  ptrdiff_t at = begin % kPageSize * static_cast<ptrdiff_t>(rows.head_dim);
  for (ptrdiff_t j = begin; j < end; ++j, at += rows.head_dim) {
    prefetch<Q>(rows.next + at);
    F v[R];
    ISOBIT_EACH_REGISTER v[r] = Cache::load_lanes(rows.at + at + r * kLanes);
    ISOBIT_EACH_QUERY ISOBIT_EACH_REGISTER sum[i][r] = fma(set(weights[i][j]), v[r], sum[i][r]);
  }
  ISOBIT_EACH_QUERY ISOBIT_EACH_REGISTER acc[i][r] = sum[i][r];
}

// The chunk sum of R registers of features, for positions [from, to) of a chunk. A query takes exactly the
// positions that it sees: where the queries differ, each goes alone.
template <class Cache, int Q, int R>
inline void chunk_values(const Pages<Cache>& values, int head_dim, int feature, const Query* queries,
                         int from, int to, F (*acc)[R]) {
  ISOBIT_EACH_QUERY ISOBIT_EACH_REGISTER acc[i][r] = set(0.0f);
  for (int first = from / kPageSize * kPageSize; first < to; first += kPageSize) {
    const Rows<Cache> rows{values.page(first) + feature, values.page_after(first, to) + feature, head_dim};
    const int page_begin = larger(first, from);
    const int page_end = smaller(first + kPageSize, to);
    int common_begin = page_begin;
    int common_end = page_end;
    for (int i = 0; i < Q; ++i) {
      common_begin = larger(common_begin, queries[i].begin);
      common_end = smaller(common_end, queries[i].end);
    }
    const bool shared = common_begin < common_end;
    if (!shared) common_begin = common_end = page_end;
    for (int i = 0; i < Q; ++i) {
      value_rows<Cache, 1>(rows, queries + i, larger(page_begin, queries[i].begin),
                           smaller(common_begin, queries[i].end), acc + i);
    }
    if (!shared) continue;
    value_rows<Cache, Q>(rows, queries, common_begin, common_end, acc);
    for (int i = 0; i < Q; ++i) {
      value_rows<Cache, 1>(rows, queries + i, common_end, smaller(page_end, queries[i].end), acc + i);
    }
  }
}

template <class Cache, int Q>
inline void value_tile(const AttentionArgs& args, const Pages<Cache>& values, Query* queries, int begin,
                       int end, float* slots) {
  const int width = args.head_dim;
  alignas(64) float sums[Q][kMaxHeadDim];
  VectorTree trees[Q];
  for (int i = 0; i < Q; ++i) {
    trees[i] = VectorTree{slots + i * VectorTree::kLevels * width, width};
  }
  for (int chunk = begin / kChunk; chunk * kChunk < end; ++chunk) {
    const int from = larger(chunk * kChunk, begin);
    const int to = smaller((chunk + 1) * kChunk, end);
    const auto take = [&]<int R>(int feature) {
      F acc[Q][R];
      chunk_values<Cache, Q, R>(values, width, feature, queries, from, to, acc);
      ISOBIT_EACH_QUERY ISOBIT_EACH_REGISTER store(sums[i] + feature + r * kLanes, acc[i][r]);
    };
    int feature = 0;
    if constexpr (span<Q> > 1) {
      constexpr int kStep = span<Q> * kLanes;
      for (; feature + kStep <= width; feature += kStep) take.template operator()<span<Q>>(feature);
    }
    for (; feature < width; feature += kLanes) take.template operator()<1>(feature);
    for (int i = 0; i < Q; ++i) {
      if (queries[i].begin < to && queries[i].end > from) push(trees[i], chunk, sums[i]);
    }
  }
  for (int i = 0; i < Q; ++i) {
    trees[i].root(sums[i]);
    const F total = set(queries[i].total);
    for (int d = 0; d < width; d += kLanes) {
      store(queries[i].out + d, div(load(sums[i] + d), total));
    }
  }
}

// The first token with a score that is not finite, or kNoToken; with one, the queries' outputs are undefined.
template <class Cache, int Q>
inline int attend(const AttentionArgs& args, const Pages<Cache>& keys, const Pages<Cache>& values,
                  Query* queries, int count, float* slots) {
  if constexpr (Q > 1) {
    if (count < Q) return attend<Cache, Q - 1>(args, keys, values, queries, count, slots);
  }
  int begin = queries[0].begin;
  int end = queries[0].end;
  for (int i = 1; i < Q; ++i) {
    begin = smaller(begin, queries[i].begin);
    end = larger(end, queries[i].end);
  }
  score_tile<Cache, Q>(args, keys, queries, begin, end);
  for (int i = 0; i < Q; ++i) {
    if (!softmax_weights(queries[i], args.softcap)) return queries[i].token;
  }
  value_tile<Cache, Q>(args, values, queries, begin, end, slots);
  return kNoToken;
}

template <class Cache> inline int attention_for(const AttentionArgs& args, const AttentionUnit& unit,
                                                float* scratch) {
  const int kv_head = unit.head_begin / (args.heads / args.kv_heads);
  const size_t page_stride = static_cast<size_t>(args.kv_heads) * kPageSize * args.head_dim;
  const size_t head_offset = static_cast<size_t>(kv_head) * kPageSize * args.head_dim;
  const int32_t* table =
      args.page_tables + static_cast<ptrdiff_t>(args.sequences[unit.token_begin]) * args.pages_per_table;
  using Element = typename Cache::Element;
  const Pages<Cache> keys{static_cast<const Element*>(args.keys) + head_offset, table, page_stride};
  const Pages<Cache> values{static_cast<const Element*>(args.values) + head_offset, table, page_stride};
  const int last_position = args.positions[unit.token_end - 1];
  const size_t padded = (static_cast<size_t>(last_position) + kChunk) / kChunk * kChunk;

  Query queries[kQueries];
  int count = 0;
  int failed = kNoToken;
  const auto flush = [&] {
    if (count == 0) return;
    float* slots = scratch + kQueries * padded;
    failed = smaller(failed, attend<Cache, kQueries>(args, keys, values, queries, count, slots));
    count = 0;
  };
  for (int token = unit.token_begin; token < unit.token_end; ++token) {
    const int end = args.positions[token] + 1;
    const int begin = args.window > 0 && end > args.window ? end - args.window : 0;
    for (int h = unit.head_begin; h < unit.head_end; ++h) {
      const ptrdiff_t at = (static_cast<ptrdiff_t>(token) * args.heads + h) * args.head_dim;
      queries[count] = {args.q + at, args.out + at, scratch + count * padded, token, begin, end, 0.0f};
      if (++count == kQueries) flush();
    }
  }
  flush();
  return failed;
}

inline int attention(const AttentionArgs& args, const AttentionUnit& unit, float* scratch) {
  return args.half ? attention_for<HalfCache>(args, unit, scratch)
                   : attention_for<FloatCache>(args, unit, scratch);
}

}  // namespace isobit::ISOBIT_TARGET
