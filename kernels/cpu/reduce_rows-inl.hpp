// Reductions of tensors whose channels lie side by side in rows. reduce-inl.hpp
// says what a `Reduction` is.

#if defined(SYNCNORM_CPU_REDUCE_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SYNCNORM_CPU_REDUCE_ROWS_INL_HPP
#undef SYNCNORM_CPU_REDUCE_ROWS_INL_HPP
#else
#define SYNCNORM_CPU_REDUCE_ROWS_INL_HPP
#endif

#include "kernels/cpu/reduce_plan.hpp"
#include "kernels/cpu/simd-inl.hpp"

#include <algorithm>

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

/// Adds `Rows` rows, which start at `at`, to the sums of their columns
/// [first, last), and prefetches the memory `fetch` elements further on.
template <int Rows, class Reduction>
HWY_INLINE void add_rows(const Reduction& r,
                         const typename Reduction::cursor (&at)[Rows],
                         std::int64_t first, std::int64_t last,
                         std::int64_t fetch, const slab_memory& memory) {
  using real = typename Reduction::real;
  tag<real> d;
  auto lanes = std::int64_t(hn::Lanes(d));
  const auto* pivots = reinterpret_cast<const real*>(memory.pivots);
  auto* sums = reinterpret_cast<real*>(memory.sums);
  auto* products = reinterpret_cast<real*>(memory.products);
  for (auto i = first; i < last; i += lanes) {
    for (const auto& row : at)
      r.template fetch<Reduction::rows.where>(row, i + fetch, lanes);
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

/// Vectors of columns whose sums and pivots the registers hold.
inline constexpr std::int64_t tile_vectors = 8;
inline constexpr bool has_tiles = HWY_TARGET <= HWY_AVX3;

/// Rows with more columns than this are read one by one where a core's own
/// cache does not hold them: reading several at a time, or a part of each,
/// takes longer where memory is fast.
inline constexpr std::int64_t narrow_columns = 4 * reduce_columns;

/// Inputs of at most this many bytes come from a cache, and parts of such rows
/// then take no longer than whole rows.
inline constexpr std::int64_t tiled_bytes = std::int64_t{14} << 20;
/// From a core's own cache, parts of any rows take less time than whole rows.
inline constexpr std::int64_t own_bytes = std::int64_t{1} << 20;

/// Whether rows are read several at a time, or a part of each.
template <class Reduction>
bool reads_narrow(const walk& w, std::int64_t columns) {
  if (columns <= reduce_columns)
    return true;
  auto bytes = w.size() * Reduction::element_bytes;
  if (columns <= narrow_columns)
    return !has_tiles || bytes <= tiled_bytes;
  return bytes <= own_bytes;
}

/// Adds rows, `fold` of them as one, to the sums of the columns of the tile at
/// `first`, which stay in registers.
template <class Reduction>
void add_tile(const Reduction& r, const row_range& rows, std::int64_t fold,
              std::int64_t first, const slab_memory& memory) {
  using real = typename Reduction::real;
  tag<real> d;
  auto lanes = std::int64_t(hn::Lanes(d));
  const auto* pivots = reinterpret_cast<const real*>(memory.pivots) + first;
  auto* sums = reinterpret_cast<real*>(memory.sums) + first;
  auto* products = reinterpret_cast<real*>(memory.products) + first;
  vec<real> pivot[tile_vectors];
  vec<real> s[tile_vectors];
  vec<real> q[tile_vectors];
  for (std::int64_t k = 0; k < tile_vectors; ++k) {
    pivot[k] = hn::LoadU(d, pivots + k * lanes);
    s[k] = hn::LoadU(d, sums + k * lanes);
    q[k] = hn::LoadU(d, products + k * lanes);
  }
  for (auto i = rows.first; i < rows.last; i += fold) {
    auto at = r.row(rows.group, i);
    r.template fetch<Reduction::tiles.where>(
        at, first + Reduction::tiles.distance, tile_vectors * lanes);
    for (std::int64_t k = 0; k < tile_vectors; ++k)
      r.template add<true>(d, at, first + k * lanes, std::size_t(lanes),
                           pivot[k], s[k], q[k]);
  }
  for (std::int64_t k = 0; k < tile_vectors; ++k) {
    hn::StoreU(s[k], d, sums + k * lanes);
    hn::StoreU(q[k], d, products + k * lanes);
  }
}

/// Adds columns [first, last) of a block of rows, a multiple of `fold` rows.
template <class Reduction>
void add_narrow_rows(const Reduction& r, const row_range& rows,
                     std::int64_t fold, std::int64_t first, std::int64_t last,
                     std::int64_t fetch, const slab_memory& memory) {
  if constexpr (has_tiles) {
    using real = typename Reduction::real;
    auto tile = tile_vectors * std::int64_t(hn::Lanes(tag<real>{}));
    for (; first + tile <= last; first += tile)
      add_tile(r, rows, fold, first, memory);
    if (first == last)
      return;
  }
  auto row = [&](std::int64_t i) { return r.row(rows.group, i); };
  auto i = rows.first;
  for (; i + 4 * fold <= rows.last; i += 4 * fold)
    add_rows<4>(r,
                {row(i), row(i + fold), row(i + 2 * fold), row(i + 3 * fold)},
                first, last, fetch, memory);
  for (; i < rows.last; i += fold)
    add_rows<1>(r, {row(i)}, first, last, fetch, memory);
}

/// Adds rows to the sums of their columns, `fold` rows as one.
template <class Reduction>
void add_block_of_rows(const Reduction& r, const walk& w, const row_range& rows,
                       std::int64_t fold, const reduce_task& task,
                       const slab_memory& memory) {
  auto channels = w.channels;
  auto first = task.first_channel;
  auto last = fold > 1 ? fold * channels : task.last_channel;
  auto g = rows.group;
  // The next four rows, or what is further away.
  auto fetch = std::max(4 * fold * channels, Reduction::rows.distance);
  auto whole = rows.first + (rows.last - rows.first) / fold * fold;
  if (reads_narrow<Reduction>(w, last - first))
    add_narrow_rows(r, {g, rows.first, whole}, fold, first, last, fetch,
                    memory);
  else
    for (auto i = rows.first; i < whole; i += fold)
      add_rows<1>(r, {r.row(g, i)}, first, last, fetch, memory);
  if (whole < rows.last)
    add_rows<1>(r, {r.row(g, whole)}, first, (rows.last - whole) * channels,
                fetch, memory);
}

/// Sets the pivots of all columns for the block that starts at the row `at`,
/// and their sums to zero.
template <class Reduction>
void begin_rows(const Reduction& r, const typename Reduction::cursor& at,
                std::int64_t before, std::int64_t fold, std::int64_t channels,
                const reduce_task& task, const slab_memory& memory) {
  using real = typename Reduction::real;
  auto* pivots = reinterpret_cast<real*>(memory.pivots);
  auto* sums = reinterpret_cast<real*>(memory.sums);
  auto* products = reinterpret_cast<real*>(memory.products);
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
  // Without aliases, the loops vectorize over channels.
  double* HWY_RESTRICT first = memory.first;
  double* HWY_RESTRICT second = memory.second;
  if (fold == 1) {
    for (auto c = task.first_channel; c < task.last_channel; ++c)
      r.flush({first, second}, block, c, pivots[c], double(sums[c]),
              double(products[c]));
    return;
  }
  double s[reduce_columns];
  double q[reduce_columns];
  std::fill_n(s, channels, 0.0);
  std::fill_n(q, channels, 0.0);
  for (std::int64_t k = 0; k < fold; ++k)
    for (std::int64_t c = 0; c < channels; ++c) {
      s[c] += double(sums[k * channels + c]);
      q[c] += double(products[k * channels + c]);
    }
  for (auto c = task.first_channel; c < task.last_channel; ++c)
    r.flush({first, second}, block, c, pivots[c], s[c], q[c]);
}

/// Adds rows [first, last), of any number of groups, to the sums of their
/// columns. Stops before `last` where a column would have more than
/// `sum_terms`: each group starts in the first column again. Returns where it
/// stops.
template <class Reduction>
std::int64_t add_rows_of_groups(const Reduction& r, const walk& w,
                                std::int64_t first, std::int64_t last,
                                std::int64_t fold, const reduce_task& task,
                                const slab_memory& memory) {
  auto unit = first;
  for (std::int64_t left = sum_terms; unit < last && left > 0;) {
    auto g = unit / w.inner;
    auto end = std::min({unit + left * fold, last, (g + 1) * w.inner});
    add_block_of_rows(r, w, {g, unit - g * w.inner, end - g * w.inner}, fold,
                      task, memory);
    left -= (end - unit + fold - 1) / fold;
    unit = end;
  }
  return unit;
}

template <class Reduction>
void reduce_rows(const Reduction& r, const walk& w, std::int64_t fold,
                 const reduce_task& task, const slab_memory& memory) {
  std::int64_t done = 0;
  for (auto unit = task.first_unit; unit < task.last_unit;) {
    auto most =
        done == 0 ? first_rows : std::min(sum_terms * fold, row_growth * done);
    begin_rows(r, r.row(unit / w.inner, unit % w.inner), done, fold, w.channels,
               task, memory);
    auto end = add_rows_of_groups(
        r, w, unit, std::min(unit + most, task.last_unit), fold, task, memory);
    flush_rows(r, done, end - unit, fold, w.channels, task, memory);
    done += end - unit;
    unit = end;
  }
}

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
