// Memory that is taken once and kept: large pages where the system has them, and only what is written is really taken.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace isobit {

class Arena {
 public:
  // `bytes` bytes at a multiple of 64, all zero. They live as long as a pointer into the arena's memory does.
  std::shared_ptr<uint8_t[]> take(size_t bytes);

 private:
  std::shared_ptr<uint8_t[]> slab_;
  size_t left_ = 0;  // bytes at the end of the slab
  size_t size_ = 0;
};

// Lets go of the pages of a read-only map of a file. They come back from the system's file cache when they are read
// again. Never for any other memory: its contents would be lost.
void release_pages(std::span<const uint8_t> mapped);

}  // namespace isobit
