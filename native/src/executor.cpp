#include "executor.h"

#include <algorithm>
#include <exception>

#include "pack.h"

namespace isobit {

namespace {
constexpr uint64_t kNoError = UINT64_MAX;
}

int WeightStore::add(std::span<const uint8_t> raw, WeightFormat format, int rows, int columns, bool pack) {
  PackedWeight w{format, rows, columns, pack ? (rows + kTileRows - 1) / kTileRows : 0, 0, nullptr, raw};
  w.tile_bytes = packed_tile_bytes(format, columns);
  const size_t bytes = w.tile_bytes * w.tiles;
  w.data = std::shared_ptr<uint8_t[]>(static_cast<uint8_t*>(::operator new[](bytes, std::align_val_t{64})),
                                      [](uint8_t* p) { ::operator delete[](p, std::align_val_t{64}); });
  std::atomic<int> next{0};
  ThreadPool pool(threads_);  // packing is rare: no threads are kept for it
  pool.run([&](int) {
    for (int tile; (tile = next.fetch_add(1)) < w.tiles;) {
      pack_tile(format, raw.data(), rows, columns, tile, w.data.get() + tile * w.tile_bytes);
    }
  });
  weights_.push_back(std::move(w));
  return static_cast<int>(weights_.size()) - 1;
}

size_t WeightStore::bytes() const {
  size_t bytes = 0;
  for (const auto& w : weights_) bytes += w.tile_bytes * w.tiles;
  return bytes;
}

Executor::Executor(std::shared_ptr<const WeightStore> weights, const Kernels& kernels, int threads)
    : weights_(std::move(weights)), kernels_(kernels), pool_(threads), scratch_(threads) {}

int Executor::add_buffer(int width) {
  buffers_.push_back({width, {}});
  return static_cast<int>(buffers_.size()) - 1;
}

int Executor::add_vector(std::vector<float> values) {
  vectors_.push_back(std::move(values));
  return static_cast<int>(vectors_.size()) - 1;
}

void Executor::add_step(int op, std::unique_ptr<Step> step) {
  step->op = op;
  steps_.push_back(std::move(step));
  progress_ = std::make_unique<Progress[]>(steps_.size());
}

void Executor::prepare(Run run) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    progress_[i].taken.store(0, std::memory_order_relaxed);
    progress_[i].done.store(0, std::memory_order_relaxed);
  }
  observed_.store(0);
  // Sized for every token: buffers after select_rows use the first rows only.
  for (auto& buffer : buffers_) {
    buffer.data.resize(static_cast<size_t>(run.batch.tokens) * buffer.width);
  }
  for (auto& step : steps_) {
    run.op = step->op;
    step->prepare(*this, run);
    if (step->selects) run.rows = static_cast<int>(run.batch.wanted.size());
  }
}

void Executor::walk(int thread, Run run, const Observer& observer) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    Step& step = *steps_[i];
    Progress& progress = progress_[i];
    run.op = step.op;
    const int units = step.units(*this, run);
    for (int unit; (unit = progress.taken.fetch_add(1, std::memory_order_relaxed)) < units;) {
      step.run(*this, run, unit, thread);
      const uint32_t done = progress.done.fetch_add(1, std::memory_order_acq_rel) + 1;
      if (done == static_cast<uint32_t>(units)) progress.done.notify_all();
    }
    pool_.wait_until(progress.done, units);
    if (step.selects) run.rows = static_cast<int>(run.batch.wanted.size());
    if (observer) observe(thread, static_cast<int>(i), observer);
  }
}

// Thread 0 calls the observer after the last step of an operation; the others wait for it.
void Executor::observe(int thread, int step, const Observer& observer) {
  if (thread != 0) return pool_.wait_until(observed_, step + 1);
  const size_t next = step + 1;
  if (next == steps_.size() || steps_[next]->op != steps_[step]->op) observer(steps_[step]->op);
  observed_.store(step + 1, std::memory_order_release);
  observed_.notify_all();
}

void Executor::forward(const BatchView& batch, const CacheView& cache, const Observer& observer) {
  error_.store(kNoError);
  const Run run{batch, cache, batch.tokens, &error_, 0};
  prepare(run);
  // An observer that throws must not leave the other threads at a barrier.
  std::exception_ptr failure;
  Observer guarded;
  if (observer) {
    guarded = [&](int op) {
      if (failure) return;
      try {
        observer(op);
      } catch (...) {
        failure = std::current_exception();
      }
    };
  }
  pool_.run([&](int thread) { walk(thread, run, guarded); });
  if (failure) std::rethrow_exception(failure);
  const uint64_t place = error_.load();
  if (place != kNoError) throw NonFinite(static_cast<int>(place >> 32), static_cast<int>(place & UINT32_MAX));
}

}  // namespace isobit
