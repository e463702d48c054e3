// Functions, sums, norms, rounding of activations, rope, cache writes and pointwise operations.
#include <cmath>
#include <iterator>
#include <limits>

#include "digest.h"

namespace isobit::tests {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

struct Function {
  const char* name;
  ArrayKernel kernel;
  enum Domain { kAny, kAngle, kPositive } domain;
};

float argument(Random& random, Function::Domain domain) {
  switch (domain) {
    case Function::kAngle:
      if (random.one_in(8)) return random.hostile();
      return random.one_in(2) ? random.magnitude(-30, 20) : random.unit() * 8;
    case Function::kPositive:
      return std::fabs(random.magnitude(-126, 127));
    default:
      break;
  }
  if (random.one_in(16)) return random.hostile();
  return random.one_in(4) ? random.any_finite() : random.unit() * random.pick({1.0f, 8.0f, 128.0f});
}

void functions(Report& report) {
  const Kernels& k = report.kernels;
  const Function table[] = {{"exp", k.exp, Function::kAny},   {"sigmoid", k.sigmoid, Function::kAny},
                            {"silu", k.silu, Function::kAny}, {"gelu", k.gelu, Function::kAny},
                            {"tanh", k.tanh, Function::kAny}, {"sin", k.sin, Function::kAngle},
                            {"cos", k.cos, Function::kAngle}, {"log", k.log, Function::kPositive}};
  for (const Function& f : table) {
    for (const int count : {1, 15, 16, 17, 8209}) {
      Random random(1000 + count);
      const auto x = floats(count, [&] { return argument(random, f.domain); });
      auto y = output(count);
      f.kernel(x.data(), y.data(), count);
      Digest digest;
      digest.add(y);
      report.line(f.name, "count=" + std::to_string(count), digest);
    }
    if (f.domain != Function::kAny) continue;
    const float x[] = {kInfinity, -kInfinity, kLargest, -kLargest, 0.0f, -0.0f};
    float y[std::size(x)];
    f.kernel(x, y, std::size(x));
    Digest digest;
    for (const float value : y) digest.add(value);
    report.line(f.name, "infinite", digest);
  }
}

void sums(Report& report) {
  for (const int count : {1, 15, 16, 17, 255, 256, 257, 511, 1000, 4096, 5003}) {
    Random random(2000 + count);
    Digest digest;
    const auto x = floats(count, [&] { return random.feature(); });
    digest.add(report.kernels.sum_striped(x.data(), count));
    const auto wide = floats(count, [&] { return random.magnitude(-126, 100); });
    digest.add(report.kernels.sum_striped(wide.data(), count));
    report.line("sum_striped", "count=" + std::to_string(count), digest);
  }
}

void norms(Report& report) {
  for (const int width : {16, 64, 100, 256, 576, 1003}) {
    // ordinary features, squares that are subnormal, squares that nearly overflow, zeros, a sum that overflows
    for (int kind = 0; kind < 5; ++kind) {
      Random random(3000 + 10 * width + kind);
      const auto weight = floats(width, [&] { return random.feature(); });
      const auto x = floats(width, [&] {
        switch (kind) {
          case 1:
            return random.magnitude(-80, -60);
          case 2:
            return random.magnitude(40, 56);
          case 3:
            return random.one_in(2) ? 0.0f : -0.0f;
          case 4:
            return random.magnitude(60, 127);
          default:
            return random.feature();
        }
      });
      auto y = output(width);
      const bool finite = report.kernels.rms_norm(x.data(), weight.data(), y.data(), width, 1e-6f);
      Digest digest;
      digest.add(finite);
      if (finite) digest.add(y);
      report.line("rms_norm", "width=" + std::to_string(width) + ",kind=" + std::to_string(kind), digest);
    }
  }
}

constexpr const char* kRoundKinds[] = {"features", "ties", "tiny",     "border", "huge",
                                       "zeros",    "bits", "infinity", "nan"};

// One token for the rounding of activations; `limit` is the largest code.
std::vector<float> token_to_round(Random& random, int columns, int kind, float limit) {
  auto x = floats(columns, [&] {
    switch (kind) {
      // With a largest value of `limit` the factor is 1: halves are exact ties.
      case 1:
        return static_cast<float>(random.below(static_cast<int>(limit)) - static_cast<int>(limit) / 2) + 0.5f;
      case 2:
        return random.one_in(2) ? random.magnitude(-126, -101) : random.hostile() * 0x1p-126f;
      case 3:
        return random.magnitude(-103, -100);
      case 4:
        return random.magnitude(100, 127);
      case 5:
        return random.one_in(2) ? 0.0f : -0.0f;
      case 6:
        return random.any_finite();
      default:
        return random.feature();
    }
  });
  if (kind == 1) {
    for (int i = 0; i < columns; i += kBlockColumns) x[i] = random.one_in(2) ? limit : -limit;
  }
  // The last group alone is at the border below which it counts as zero.
  if (kind == 3) {
    for (int i = columns - kBlockColumns; i < columns; ++i) x[i] = std::bit_cast<float>(0x0d7fffffu);
    x[columns - 1] = random.one_in(2) ? 0x1p-100f : -0x1p-100f;
  }
  if (kind == 4) x[columns / 2] = -kLargest;
  if (kind == 7) x[random.below(columns)] = -kInfinity;
  if (kind == 8) x[random.below(columns)] = std::numeric_limits<float>::quiet_NaN();
  return x;
}

Digest round_token(const Kernels& k, const std::vector<float>& x, bool two_pass) {
  const int columns = static_cast<int>(x.size());
  const int padded = (columns + kChunkColumns - 1) / kChunkColumns * kChunkColumns;
  std::vector<int8_t> low(padded + kGuard, 77);
  std::vector<int8_t> high(padded + kGuard, 77);
  auto scale = output(columns / kBlockColumns);
  std::vector<int32_t> sums(padded / 16 + kGuard, 77);
  std::vector<int32_t> block_sums(padded / kBlockColumns + kGuard, 77);
  const Activations a{low.data(), high.data(), scale.data(), sums.data(), block_sums.data(),
                      columns,    1,           two_pass};
  const bool finite = k.quantize(x.data(), a, 0);
  Digest digest;
  digest.add(finite);
  if (!finite) return digest;
  low.resize(columns + kGuard);
  high.resize(columns + kGuard);
  sums.resize(columns / 16 + kGuard);
  digest.add(low);
  digest.add(high);
  digest.add(scale);
  digest.add(sums);
  return digest;
}

void rounding(Report& report) {
  for (const bool two_pass : {false, true}) {
    for (const int columns : {32, 256, 288, 800}) {
      for (int kind = 0; kind < static_cast<int>(std::size(kRoundKinds)); ++kind) {
        Random random(4000 + 10 * columns + kind);
        const auto x = token_to_round(random, columns, kind, two_pass ? 32512.0f : 127.0f);
        Digest digest = round_token(report.kernels, x, two_pass);
        digest.add(report.kernels.all_finite(x.data(), x.size()));
        report.line(two_pass ? "quantize_int16" : "quantize_int8",
                    "columns=" + std::to_string(columns) + "," + kRoundKinds[kind], digest);
      }
    }
  }
}

void ropes(Report& report) {
  static constexpr struct {
    int heads, head_dim, half;
  } shapes[] = {{1, 16, 8},   {3, 64, 32},   {2, 80, 40}, {5, 96, 20},
                {2, 128, 64}, {1, 256, 128}, {4, 64, 1},  {2, 128, 33}};
  for (const auto& s : shapes) {
    for (const bool interleaved : {false, true}) {
      Random random(5000 + 10 * s.head_dim + s.half);
      Digest digest;
      for (const float position : {0.0f, 1.0f, 63.0f, 700.0f, 131071.0f, 1048575.0f}) {
        auto inv_freq = floats(s.half, [&] { return std::fabs(random.magnitude(-20, -1)); });
        inv_freq[0] = 1.0f;
        auto x = floats(s.heads * s.head_dim, [&] { return random.feature(); });
        auto cosines = output(s.half);
        auto sines = output(s.half);
        const float mscale = random.one_in(2) ? 1.0f : 1.25f + 0.25f * random.unit();
        report.kernels.rope_angles(position, inv_freq.data(), s.half, mscale, cosines.data(), sines.data());
        report.kernels.rope(x.data(), s.heads, s.head_dim, s.half, interleaved, cosines.data(), sines.data());
        digest.add(cosines);
        digest.add(sines);
        digest.add(x);
      }
      report.line("rope",
                  std::to_string(s.heads) + "x" + std::to_string(s.head_dim) +
                      ",half=" + std::to_string(s.half) + (interleaved ? ",interleaved" : ",halves"),
                  digest);
    }
  }
}

void pointwise(Report& report) {
  const Kernels& k = report.kernels;
  for (const int count : {1, 15, 16, 17, 1000}) {
    const std::string label = "count=" + std::to_string(count);
    Random random(6000 + count);
    const auto value = [&] { return random.one_in(8) ? random.any_finite() : random.feature() * 16; };
    const auto a = floats(count, value);
    const auto b = floats(count, value);
    using Binary = void (*)(const float*, const float*, float*, size_t);
    static constexpr const char* names[] = {"silu_mul", "gelu_mul", "add"};
    const Binary kernels[] = {k.silu_mul, k.gelu_mul, k.add};
    for (int i = 0; i < 3; ++i) {
      auto y = output(count);
      kernels[i](a.data(), b.data(), y.data(), count);
      Digest digest;
      digest.add(y);
      report.line(names[i], label, digest);
    }
    Digest scaled;
    Digest capped;
    for (const float factor : {0.0f, 1.0f, -0.3f, 1e-30f, 25.298222f, 3e38f}) {
      auto x = a;
      k.scale(x.data(), factor, count);
      scaled.add(x);
      if (factor <= 0.0f) continue;
      x = a;
      k.softcap(x.data(), factor, count);
      capped.add(x);
    }
    report.line("scale", label, scaled);
    report.line("softcap", label, capped);
  }
}

}  // namespace

void array_cases(Report& report) {
  functions(report);
  sums(report);
  norms(report);
  rounding(report);
  ropes(report);
  pointwise(report);
}

}  // namespace isobit::tests
