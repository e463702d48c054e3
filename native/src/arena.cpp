#include "arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace isobit {

namespace {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kSlab = 32 * kLargePage;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Fresh memory that begins at a large page.
std::shared_ptr<uint8_t[]> map_slab(size_t bytes) {
  const size_t mapped = bytes + kLargePage;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  const std::shared_ptr<void> owner(p, [mapped](void* q) { munmap(q, mapped); });
  const size_t skip = round_up(reinterpret_cast<uintptr_t>(p), kLargePage) - reinterpret_cast<uintptr_t>(p);
  auto* first = static_cast<uint8_t*>(p) + skip;
  madvise(first, bytes, MADV_HUGEPAGE);  // no error if the system has none: small pages serve as well
  return {owner, first};
}

}  // namespace

std::shared_ptr<uint8_t[]> Arena::take(size_t bytes) {
  bytes = round_up(bytes, 64);
  if (bytes > left_) {
    size_ = left_ = round_up(std::max(bytes, kSlab), kLargePage);
    slab_ = map_slab(size_);
  }
  uint8_t* p = slab_.get() + (size_ - left_);
  left_ -= bytes;
  return {slab_, p};
}

void release_pages(std::span<const uint8_t> mapped) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(mapped.data()) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(mapped.data() + mapped.size());
  // A matter of memory only; a system that refuses keeps the pages.
  if (!mapped.empty()) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace isobit
