// Reductions of tensors whose channels are planes. reduce-inl.hpp says what a
// `Reduction` is.

#if defined(SYNCNORM_CPU_REDUCE_PLANES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SYNCNORM_CPU_REDUCE_PLANES_INL_HPP
#undef SYNCNORM_CPU_REDUCE_PLANES_INL_HPP
#else
#define SYNCNORM_CPU_REDUCE_PLANES_INL_HPP
#endif

#include "kernels/cpu/reduce_plan.hpp"
#include "kernels/cpu/simd-inl.hpp"

#include <algorithm>
#include <bit>

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

/// Adds n elements from `at` on to one pair of sums.
template <class Reduction, class V>
HWY_INLINE void add_run(const Reduction& r, typename Reduction::cursor at,
                        std::int64_t n, V pivot, V& s, V& q) {
  tag<typename Reduction::real> d;
  auto lanes = std::int64_t(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    r.template add<true>(d, at, i, std::size_t(lanes), pivot, s, q);
  if (i < n)
    r.template add<false>(d, at, i, std::size_t(n - i), pivot, s, q);
}

/// What comes after a place in memory: `left` elements there, then others.
template <class Cursor>
struct lookahead {
  Cursor at;
  std::int64_t left;
  Cursor next;

  lookahead operator+(std::int64_t i) const {
    return {at + i, left - i, next};
  }

  /// Where the element `distance` after the i-th is, minus i.
  [[nodiscard]] HWY_INLINE Cursor ahead(std::int64_t i,
                                        std::int64_t distance) const {
    return i + distance < left ? at + distance : next + (distance - left);
  }
};

/// As `add_run`, for runs that are worth four pairs of sums.
template <class Reduction, class Cursor, class V>
HWY_INLINE void add_long_run(const Reduction& r, const lookahead<Cursor>& from,
                             std::int64_t n, V pivot, V& s, V& q) {
  auto at = from.at;
  tag<typename Reduction::real> d;
  auto lanes = std::int64_t(hn::Lanes(d));
  auto size = std::size_t(lanes);
  auto s1 = hn::Zero(d), s2 = s1, s3 = s1;
  auto q1 = s1, q2 = s1, q3 = s1;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    r.template fetch<Reduction::planes.where>(
        from.ahead(i, Reduction::planes.distance), i, 4 * lanes);
    r.template add<true>(d, at, i, size, pivot, s, q);
    r.template add<true>(d, at, i + lanes, size, pivot, s1, q1);
    r.template add<true>(d, at, i + 2 * lanes, size, pivot, s2, q2);
    r.template add<true>(d, at, i + 3 * lanes, size, pivot, s3, q3);
  }
  s = hn::Add(hn::Add(s, s1), hn::Add(s2, s3));
  q = hn::Add(hn::Add(q, q1), hn::Add(q2, q3));
  add_run(r, at + i, n - i, pivot, s, q);
}

/// How many of `left` elements the next block of a long plane has, `before`
/// elements after the first of the slab.
inline std::int64_t next_block(std::int64_t before, std::int64_t left,
                               std::int64_t lanes) {
  if (before == 0)
    return std::min(left, block_growth);
  auto most = std::min(block_elements, 4 * sum_terms * lanes);
  auto blocks = (left + most - 1) / most;
  return std::min(left, (left / blocks + 63) / 64 * 64);
}

/// Whether a block gets a new pivot: each time that the elements before it have
/// doubled. A pivot from half of them is as good as one from all, so waiting
/// for the mean of the block before would be in vain.
inline bool takes_new_pivot(std::int64_t before, std::int64_t previous) {
  return std::bit_width(std::uint64_t(before))
         != std::bit_width(std::uint64_t(previous));
}

/// Reduces one plane; `before` elements of the channel came before it, their
/// last block `previous` elements after the first. Returns `previous` for the
/// next plane.
template <class Reduction, class Cursor>
std::int64_t
reduce_long_plane(const Reduction& r, const lookahead<Cursor>& from,
                  std::int64_t size, std::int64_t c, std::int64_t before,
                  std::int64_t previous, const slab_memory& memory) {
  using real = typename Reduction::real;
  tag<real> d;
  auto& pivot = reinterpret_cast<real*>(memory.pivots)[c];
  for (std::int64_t i = 0; i < size;) {
    auto n = next_block(before, size - i, std::int64_t(hn::Lanes(d)));
    if (before == 0 || takes_new_pivot(before, previous))
      pivot = r.pivot(memory, c, before, from.at + i);
    auto s = hn::Zero(d);
    auto q = hn::Zero(d);
    add_long_run(r, from + i, n, hn::Set(d, pivot), s, q);
    r.flush({memory.first, memory.second}, r.block(before, n), c, pivot,
            sum_of(d, s), sum_of(d, q));
    previous = before;
    before += n;
    i += n;
  }
  return previous;
}

/// The planes of a sample that belong to a task follow each other.
template <class Reduction>
lookahead<typename Reduction::cursor>
lookahead_of(const Reduction& r, const walk& w, const reduce_task& task,
             std::int64_t g, std::int64_t c) {
  return {r.plane(g, c), (task.last_channel - c) * w.inner,
          r.plane(g + 1, task.first_channel)};
}

template <class Reduction>
void reduce_long_planes(const Reduction& r, const walk& w,
                        const reduce_task& task, const slab_memory& memory) {
  std::int64_t before = 0;
  std::int64_t previous = 0;
  for (auto g = task.first_unit; g < task.last_unit; ++g) {
    std::int64_t last = 0;
    for (auto c = task.first_channel; c < task.last_channel; ++c)
      last = reduce_long_plane(r, lookahead_of(r, w, task, g, c), w.inner, c,
                               before, previous, memory);
    previous = last;
    before += w.inner;
  }
}

/// Adds the planes of samples [first, last) to a vector for each channel.
template <class Reduction>
void add_short_planes(const Reduction& r, const walk& w,
                      const reduce_task& task, std::int64_t first,
                      std::int64_t last, const slab_memory& memory) {
  using real = typename Reduction::real;
  tag<real> d;
  constexpr std::int64_t stride = 64 / sizeof(real);
  const auto* pivots = reinterpret_cast<const real*>(memory.pivots);
  auto* sums = reinterpret_cast<real*>(memory.sums);
  auto* products = reinterpret_cast<real*>(memory.products);
  for (auto g = first; g < last; ++g) {
    for (auto c = task.first_channel; c < task.last_channel; ++c) {
      auto s = g == first ? hn::Zero(d) : hn::LoadU(d, sums + c * stride);
      auto q = g == first ? hn::Zero(d) : hn::LoadU(d, products + c * stride);
      auto from = lookahead_of(r, w, task, g, c);
      r.template fetch<Reduction::planes.where>(
          from.ahead(0, Reduction::planes.distance), 0, w.inner);
      add_run(r, from.at, w.inner, hn::Set(d, pivots[c]), s, q);
      hn::StoreU(s, d, sums + c * stride);
      hn::StoreU(q, d, products + c * stride);
    }
  }
}

/// The pivot of the block that starts with a plane, `before` elements after the
/// first of the slab. A first plane too long for a pivot of one element has the
/// mean of some.
template <class Reduction>
typename Reduction::real pivot_of_planes(const Reduction& r, const walk& w,
                                         const slab_memory& memory,
                                         std::int64_t c, std::int64_t before,
                                         const typename Reduction::cursor& at) {
  using real = typename Reduction::real;
  auto result = r.pivot(memory, c, before, at);
  if constexpr (Reduction::finds_pivots)
    if (before == 0 && w.inner > block_growth) {
      tag<real> d;
      auto s = hn::Zero(d);
      auto q = hn::Zero(d);
      add_run(r, at, first_elements, hn::Set(d, result), s, q);
      result += real(sum_of(d, s)) / real(first_elements);
    }
  return result;
}

template <class Reduction>
void reduce_short_planes(const Reduction& r, const walk& w,
                         const reduce_task& task, const slab_memory& memory) {
  using real = typename Reduction::real;
  tag<real> d;
  constexpr std::int64_t stride = 64 / sizeof(real);
  auto* pivots = reinterpret_cast<real*>(memory.pivots);
  const auto* sums = reinterpret_cast<const real*>(memory.sums);
  const auto* products = reinterpret_cast<const real*>(memory.products);
  // However short a plane is, its first lane gets a term of it.
  auto lanes = std::int64_t(hn::Lanes(d));
  auto terms = (w.inner + lanes - 1) / lanes;
  auto most = std::max(sum_terms / terms, std::int64_t{1});
  for (auto g = task.first_unit; g < task.last_unit;) {
    auto done = g - task.first_unit;
    auto growth = std::max(block_growth * done, std::int64_t{1});
    auto last = std::min(g + std::min(most, growth), task.last_unit);
    for (auto c = task.first_channel; c < task.last_channel; ++c)
      pivots[c] =
          pivot_of_planes(r, w, memory, c, done * w.inner, r.plane(g, c));
    add_short_planes(r, w, task, g, last, memory);
    auto block = r.block(done * w.inner, (last - g) * w.inner);
    for (auto c = task.first_channel; c < task.last_channel; ++c)
      r.flush({memory.first, memory.second}, block, c, pivots[c],
              sum_of(d, hn::LoadU(d, sums + c * stride)),
              sum_of(d, hn::LoadU(d, products + c * stride)));
    g = last;
  }
}

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
