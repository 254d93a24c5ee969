#include "trainer/run/this_machine.hpp"

#include <malloc.h>
#include <sched.h>

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

void stay_on(int core) noexcept {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

} // namespace syncnorm::train
