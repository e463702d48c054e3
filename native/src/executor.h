// A program made ready for the CPU: packed weights, a list of steps, and the threads that walk through it together.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "isobit/kernels.h"
#include "thread_pool.h"
#include "weights.h"

namespace isobit {

// A token's features, [rows, width] float32, aligned for the kernels.
struct Buffer {
  int width = 0;
  bool selected = false;  // written after select_rows only: it has the wanted rows
  std::vector<float> data;
};

// Tokens rounded for integer weights; consecutive linear operations on one input share it.
class Rounded {
 public:
  // Makes room for `tokens` tokens of `columns` features.
  void reserve(int tokens, int columns, bool two_pass);
  Activations view(int tokens, int columns, bool two_pass);

 private:
  std::vector<int8_t> low_, high_;
  std::vector<float> scale_;
  std::vector<int32_t> sums_, block_sums_;
};

struct BatchView {
  int tokens;
  const int32_t* ids;
  const int32_t* positions;
  const int32_t* sequences;
  const int32_t* page_tables;
  int pages_per_table;
  std::span<const int32_t> wanted;
};

struct CacheView {
  uint8_t* keys;  // [layers, ...]
  uint8_t* values;
  size_t layer_bytes;
  bool half;
};

// What a forward pass knows: the batch, and where a first error was met.
struct Run {
  BatchView batch;
  CacheView cache;
  int rows;  // tokens, or the wanted rows after select_rows
  std::atomic<uint64_t>* error;
  int op;

  // Keeps the earliest (operation, token).
  void report(int token) const {
    const uint64_t place = static_cast<uint64_t>(op) << 32 | static_cast<uint32_t>(token);
    uint64_t seen = error->load();
    while (place < seen && !error->compare_exchange_weak(seen, place)) {
    }
  }
};

class Executor;

// A unit of work is what one thread takes at a time; units of a step are independent of each other.
struct Step {
  virtual ~Step() = default;
  virtual void prepare(Executor&, const Run&) {}
  virtual int units(const Executor&, const Run&) const = 0;
  virtual void run(Executor&, const Run&, int unit, int thread) = 0;
  // How it may share a stage with the steps next to it of the same kind.
  enum class Kind {
    kAlone,
    kRow,      // units are rows, and a row reads nothing that the step before it writes for other rows
    kParallel  // reads nothing that the step before it writes
  };
  Kind kind = Kind::kAlone;
  int op = 0;            // index in the program
  bool selects = false;  // later steps work on the wanted rows
};

// Steps between which threads need not wait for each other. Row steps: a unit is a row, which goes through all of
// them; parallel steps: the units of all of them, one after the other.
struct Stage {
  std::vector<Step*> steps;
  double seconds = 0;  // measured while profiling

  int units(const Executor&, const Run&) const;
  void run(Executor&, Run&, int unit, int thread) const;
  int last_op() const { return steps.back()->op; }
};

class NonFinite : public std::runtime_error {
 public:
  NonFinite(int op, int token) : std::runtime_error("non-finite value"), op(op), token(token) {}
  int op;
  int token;
};

class Executor {
 public:
  // Called between operations with the operation's index.
  using Observer = std::function<void(int op)>;

  Executor(std::shared_ptr<const WeightStore> weights, const Kernels& kernels, int threads);

  int add_buffer(int width, bool selected);
  int add_vector(std::vector<float> values);
  void add_step(int op, std::unique_ptr<Step> step);

  // Runs all steps; the result is in buffer `logits`. With an observer every step is a stage. Throws NonFinite.
  void forward(const BatchView& batch, const CacheView& cache, const Observer& observer);

  // Measures the stages of the passes from now on, which costs them two looks at a clock each.
  void start_profile();
  const std::vector<Stage>& stages() const { return stages_; }

  Buffer& buffer(int index) { return buffers_[index]; }
  const PackedWeight& weight(int index) const { return (*weights_)[index]; }
  const std::vector<float>& vector(int index) const { return vectors_[index]; }
  const Kernels& kernels() const { return kernels_; }
  int threads() const { return pool_.threads(); }
  std::vector<float>& scratch(int thread) { return scratch_[thread]; }
  Rounded& rounded() { return rounded_; }

 private:
  void prepare(Run run);
  void walk(int thread, std::vector<Stage>& stages, Run run, const Observer& observer);
  int take(size_t stage, int thread, int units);
  void observe(int thread, const std::vector<Stage>& stages, size_t stage, const Observer& observer);

  const std::shared_ptr<const WeightStore> weights_;
  const Kernels& kernels_;
  ThreadPool pool_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<float>> vectors_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<Stage> stages_;
  bool profiling_ = false;
  // A thread goes on when every unit of a stage is done. It waits for work that is being done, never for a thread:
  // one that the system has put aside holds up nobody, unless it has taken a unit.
  struct alignas(64) Counter {
    std::atomic<uint32_t> value{0};
  };
  // Of each stage: units done, and units taken out of each thread's share.
  std::vector<Counter> done_;
  std::vector<Counter> taken_;
  std::atomic<uint32_t> observed_{0};  // stages whose observer has returned
  std::vector<std::vector<float>> scratch_;
  Rounded rounded_;
  std::atomic<uint64_t> error_{};
};

}  // namespace isobit
