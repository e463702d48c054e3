#include "thread_pool.h"

#include "cores.h"
#include "guard.h"

namespace isobit {

namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  asm volatile("yield");
#endif
}

// Tens of microseconds: longer than the gap between two operations, shorter than a time slice.
constexpr int kSpins = 4000;

}  // namespace

void ThreadPool::wait_until(const std::atomic<uint32_t>& word, uint32_t value) const {
  for (int i = 0; i < spins_; ++i) {
    if (word.load(std::memory_order_acquire) >= value) return;
    pause();
  }
  for (uint32_t seen; (seen = word.load(std::memory_order_acquire)) < value;) {
    word.wait(seen, std::memory_order_acquire);
  }
}

ThreadPool::ThreadPool(int threads)
    : threads_(threads),
      // A thread that spins while another waits for its core only delays it.
      spins_(threads <= usable_cores() ? kSpins : 0) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back(&ThreadPool::worker, this, i);
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& thread : workers_) thread.join();
}

void ThreadPool::run(const std::function<void(int)>& work) {
  work_ = &work;
  finished_.store(0, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  {
    const FloatGuard guard;
    work(0);
  }
  wait_until(finished_, threads_ - 1);
}

void ThreadPool::worker(int thread) {
  const FloatGuard guard;
  // run() returns only after every worker is done, so no generation is ever missed.
  for (uint32_t generation = 1;; ++generation) {
    wait_until(generation_, generation);
    if (stop_.load(std::memory_order_acquire)) return;
    (*work_)(thread);
    finished_.fetch_add(1, std::memory_order_acq_rel);
    finished_.notify_all();
  }
}

}  // namespace isobit
