// The walk of a reduction that makes two sums for each channel:
// batch_moments, sum(x - pivot) and sum((x - pivot)^2), and backward_reduce,
// sum(dy) and sum(dy * (x - mean)). Memory is read once, in its order. Blocks
// of a channel are summed up in the type of calculation and then given to the
// reduction's results, in float64.
//
// A `Reduction` has:
//   real               the type of calculation
//   cursor             where in the inputs a run of elements starts
//   plane(g, c), row(g, r)         cursors
//   add<Full>(d, at, i, n, pivot, s, q)  adds the elements [i, i + n) behind
//                      `at` to the sums; n is a whole vector if Full
//   pivot(results, c, before, at)  the pivot for the block that starts at `at`,
//                      `before` elements after the first of the slab
//   block(before, n)   what `flush` needs to know of a block of n elements
//   flush(results, block, c, pivot, s, q)

#if defined(SYNCNORM_CPU_REDUCE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SYNCNORM_CPU_REDUCE_INL_HPP
#undef SYNCNORM_CPU_REDUCE_INL_HPP
#else
#define SYNCNORM_CPU_REDUCE_INL_HPP
#endif

#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/reduce_plan.hpp"
#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

/// Adds n elements behind `at` to one pair of sums.
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

/// As `add_run`, for runs that are worth four pairs of sums.
template <class Reduction, class V>
HWY_INLINE void add_long_run(const Reduction& r, typename Reduction::cursor at,
                             std::int64_t n, V pivot, V& s, V& q) {
  tag<typename Reduction::real> d;
  auto lanes = std::int64_t(hn::Lanes(d));
  auto size = std::size_t(lanes);
  auto s1 = hn::Zero(d), s2 = s1, s3 = s1;
  auto q1 = s1, q2 = s1, q3 = s1;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
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

/// Whether a block gets a new pivot: each time that the elements before it
/// have doubled. A pivot from half of them is as good as one from all, and a
/// block that waits for the mean of the block before it, waits in vain.
inline bool takes_new_pivot(std::int64_t before, std::int64_t previous) {
  return std::bit_width(std::uint64_t(before))
         != std::bit_width(std::uint64_t(previous));
}

/// Reduces one plane; `before` elements of the channel came before it, the
/// last block of them `previous` elements after the first. Returns the latter
/// for the next plane.
template <class Reduction>
std::int64_t
reduce_long_plane(const Reduction& r, typename Reduction::cursor at,
                  std::int64_t size, std::int64_t c, std::int64_t before,
                  std::int64_t previous, const slab_memory& memory) {
  using real = typename Reduction::real;
  tag<real> d;
  auto& pivot = reinterpret_cast<real*>(memory.pivots)[c];
  for (std::int64_t i = 0; i < size;) {
    auto n = next_block(before, size - i, std::int64_t(hn::Lanes(d)));
    if (before == 0 || takes_new_pivot(before, previous))
      pivot = r.pivot(memory, c, before, at + i);
    auto s = hn::Zero(d);
    auto q = hn::Zero(d);
    add_long_run(r, at + i, n, hn::Set(d, pivot), s, q);
    r.flush(memory, r.block(before, n), c, pivot, sum_of(d, s), sum_of(d, q));
    previous = before;
    before += n;
    i += n;
  }
  return previous;
}

template <class Reduction>
void reduce_long_planes(const Reduction& r, const walk& w,
                        const reduce_task& task, const slab_memory& memory) {
  std::int64_t before = 0;
  std::int64_t previous = 0;
  for (auto g = task.first_unit; g < task.last_unit; ++g) {
    std::int64_t last = 0;
    for (auto c = task.first_channel; c < task.last_channel; ++c)
      last = reduce_long_plane(r, r.plane(g, c), w.inner, c, before, previous,
                               memory);
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
      add_run(r, r.plane(g, c), w.inner, hn::Set(d, pivots[c]), s, q);
      hn::StoreU(s, d, sums + c * stride);
      hn::StoreU(q, d, products + c * stride);
    }
  }
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
  auto terms = sum_terms * std::int64_t(hn::Lanes(d));
  auto most = std::max(terms / w.inner, std::int64_t{1});
  for (auto g = task.first_unit; g < task.last_unit;) {
    auto done = g - task.first_unit;
    auto growth = std::max(block_growth * done, std::int64_t{1});
    auto last = std::min(g + std::min(most, growth), task.last_unit);
    for (auto c = task.first_channel; c < task.last_channel; ++c)
      pivots[c] = r.pivot(memory, c, done * w.inner, r.plane(g, c));
    add_short_planes(r, w, task, g, last, memory);
    auto block = r.block(done * w.inner, (last - g) * w.inner);
    for (auto c = task.first_channel; c < task.last_channel; ++c)
      r.flush(memory, block, c, pivots[c],
              sum_of(d, hn::LoadU(d, sums + c * stride)),
              sum_of(d, hn::LoadU(d, products + c * stride)));
    g = last;
  }
}

/// Adds `Rows` rows, which start at `at`, to the sums of their columns
/// [first, last).
template <int Rows, class Reduction>
HWY_INLINE void
add_rows(const Reduction& r, const typename Reduction::cursor (&at)[Rows],
         std::int64_t first, std::int64_t last, const slab_memory& memory) {
  using real = typename Reduction::real;
  tag<real> d;
  auto lanes = std::int64_t(hn::Lanes(d));
  const auto* pivots = reinterpret_cast<const real*>(memory.pivots);
  auto* sums = reinterpret_cast<real*>(memory.sums);
  auto* products = reinterpret_cast<real*>(memory.products);
  for (auto i = first; i < last; i += lanes) {
    auto pivot = hn::LoadU(d, pivots + i);
    auto s = hn::LoadU(d, sums + i);
    auto q = hn::LoadU(d, products + i);
    if (i + lanes <= last)
      for (const auto& row : at)
        r.template add<true>(d, row, i, std::size_t(lanes), pivot, s, q);
    else
      for (const auto& row : at)
        r.template add<false>(d, row, i, std::size_t(last - i), pivot, s, q);
    hn::StoreU(s, d, sums + i);
    hn::StoreU(q, d, products + i);
  }
}

/// A run of rows of one group.
struct row_range {
  std::int64_t group = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// Adds rows to the sums of their columns, `fold` rows as one.
template <class Reduction>
void add_block_of_rows(const Reduction& r, const row_range& rows,
                       std::int64_t fold, std::int64_t channels,
                       const reduce_task& task, const slab_memory& memory) {
  auto first = task.first_channel;
  auto last = fold > 1 ? fold * channels : task.last_channel;
  auto g = rows.group;
  auto i = rows.first;
  for (; i + 4 * fold <= rows.last; i += 4 * fold)
    add_rows<4>(r,
                {r.row(g, i), r.row(g, i + fold), r.row(g, i + 2 * fold),
                 r.row(g, i + 3 * fold)},
                first, last, memory);
  for (; i + fold <= rows.last; i += fold)
    add_rows<1>(r, {r.row(g, i)}, first, last, memory);
  if (i < rows.last)
    add_rows<1>(r, {r.row(g, i)}, first, (rows.last - i) * channels, memory);
}

/// Sets the pivots of all columns, and their sums to zero.
template <class Reduction>
void begin_rows(const Reduction& r, const row_range& rows, std::int64_t before,
                std::int64_t fold, std::int64_t channels,
                const reduce_task& task, const slab_memory& memory) {
  using real = typename Reduction::real;
  auto* pivots = reinterpret_cast<real*>(memory.pivots);
  auto* sums = reinterpret_cast<real*>(memory.sums);
  auto* products = reinterpret_cast<real*>(memory.products);
  auto at = r.row(rows.group, rows.first);
  auto first = task.first_channel;
  auto last = task.last_channel;
  for (auto c = first; c < last; ++c)
    pivots[c] = r.pivot(memory, c, before, at + c);
  for (std::int64_t k = 1; k < fold; ++k)
    std::copy(pivots, pivots + channels, pivots + k * channels);
  auto columns = fold > 1 ? fold * channels : last;
  std::fill(sums + first, sums + columns, real(0));
  std::fill(products + first, products + columns, real(0));
}

template <class Reduction>
void flush_rows(const Reduction& r, std::int64_t before, std::int64_t n,
                std::int64_t fold, std::int64_t channels,
                const reduce_task& task, const slab_memory& memory) {
  using real = typename Reduction::real;
  const auto* pivots = reinterpret_cast<const real*>(memory.pivots);
  const auto* sums = reinterpret_cast<const real*>(memory.sums);
  const auto* products = reinterpret_cast<const real*>(memory.products);
  auto block = r.block(before, n);
  for (auto c = task.first_channel; c < task.last_channel; ++c) {
    double s = 0;
    double q = 0;
    for (std::int64_t k = 0; k < fold; ++k) {
      s += double(sums[k * channels + c]);
      q += double(products[k * channels + c]);
    }
    r.flush(memory, block, c, pivots[c], s, q);
  }
}

template <class Reduction>
void reduce_rows(const Reduction& r, const walk& w, std::int64_t fold,
                 const reduce_task& task, const slab_memory& memory) {
  std::int64_t done = 0;
  for (auto unit = task.first_unit; unit < task.last_unit;) {
    auto g = unit / w.inner;
    auto most = done == 0 ? std::max(fold, std::int64_t{4})
                          : std::min(sum_terms * fold, block_growth * done);
    auto end = std::min({unit + most, task.last_unit, (g + 1) * w.inner});
    row_range rows{g, unit - g * w.inner, end - g * w.inner};
    begin_rows(r, rows, done, fold, w.channels, task, memory);
    add_block_of_rows(r, rows, fold, w.channels, task, memory);
    flush_rows(r, done, end - unit, fold, w.channels, task, memory);
    done += end - unit;
    unit = end;
  }
}

/// Reduces all slabs. Their results are in the workspace then.
template <class Reduction>
void reduce(const execution& run, const Reduction& r, const walk& w,
            const reduce_plan& plan, const slab_layout& layout,
            void* workspace) {
  reduce_tasks tasks{w, plan, run.split == nullptr ? 1 : run.split->parts};
  for_ranges(run, tasks.size(), [&](std::int64_t first, std::int64_t last) {
    for (auto i = first; i < last; ++i) {
      auto task = tasks[i];
      auto memory = layout.slab(workspace, task.slab);
      auto width = std::size_t(task.last_channel - task.first_channel);
      std::fill_n(memory.first + task.first_channel, width, 0.0);
      std::fill_n(memory.second + task.first_channel, width, 0.0);
      if (w.rows)
        reduce_rows(r, w, plan.fold, task, memory);
      else if (w.inner < short_plane)
        reduce_short_planes(r, w, task, memory);
      else
        reduce_long_planes(r, w, task, memory);
    }
  });
}

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
