#include "kernels/cpu/cpu_kind.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace syncnorm::cpu {

namespace {

#if defined(__x86_64__) || defined(__i386__)
/// AMD's number of a microarchitecture; 0 for other makers' CPUs.
unsigned amd_family() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_is("amd") || __get_cpuid(1, &a, &b, &c, &d) == 0)
    return 0;
  return (a >> 8 & 0xf) + (a >> 20 & 0xff);
}

cpu_kind detect() {
  // In its family, only Zen 4 has AVX-512, and only AVX-512 kernels ask for
  // Zen 4.
  switch (amd_family()) {
  case 0x19:
    return cpu_kind::zen4;
  case 0x1a:
    return cpu_kind::zen5;
  default:
    return cpu_kind::any;
  }
}
#else
cpu_kind detect() {
  return cpu_kind::any;
}
#endif

} // namespace

cpu_kind& this_cpu() {
  static cpu_kind kind = detect();
  return kind;
}

} // namespace syncnorm::cpu
