// How fast this machine reads memory and multiplies, measured with loops that do nothing else.
#pragma once
#include <cstddef>
#include <vector>

#include "isobit/kernels.h"

namespace isobit {

// Bytes per second of each of `repeats` reads of a buffer of about `bytes` bytes, shared out among `threads` threads
// that have written their own part of it first.
std::vector<double> measure_read(const Kernels& kernels, size_t bytes, int threads, int repeats);
// Operations per second, two for a multiplication with its addition: integer dot products, fused binary32.
std::vector<double> measure_dot(const Kernels& kernels, int threads, int repeats);
std::vector<double> measure_fma(const Kernels& kernels, int threads, int repeats);

}  // namespace isobit
