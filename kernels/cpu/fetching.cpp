#include "kernels/cpu/fetching.hpp"

namespace syncnorm::cpu {

namespace {

cpu_kind detect() {
#if defined(__x86_64__) || defined(__i386__)
  // Of this family, Zen 4 alone has the AVX-512 whose kernels ask.
  if (__builtin_cpu_is("amdfam19h"))
    return cpu_kind::zen4;
#endif
  return cpu_kind::any;
}

} // namespace

cpu_kind& this_cpu() {
  static cpu_kind kind = detect();
  return kind;
}

} // namespace syncnorm::cpu
