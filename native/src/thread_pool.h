// Persistent threads that run one function together, and the barrier they meet at.
#pragma once
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace isobit {

// Waits while `word` equals `old`: first spinning, `spins` times, then asleep.
void wait_while(const std::atomic<uint32_t>& word, uint32_t old, int spins);

class Barrier {
 public:
  Barrier(int threads, int spins) : threads_(threads), spins_(spins) {}
  void wait() {
    if (threads_ == 1) return;
    const uint32_t generation = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
      generation_.notify_all();
    } else {
      wait_while(generation_, generation, spins_);
    }
  }

 private:
  const int threads_;
  const int spins_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
};

class ThreadPool {
 public:
  // `threads` counts the caller of run().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  Barrier& barrier() { return barrier_; }
  // Runs work(thread) on every thread with a clean floating-point control register; returns when all are done.
  void run(const std::function<void(int)>& work);

 private:
  void worker(int thread);

  const int threads_;
  const int spins_;
  Barrier barrier_;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

// Processors this process may use: affinity, control group quota, one per physical core.
int usable_cores();

}  // namespace isobit
