#include "trainer/run/this_machine.hpp"

#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

namespace syncnorm::train {

void keep_freed_memory() noexcept {
#ifdef __GLIBC__
  // The most that mallopt takes: half of what one heap of a thread may have.
  constexpr int megabytes32 = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, megabytes32);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, megabytes32);
#endif
}

std::vector<int> usable_cores() {
  std::vector<int> result;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return result;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed))
      result.push_back(core);
  return result;
}

std::vector<int> choose_cores(std::size_t replicas,
                              const std::vector<int>& cores) {
  if (replicas == cores.size() && replicas > 1)
    return cores;
  return {};
}

void stay_on(const std::vector<int>& cores) noexcept {
  cpu_set_t some;
  CPU_ZERO(&some);
  for (auto core : cores)
    CPU_SET(core, &some);
  sched_setaffinity(0, sizeof some, &some);
}

void give_way() noexcept {
#ifdef SYS_sched_setattr
  // What the kernel calls sched_attr; not all C libraries know it.
  struct {
    std::uint32_t size = 48;
    std::uint32_t policy = SCHED_OTHER;
    std::uint64_t flags = 0;
    std::int32_t nice = getpriority(PRIO_PROCESS, 0);
    std::uint32_t priority = 0;
    std::uint64_t slice = 20'000'000; // nanoseconds
    std::uint64_t deadline = 0;
    std::uint64_t period = 0;
  } wish;
  syscall(SYS_sched_setattr, 0, &wish, 0);
#endif
}

} // namespace syncnorm::train
