#pragma once

// Memory between pages that nobody may touch: a read or write beside it raises
// a signal, in the test case that doctest names.

#include <cstddef>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

namespace syncnorm::test {

/// Which side of the memory is fenced without a gap.
enum class fenced_side { behind, before };

/// Some pages, each at two addresses: at one they can be written, at the other
/// only read. At both they lie between pages that nobody may touch.
class fenced_memory {
public:
  explicit fenced_memory(std::size_t bytes)
      : page_{std::size_t(sysconf(_SC_PAGESIZE))},
        size_{(bytes + page_ - 1) / page_ * page_},
        file_{memfd_create("fenced_memory", 0)} {
    require(file_ != -1 && ftruncate(file_, off_t(size_)) == 0);
    written_ = map(PROT_READ | PROT_WRITE);
    read_ = map(PROT_READ);
  }

  fenced_memory(const fenced_memory&) = delete;
  fenced_memory& operator=(const fenced_memory&) = delete;

  ~fenced_memory() {
    for (auto* begin : {written_, read_})
      munmap(begin - page_, size_ + 2 * page_);
    close(file_);
  }

  [[nodiscard]] std::size_t size() const {
    return size_;
  }

  /// Where `bytes` bytes begin that touch the fence on that side, apart from
  /// the gap that `alignment` leaves behind them.
  [[nodiscard]] std::size_t place(std::size_t bytes, std::size_t alignment,
                                  fenced_side side) const {
    if (side == fenced_side::before)
      return 0;
    return (size_ - bytes) / alignment * alignment;
  }

  [[nodiscard]] std::byte* to_write(std::size_t offset) const {
    return written_ + offset;
  }

  [[nodiscard]] const std::byte* to_read(std::size_t offset) const {
    return read_ + offset;
  }

private:
  static void require(bool done) {
    if (!done)
      throw std::bad_alloc{};
  }

  [[nodiscard]] std::byte* map(int protection) const {
    auto* all = mmap(nullptr, size_ + 2 * page_, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(all != MAP_FAILED);
    auto* begin = static_cast<std::byte*>(all) + page_;
    require(mmap(begin, size_, protection, MAP_SHARED | MAP_FIXED, file_, 0)
            != MAP_FAILED);
    return begin;
  }

  std::size_t page_;
  std::size_t size_;
  int file_;
  std::byte* written_ = nullptr;
  std::byte* read_ = nullptr;
};

} // namespace syncnorm::test
