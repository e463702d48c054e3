// Persistent threads that run one function together.
#pragma once
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace isobit {

class ThreadPool {
 public:
  // `threads` counts the caller of run().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  // Returns once `word` has reached `value`: spins for a while, then sleeps until it is notified.
  void wait_until(const std::atomic<uint32_t>& word, uint32_t value) const;
  // Runs work(thread) on every thread with a clean floating-point control register; returns when all are done.
  void run(const std::function<void(int)>& work);

 private:
  void worker(int thread);

  const int threads_;
  const int spins_;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<uint32_t> generation_{0};
  std::atomic<uint32_t> finished_{0};  // workers that are done with this generation
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace isobit
