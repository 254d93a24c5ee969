#include "syncnorm/detail/spin.hpp"

#include <chrono>
#include <thread>

namespace syncnorm::detail {

namespace {

std::atomic<int> spinning{0};

int spare_cores() noexcept {
  static const int spare =
      static_cast<int>(std::thread::hardware_concurrency()) - 2;
  return spare;
}

} // namespace

spin_permit::spin_permit() noexcept
    : granted_{spinning.fetch_add(1, std::memory_order_relaxed)
               < spare_cores()} {}

spin_permit::~spin_permit() {
  spinning.fetch_sub(1, std::memory_order_relaxed);
}

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

bool spin_until(const std::atomic<std::uint32_t>& x,
                std::uint32_t wanted) noexcept {
  if (x.load(std::memory_order_acquire) == wanted)
    return true;
  spin_permit permit;
  if (!permit)
    return false;
  using clock = std::chrono::steady_clock;
  for (auto end = clock::now() + spin_time; clock::now() < end;
       std::this_thread::yield())
    for (int i = 0; i < spin_attempts; ++i) {
      relax();
      if (x.load(std::memory_order_acquire) == wanted)
        return true;
    }
  return false;
}

} // namespace syncnorm::detail
