#include "thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

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

int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 1 << 20;
  return std::max(1, static_cast<int>(std::stod(quota) / period));
}

// The first sibling of a processor stands for its physical core.
std::string core_of(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
  std::string siblings;
  if (!(file >> siblings)) return std::to_string(cpu);
  return siblings;
}

}  // namespace

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) {
    return std::max(1u, std::thread::hardware_concurrency());
  }
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cores.insert(core_of(cpu));
  }
  return std::max(1, std::min(static_cast<int>(cores.size()), quota_cores()));
}

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
