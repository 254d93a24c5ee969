#include "tests/pipeline/live_memory.hpp"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// The sanitizers bring their own.
#if defined(SYNCNORM_SANITIZED)

namespace pipeline::test {

const bool counts_live_memory = false;

std::int64_t live_memory() {
  return 0;
}

} // namespace pipeline::test

#else

namespace {

std::atomic<std::int64_t> live = 0;

} // namespace

void* operator new(std::size_t size) {
  auto* block = std::malloc(size);
  if (block == nullptr)
    throw std::bad_alloc{};
  live += static_cast<std::int64_t>(malloc_usable_size(block));
  return block;
}

// The memory of tensors is aligned.
void* operator new(std::size_t size, std::align_val_t alignment) {
  auto unit = static_cast<std::size_t>(alignment);
  auto* block = std::aligned_alloc(unit, (size + unit - 1) / unit * unit);
  if (block == nullptr)
    throw std::bad_alloc{};
  live += static_cast<std::int64_t>(malloc_usable_size(block));
  return block;
}

void operator delete(void* block) noexcept {
  live -= static_cast<std::int64_t>(malloc_usable_size(block));
  std::free(block);
}

void operator delete(void* block, std::size_t) noexcept {
  operator delete(block);
}

void operator delete(void* block, std::align_val_t) noexcept {
  operator delete(block);
}

void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  operator delete(block);
}

namespace pipeline::test {

const bool counts_live_memory = true;

std::int64_t live_memory() {
  return live;
}

} // namespace pipeline::test

#endif
