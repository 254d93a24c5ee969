#include "bench/memory.hpp"

#include "kernels/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/memory.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace syncnorm::bench::HWY_NAMESPACE {

namespace {

namespace hn = hwy::HWY_NAMESPACE;

float read_all(const float* from, std::size_t n) {
  hn::ScalableTag<float> d;
  auto lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(d, from + i));
    b = hn::Add(b, hn::LoadU(d, from + i + lanes));
    c = hn::Add(c, hn::LoadU(d, from + i + 2 * lanes));
    e = hn::Add(e, hn::LoadU(d, from + i + 3 * lanes));
  }
  auto sum =
      hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
  for (; i < n; ++i)
    sum += from[i];
  return sum;
}

template <bool Streamed>
void copy_all(float* to, const float* from, std::size_t n) {
  hn::ScalableTag<float> d;
  auto lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    if constexpr (Streamed)
      hn::Stream(hn::LoadU(d, from + i), d, to + i);
    else
      hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  }
  for (; i < n; ++i)
    to[i] = from[i];
  hwy::FlushStream();
}

void copy_cached(float* to, const float* from, std::size_t n) {
  copy_all<false>(to, from, n);
}

void copy_streamed(float* to, const float* from, std::size_t n) {
  copy_all<true>(to, from, n);
}

} // namespace

} // namespace syncnorm::bench::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace syncnorm::bench {

HWY_EXPORT(read_all);
HWY_EXPORT(copy_cached);
HWY_EXPORT(copy_streamed);

float read_memory(const float* from, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(read_all)(from, n);
}

void copy_memory(float* to, const float* from, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(copy_cached)(to, from, n);
}

void copy_memory_streamed(float* to, const float* from, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(copy_streamed)(to, from, n);
}

} // namespace syncnorm::bench

#endif
