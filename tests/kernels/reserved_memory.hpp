#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstddef>

namespace syncnorm::test {

/// Address space whose pages are zero, and take up memory only once written to.
class reserved_memory {
public:
  explicit reserved_memory(std::size_t bytes) : bytes_{bytes} {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(data_ != MAP_FAILED);
  }
  reserved_memory(const reserved_memory&) = delete;
  reserved_memory& operator=(const reserved_memory&) = delete;
  ~reserved_memory() {
    munmap(data_, bytes_);
  }

  /// Uses pages of 2 MiB, where the system has them: all of the memory will be
  /// written.
  void use_huge_pages() {
#ifdef MADV_HUGEPAGE
    madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
  }

  [[nodiscard]] std::byte* data() noexcept {
    return static_cast<std::byte*>(data_);
  }

private:
  std::size_t bytes_;
  void* data_;
};

} // namespace syncnorm::test
