// Matrices of every weight type times rounded activations, in both settings.
#include <algorithm>
#include <cstring>

#include "blocks.h"
#include "digest.h"
#include "pack.h"

namespace isobit::tests {

namespace {

struct Format {
  WeightFormat format;
  const char* name;
  int block_columns;
  int block_bytes;
  std::vector<int> halves;  // byte offsets of the binary16 fields of a block
};

const Format kFormats[] = {
    {WeightFormat::kF32, "F32", 1, 4, {}},
    {WeightFormat::kF16, "F16", 1, 2, {0}},
    {WeightFormat::kBF16, "BF16", 1, 2, {}},
    {WeightFormat::kQ4_0, "Q4_0", 32, 18, {0}},
    {WeightFormat::kQ4_1, "Q4_1", 32, 20, {0, 2}},
    {WeightFormat::kQ5_0, "Q5_0", 32, 22, {0}},
    {WeightFormat::kQ5_1, "Q5_1", 32, 24, {0, 2}},
    {WeightFormat::kQ8_0, "Q8_0", 32, 34, {0}},
    {WeightFormat::kQ2_K, "Q2_K", 256, 84, {80, 82}},
    {WeightFormat::kQ3_K, "Q3_K", 256, 110, {108}},
    {WeightFormat::kQ4_K, "Q4_K", 256, 144, {0, 2}},
    {WeightFormat::kQ5_K, "Q5_K", 256, 176, {0, 2}},
    {WeightFormat::kQ6_K, "Q6_K", 256, 210, {208}},
    {WeightFormat::kIQ4_NL, "IQ4_NL", 32, 18, {0}},
    {WeightFormat::kIQ4_XS, "IQ4_XS", 256, 136, {0}},
};

// How the inputs are filled: `kExtreme` has the largest codes and activations of either sign, `kLarge` may overflow.
enum class Fill { kFeatures, kExtreme, kLarge };
constexpr const char* kFillNames[] = {"features", "extreme", "large"};

struct Case {
  int rows;
  int columns;
  int tokens;
  bool bias;
  Fill fill;
};

// Columns in chunks of 256; types with blocks of 32 get a short last chunk in place of a whole one.
const Case kCases[] = {
    {1, 256, 1, false, Fill::kFeatures},   {17, 512, 2, true, Fill::kFeatures},
    {50, 1280, 19, true, Fill::kFeatures}, {37, 1024, 7, false, Fill::kExtreme},
    {16, 768, 12, false, Fill::kFeatures}, {33, 1792, 5, true, Fill::kLarge},
};

std::vector<uint8_t> raw_weights(Random& random, const Format& f, const Case& c, int columns) {
  std::vector<uint8_t> raw(static_cast<size_t>(c.rows) * columns / f.block_columns * f.block_bytes);
  static constexpr uint8_t extremes[] = {0x00, 0xff, 0x80, 0x7f};
  for (uint8_t& byte : raw) {
    byte = c.fill == Fill::kExtreme ? random.pick(extremes) : static_cast<uint8_t>(random.next());
  }
  for (size_t block = 0; block < raw.size(); block += f.block_bytes) {
    for (const int offset : f.halves) {
      const uint16_t half = random.scale_half();
      std::memcpy(&raw[block + offset], &half, 2);
    }
    if (f.format == WeightFormat::kF32 || f.format == WeightFormat::kBF16) {
      const uint32_t word =
          std::bit_cast<uint32_t>(random.one_in(16) ? random.hostile() : random.magnitude(-12, 1));
      const uint32_t kept = f.block_bytes == 2 ? word >> 16 : word;
      std::memcpy(&raw[block], &kept, f.block_bytes);
    }
  }
  return raw;
}

std::vector<float> token_features(Random& random, const Case& c, int columns) {
  int index = 0;
  auto x = floats(static_cast<size_t>(c.tokens) * columns, [&] {
    switch (c.fill) {
      case Fill::kExtreme:
        return random.one_in(2) ? 3.0f : -3.0f;
      case Fill::kLarge:
        return random.one_in(99) ? random.any_finite() : random.magnitude(-10, 10);
      default:
        break;
    }
    // Every other chunk is without outliers: its codes take every value.
    return index++ / kChunkColumns % 2 == 0 ? random.unit() : random.feature();
  });
  // Groups that count as zero, and groups of exact zeros.
  for (size_t i = 0; c.fill == Fill::kFeatures && i < x.size(); i += kBlockColumns) {
    if (!random.one_in(8)) continue;
    const float tiny = random.one_in(2) ? 0.0f : 0x1.8p-101f;
    for (size_t j = i; j < i + kBlockColumns; ++j) x[j] = random.one_in(2) ? tiny : -tiny;
  }
  return x;
}

// A matrix, packed, and tokens, rounded by the kernels under test.
class Problem {
 public:
  Problem(const Kernels& kernels, const Format& f, const Case& c, int columns, bool two_pass, uint64_t seed)
      : kernels_(kernels), case_(c), columns_(columns) {
    Random random(seed);
    pack(f, raw_weights(random, f, c, columns));
    x_ = token_features(random, c, columns);
    bias_ = floats(c.rows, [&] { return random.feature(); });
    if (is_integer(f.format)) round(two_pass);
    kernel_ = kernels.linear(f.format, two_pass);
  }

  // Runs the kernel over token ranges of `range` tokens.
  Digest run(int range) {
    auto out = output(static_cast<size_t>(case_.tokens) * case_.rows);
    LinearArgs args{tiles_,     tile_bytes_,  case_.rows,
                    columns_,   activations_, x_.data(),
                    out.data(), case_.rows,   case_.bias ? bias_.data() : nullptr};
    for (int tile = 0; tile * kTileRows < case_.rows; ++tile) {
      for (int begin = 0; begin < case_.tokens; begin += range) {
        kernel_(args, tile, begin, std::min(case_.tokens, begin + range));
      }
    }
    Digest digest;
    digest.add(out);
    return digest;
  }

 private:
  void pack(const Format& f, const std::vector<uint8_t>& raw) {
    tile_bytes_ = packed_tile_bytes(f.format, columns_);
    const int tiles = (case_.rows + kTileRows - 1) / kTileRows;
    packed_.resize(tile_bytes_ * tiles + 64);
    tiles_ = packed_.data() + (64 - reinterpret_cast<uintptr_t>(packed_.data()) % 64) % 64;
    for (int tile = 0; tile < tiles; ++tile) {
      pack_tile(f.format, raw.data(), case_.rows, columns_, tile, tiles_ + tile * tile_bytes_);
    }
  }
  void round(bool two_pass) {
    const size_t per_chunk =
        static_cast<size_t>((columns_ + kChunkColumns - 1) / kChunkColumns) * case_.tokens;
    low_.resize(per_chunk * kChunkColumns + kActivationPadding);
    high_.resize(two_pass ? low_.size() : 0);
    scale_.resize(per_chunk * Activations::kBlocks + kActivationPadding);
    sums_.resize(per_chunk * Activations::kSums + kActivationPadding);
    block_sums_.resize(per_chunk * Activations::kBlocks + kActivationPadding);
    activations_ = {low_.data(),        high_.data(), scale_.data(), sums_.data(),
                    block_sums_.data(), columns_,     case_.tokens,  two_pass};
    for (int t = 0; t < case_.tokens; ++t) {
      kernels_.quantize(x_.data() + static_cast<size_t>(t) * columns_, activations_, t);
    }
  }

  const Kernels& kernels_;
  const Case case_;
  const int columns_;
  size_t tile_bytes_ = 0;
  uint8_t* tiles_ = nullptr;
  std::vector<uint8_t> packed_;
  std::vector<float> x_, bias_, scale_;
  std::vector<int8_t> low_, high_;
  std::vector<int32_t> sums_, block_sums_;
  Activations activations_{};
  LinearKernel kernel_ = nullptr;
};

void linear_case(Report& report, const Format& f, const Case& c, bool two_pass, uint64_t seed) {
  const int columns = f.block_columns == 256 ? c.columns : c.columns - 256 + 32;
  Problem problem(report.kernels, f, c, columns, two_pass, seed);
  const std::string operation = std::string("linear/") + f.name + (two_pass ? "/int16" : "/int8");
  const std::string label = std::to_string(c.rows) + "x" + std::to_string(columns) +
                            ",tokens=" + std::to_string(c.tokens) + (c.bias ? ",bias," : ",") +
                            kFillNames[static_cast<int>(c.fill)];
  const Digest whole = problem.run(c.tokens);
  report.line(operation, label, whole);
  if (c.tokens > 1) report.expect_same(operation, label, whole, problem.run(1));
  if (c.tokens > 3) report.expect_same(operation, label, whole, problem.run(3));
}

}  // namespace

void linear_cases(Report& report) {
  for (const Format& f : kFormats) {
    for (const bool two_pass : {false, true}) {
      if (two_pass && !is_integer(f.format)) continue;
      uint64_t seed = 9000;
      for (const Case& c : kCases) linear_case(report, f, c, two_pass, ++seed);
    }
  }
}

}  // namespace isobit::tests
