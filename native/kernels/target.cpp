// The kernels of one instruction set. Compiled once per target, with ISOBIT_TARGET as the namespace's name.
#include "attention.h"
#include "ceilings.h"
#include "kv_write.h"
#include "linear.h"
#include "linear_float.h"

namespace isobit::ISOBIT_TARGET {
namespace {

template <F (*kFunction)(F)> void apply(const float* x, float* y, size_t count) {
  map([](F a) { return kFunction(a); }, y, count, x);
}
F sine_of(F x) {
  F s;
  F c;
  sincos(x, s, c);
  return s;
}
F cosine_of(F x) {
  F s;
  F c;
  sincos(x, s, c);
  return c;
}

LinearKernel linear_kernel(WeightFormat format, bool two_pass) {
  switch (format) {
    case WeightFormat::kF32:
      return FloatTiles<FloatKind::kF32>::run;
    case WeightFormat::kF16:
      return FloatTiles<FloatKind::kF16>::run;
    case WeightFormat::kBF16:
      return FloatTiles<FloatKind::kBF16>::run;
    default:
      return two_pass ? integer_kernel<true>(format) : integer_kernel<false>(format);
  }
}

}  // namespace

#define ISOBIT_STRING_(x) #x
#define ISOBIT_STRING(x) ISOBIT_STRING_(x)

extern const Kernels kernels;
const Kernels kernels = {
    ISOBIT_STRING(ISOBIT_TARGET),
    linear_kernel,
    quantize,
    all_finite,
    rms_norm,
    rope_angles,
    rope,
    kv_write,
    attention,
    silu_mul,
    gelu_mul,
    add_arrays,
    scale_array,
    softcap_array,
    apply<exp>,
    apply<sigmoid>,
    apply<silu>,
    apply<gelu>,
    apply<tanh>,
    apply<sine_of>,
    apply<cosine_of>,
    apply<log>,
    sum_striped,
    read_all,
    dot_rounds,
    fma_rounds,
};

}  // namespace isobit::ISOBIT_TARGET
