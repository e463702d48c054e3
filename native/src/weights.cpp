#include "weights.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "blocks.h"
#include "pack.h"
#include "thread_pool.h"

namespace isobit {

namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// Some tiles of one weight: what a thread packs at a time.
struct Piece {
  const PackedWeight* weight;
  int first;
  int last;

  std::span<const uint8_t> raw() const {
    const size_t tile = kTileRows * row_bytes(weight->format, weight->columns);
    const size_t begin = first * tile;
    return weight->raw.subspan(begin, std::min(weight->raw.size(), last * tile) - begin);
  }
  void pack() const {
    const PackedWeight& w = *weight;
    for (int tile = first; tile < last; ++tile) {
      pack_tile(w.format, w.raw.data(), w.rows, w.columns, tile, w.data.get() + tile * w.tile_bytes);
    }
    // The system maps some pages around each one that is read, so that the last piece takes the whole matrix back.
    if (w.mapped) release_pages(last == w.tiles ? w.raw : raw());
  }
};

}  // namespace

int WeightStore::add(std::span<const uint8_t> raw, WeightFormat format, int rows, int columns, bool pack,
                     bool mapped) {
  const int tiles = pack ? (rows + kTileRows - 1) / kTileRows : 0;
  weights_.push_back(
      {format, rows, columns, tiles, packed_tile_bytes(format, columns), nullptr, raw, mapped});
  return static_cast<int>(weights_.size()) - 1;
}

void WeightStore::pack(const Progress& progress) {
  std::vector<Piece> pieces;
  size_t total = 0;
  for (auto& w : weights_) {
    if (w.tiles == 0 || w.data != nullptr) continue;
    w.data = arena_.take(w.tile_bytes * w.tiles);
    total += w.raw.size();
    const int step = static_cast<int>(std::max<size_t>(1, kPieceBytes / w.tile_bytes));
    for (int tile = 0; tile < w.tiles; tile += step)
      pieces.push_back({&w, tile, std::min(tile + step, w.tiles)});
  }
  if (pieces.empty()) return;
  std::atomic<size_t> next{0}, done{0};
  std::exception_ptr failure;
  ThreadPool pool(threads_);  // packing is rare: no threads are kept for it
  pool.run([&](int thread) {
    for (size_t i; (i = next.fetch_add(1)) < pieces.size();) {
      pieces[i].pack();
      const size_t bytes = done.fetch_add(pieces[i].raw().size()) + pieces[i].raw().size();
      if (thread != 0 || !progress) continue;
      try {
        progress(bytes, total);
      } catch (...) {
        failure = std::current_exception();
        next.store(pieces.size());
      }
    }
  });
  if (failure) std::rethrow_exception(failure);
}

size_t WeightStore::bytes() const {
  size_t bytes = 0;
  for (const auto& w : weights_) bytes += w.data ? w.tile_bytes * w.tiles : 0;
  return bytes;
}

}  // namespace isobit
