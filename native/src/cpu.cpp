#include "cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#else
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace isobit {

namespace scalar {
extern const Kernels kernels;
}
namespace specimen {
extern const Kernels kernels;
}
#ifdef ISOBIT_FREE_ORDER
namespace freeorder {
extern const Kernels kernels;
}
#if defined(__x86_64__)
constexpr const char* kFreeOrderNeeds = "avx512vnni";
#else
constexpr const char* kFreeOrderNeeds = "neondot";
#endif
#endif
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}
namespace avx512vnni {
extern const Kernels kernels;
}
#else
namespace neon {
extern const Kernels kernels;
}
namespace neondot {
extern const Kernels kernels;
}
#endif

#if defined(__x86_64__)
// clang's __builtin_cpu_supports does not know this one before version 16.
static bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

std::map<std::string, bool> cpu_features() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return {{"avx2", __builtin_cpu_supports("avx2")},
          {"fma", __builtin_cpu_supports("fma")},
          {"f16c", has_f16c()},
          {"avx512f", __builtin_cpu_supports("avx512f")},
          {"avx512bw", __builtin_cpu_supports("avx512bw")},
          {"avx512dq", __builtin_cpu_supports("avx512dq")},
          {"avx512vl", __builtin_cpu_supports("avx512vl")},
          {"avx512vnni", __builtin_cpu_supports("avx512vnni")}};
#else
  const unsigned long flags = getauxval(AT_HWCAP);
  return {{"neon", (flags & HWCAP_ASIMD) != 0}, {"dotprod", (flags & HWCAP_ASIMDDP) != 0}};
#endif
}

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> found{&scalar::kernels};
  auto has = cpu_features();
#if defined(__x86_64__)
  if (has["avx2"] && has["fma"] && has["f16c"]) found.push_back(&avx2::kernels);
  const bool wide =
      found.size() == 2 && has["avx512f"] && has["avx512bw"] && has["avx512dq"] && has["avx512vl"];
  if (wide) found.push_back(&avx512::kernels);
  if (wide && has["avx512vnni"]) found.push_back(&avx512vnni::kernels);
#else
  if (has["neon"]) found.push_back(&neon::kernels);
  if (has["dotprod"]) found.push_back(&neondot::kernels);
#endif
  return found;
}

const Kernels* find_kernels(const std::string& name) {
  if (name == specimen::kernels.name && available_kernels().size() > 1) return &specimen::kernels;
#ifdef ISOBIT_FREE_ORDER
  if (name == freeorder::kernels.name && find_kernels(kFreeOrderNeeds)) return &freeorder::kernels;
#endif
  for (const Kernels* k : available_kernels()) {
    if (name == k->name) return k;
  }
  return nullptr;
}

}  // namespace isobit
