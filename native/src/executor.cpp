#include "executor.h"

#include <algorithm>
#include <chrono>
#include <exception>

namespace isobit {

namespace {
constexpr uint64_t kNoError = UINT64_MAX;
}

void Rounded::reserve(int tokens, int columns, bool two_pass) {
  const auto grow = [&](auto& v, int per_chunk) {
    const size_t chunks = (columns + kChunkColumns - 1) / kChunkColumns;
    const size_t size = chunks * tokens * per_chunk + kActivationPadding;
    if (v.size() < size) v.resize(size);
  };
  grow(low_, kChunkColumns);
  if (two_pass) grow(high_, kChunkColumns);
  grow(scale_, Activations::kBlocks);
  grow(sums_, Activations::kSums);
  grow(block_sums_, Activations::kBlocks);
}

Activations Rounded::view(int tokens, int columns, bool two_pass) {
  return {low_.data(),        high_.data(), scale_.data(), sums_.data(),
          block_sums_.data(), columns,      tokens,        two_pass};
}

Executor::Executor(std::shared_ptr<const WeightStore> weights, const Kernels& kernels, int threads)
    : weights_(std::move(weights)), kernels_(kernels), pool_(threads), scratch_(threads) {}

int Executor::add_buffer(int width, bool selected) {
  buffers_.push_back({width, selected, {}});
  return static_cast<int>(buffers_.size()) - 1;
}

int Executor::add_vector(std::vector<float> values) {
  vectors_.push_back(std::move(values));
  return static_cast<int>(vectors_.size()) - 1;
}

void Executor::add_step(int op, std::unique_ptr<Step> step) {
  step->op = op;
  const bool joins = step->kind != Step::Kind::kAlone && !steps_.empty() && steps_.back()->kind == step->kind;
  if (!joins) stages_.emplace_back();
  stages_.back().steps.push_back(step.get());
  steps_.push_back(std::move(step));
}

int Stage::units(const Executor& e, const Run& run) const {
  if (steps[0]->kind == Step::Kind::kRow) return steps[0]->units(e, run);
  int units = 0;
  for (const Step* step : steps) units += step->units(e, run);
  return units;
}

void Stage::run(Executor& e, Run& run, int unit, int thread) const {
  for (Step* step : steps) {
    run.op = step->op;
    if (step->kind == Step::Kind::kRow) {
      step->run(e, run, unit, thread);
      continue;
    }
    const int units = step->units(e, run);
    if (unit < units) return step->run(e, run, unit, thread);
    unit -= units;
  }
}

void Executor::prepare(Run run) {
  if (done_.size() != steps_.size()) {
    done_ = std::vector<Counter>(steps_.size());
    taken_ = std::vector<Counter>(steps_.size() * threads());
  }
  for (auto* counters : {&done_, &taken_}) {
    for (auto& counter : *counters) counter.value.store(0, std::memory_order_relaxed);
  }
  observed_.store(0);
  for (auto& buffer : buffers_) {
    const size_t rows = buffer.selected ? run.batch.wanted.size() : run.batch.tokens;
    buffer.data.resize(rows * buffer.width);
  }
  for (auto& step : steps_) {
    run.op = step->op;
    step->prepare(*this, run);
    if (step->selects) run.rows = static_cast<int>(run.batch.wanted.size());
  }
}

void Executor::start_profile() {
  profiling_ = true;
  for (auto& stage : stages_) stage.seconds = 0;
}

// The next unit for a thread, or -1. Units are shared out in ranges, so that a thread's weights lie one after the
// other in memory; a thread that is done with its own helps the next.
int Executor::take(size_t stage, int thread, int units) {
  const int64_t n = threads();
  for (int i = 0; i < n; ++i) {
    const int owner = static_cast<int>((thread + i) % n);
    const auto first = static_cast<int>(units * owner / n);
    const auto last = static_cast<int>(units * (owner + 1) / n);
    auto& taken = taken_[stage * n + owner].value;
    if (static_cast<int>(taken.load(std::memory_order_relaxed)) >= last - first) continue;
    const auto next = static_cast<int>(taken.fetch_add(1, std::memory_order_relaxed));
    if (next < last - first) return first + next;
  }
  return -1;
}

void Executor::walk(int thread, std::vector<Stage>& stages, Run run, const Observer& observer) {
  using Clock = std::chrono::steady_clock;
  for (size_t i = 0; i < stages.size(); ++i) {
    Stage& stage = stages[i];
    auto& done = done_[i].value;
    const auto start = profiling_ ? Clock::now() : Clock::time_point();
    const int units = stage.units(*this, run);
    for (int unit; (unit = take(i, thread, units)) >= 0;) {
      stage.run(*this, run, unit, thread);
      if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(units)) done.notify_all();
    }
    pool_.wait_until(done, units);
    if (stage.steps[0]->selects) run.rows = static_cast<int>(run.batch.wanted.size());
    if (profiling_ && thread == 0)
      stage.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    if (observer) observe(thread, stages, i, observer);
  }
}

// Thread 0 calls the observer after the last step of an operation; the others wait for it.
void Executor::observe(int thread, const std::vector<Stage>& stages, size_t stage, const Observer& observer) {
  const auto next = static_cast<uint32_t>(stage + 1);
  if (thread != 0) return pool_.wait_until(observed_, next);
  const int op = stages[stage].last_op();
  if (next == stages.size() || stages[next].last_op() != op) observer(op);
  observed_.store(next, std::memory_order_release);
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
  std::vector<Stage> singles;
  if (observer) {
    for (auto& step : steps_) singles.push_back({{step.get()}});
  }
  auto& stages = observer ? singles : stages_;
  pool_.run([&](int thread) { walk(thread, stages, run, guarded); });
  if (failure) std::rethrow_exception(failure);
  const uint64_t place = error_.load();
  if (place != kNoError) throw NonFinite(static_cast<int>(place >> 32), static_cast<int>(place & UINT32_MAX));
}

}  // namespace isobit
