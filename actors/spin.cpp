#include "syncnorm/detail/spin.hpp"

#include <chrono>
#include <thread>

#ifdef __linux__
#include <sched.h>
#include <unistd.h>
#endif

namespace syncnorm::detail {

namespace {

std::atomic<int> spinning{0};

int spare_cores() noexcept {
  static const int spare = usable_cores() - 1;
  return spare;
}

/// Permission to spin for a short while. It is given only while this process
/// has fewer spinning threads than spare cores: one of the cores that it may
/// use is left to the thread that the others wait for, so on one core nobody
/// spins. Where each replica has a core, a waiting one keeps no other from its
/// core.
class spin_permit {
public:
  spin_permit() noexcept
      : granted_{spinning.fetch_add(1, std::memory_order_relaxed)
                 < spare_cores()} {}

  ~spin_permit() {
    spinning.fetch_sub(1, std::memory_order_relaxed);
  }

  spin_permit(const spin_permit&) = delete;
  spin_permit& operator=(const spin_permit&) = delete;

  explicit operator bool() const noexcept {
    return granted_;
  }

private:
  bool granted_;
};

/// How long `spin_until` looks before it gives up. Copies that share a machine
/// reach a round some 100 microseconds apart, processes some more, and a core
/// that has gone to sleep takes as long to wake up.
constexpr std::chrono::microseconds spin_time{500};
/// How often it looks, some microseconds, before it lets others run.
constexpr int spin_attempts = 50;

} // namespace

int usable_cores() noexcept {
#ifdef __linux__
  // Those of the process, that is, of its first thread: the calling thread may
  // have been given a core of its own.
  cpu_set_t allowed;
  if (sched_getaffinity(getpid(), sizeof allowed, &allowed) == 0)
    return CPU_COUNT(&allowed);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
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
