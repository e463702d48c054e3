// A model's matrices in the layout of the kernels.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "arena.h"
#include "isobit/kernels.h"

namespace isobit {

struct PackedWeight {
  WeightFormat format;
  int rows;
  int columns;
  int tiles;  // 0 where the weight serves embed only
  size_t tile_bytes;
  std::shared_ptr<uint8_t[]> data;  // null where the weight is not packed
  std::span<const uint8_t> raw;     // the file's bytes; kept alive by the caller
  bool mapped;                      // raw lies in a read-only map of a file
};

// A model's matrices, packed once. The layout is the same for every instruction set, thread count and setting, so
// that several executors can share a store.
class WeightStore {
 public:
  // Called by the thread that packs, with the file's bytes done and in all. What it throws ends the packing.
  using Progress = std::function<void(size_t done, size_t total)>;

  explicit WeightStore(int threads) : threads_(threads) {}
  // Returns the matrix's index. With `pack` false the weight serves embed only, which reads the file's bytes.
  int add(std::span<const uint8_t> raw, WeightFormat format, int rows, int columns, bool pack, bool mapped);
  // Packs what was added since the last call. Pages of the file that are done with are released on the way.
  void pack(const Progress& progress);
  const PackedWeight& operator[](int index) const { return weights_[index]; }
  // Memory that packed weights take.
  size_t bytes() const;

 private:
  const int threads_;
  Arena arena_;
  std::vector<PackedWeight> weights_;
};

}  // namespace isobit
