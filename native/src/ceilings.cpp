#include "ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>

#include "thread_pool.h"

namespace isobit {
namespace {

constexpr size_t kReadUnit = 512;          // the kernels read in steps of this many bytes
constexpr double kMultiplySeconds = 0.01;  // of one measurement: long against a start of the threads

template <class Work> double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Number>
std::vector<double> measure_rounds(double (*kernel)(size_t, Number*), int threads, int repeats) {
  ThreadPool pool(threads);
  std::vector<Number> sinks(threads);
  std::vector<double> done(threads);
  const auto run = [&](size_t rounds) {
    return seconds_of([&] { pool.run([&](int t) { done[t] = kernel(rounds, &sinks[t]); }); });
  };
  size_t rounds = 1000;
  while (run(rounds) < kMultiplySeconds) rounds *= 2;
  std::vector<double> rates;
  for (int i = 0; i < repeats; ++i) {
    const double seconds = run(rounds);
    double operations = 0;
    for (const double d : done) operations += d;
    rates.push_back(operations / seconds);
  }
  return rates;
}

}  // namespace

std::vector<double> measure_read(const Kernels& kernels, size_t bytes, int threads, int repeats) {
  const size_t part = std::max<size_t>(1, bytes / threads / kReadUnit) * kReadUnit;
  const std::unique_ptr<uint8_t, void (*)(uint8_t*)> buffer(
      static_cast<uint8_t*>(::operator new[](part * threads, std::align_val_t{64})),
      [](uint8_t* p) { ::operator delete[](p, std::align_val_t{64}); });
  ThreadPool pool(threads);
  std::vector<int32_t> sinks(threads);
  const auto part_of = [&](int thread) { return buffer.get() + part * thread; };
  pool.run([&](int t) { std::memset(part_of(t), t + 1, part); });
  const auto read = [&] { pool.run([&](int t) { sinks[t] = kernels.read_all(part_of(t), part); }); };
  std::vector<double> rates;
  for (int i = 0; i < repeats; ++i) rates.push_back(static_cast<double>(part * threads) / seconds_of(read));
  return rates;
}

std::vector<double> measure_dot(const Kernels& kernels, int threads, int repeats) {
  return measure_rounds(kernels.dot_rounds, threads, repeats);
}

std::vector<double> measure_fma(const Kernels& kernels, int threads, int repeats) {
  return measure_rounds(kernels.fma_rounds, threads, repeats);
}

}  // namespace isobit
