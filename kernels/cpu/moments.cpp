#include "kernels/backend.hpp"
#include "kernels/cpu/targets.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/math.hpp"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/moments.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/reduce-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

namespace {

/// Sums of x - pivot and its square; results are the mean minus the channel's
/// origin, and M2. The pivot is the channel's first element, or the mean of
/// some, then the mean of all blocks before.
template <class T, class Cpu>
struct moments_reduction {
  using real = compute_t<T>;
  using cursor = const T*;

  static constexpr bool finds_pivots = true;

  static constexpr bool has_origin = std::is_same_v<T, double>;

  static constexpr std::int64_t element_bytes = sizeof(T);

  static constexpr fetching planes = Cpu::planes;
  static constexpr fetching rows = Cpu::rows;
  static constexpr fetching tiles = Cpu::tiles;

  struct block_weights {
    double count = 0;
    bool first = true;
    math::merge_weights<double> merge;
  };

  cursor x;
  strides step;
  /// From the first element of a channel to that of the next.
  std::int64_t channel_step;

  /// What means are kept relative to: in float64, which has no wider type, the
  /// first element, since a mean far beyond the deviation would otherwise take
  /// digits from the distances that Chan's update squares; else 0.
  [[nodiscard]] double origin(std::int64_t c) const {
    if constexpr (has_origin)
      return x[c * channel_step];
    else
      return 0;
  }

  [[nodiscard]] cursor plane(std::int64_t g, std::int64_t c) const {
    return x + g * step.group + c * step.inner;
  }

  [[nodiscard]] cursor row(std::int64_t g, std::int64_t r) const {
    return x + g * step.group + r * step.inner;
  }

  template <bool Full>
  HWY_INLINE void add(tag<real> d, cursor at, std::int64_t i, std::size_t n,
                      vec<real> pivot, vec<real>& s, vec<real>& q) const {
    if constexpr (Full)
      add_shifted(load(d, at + i), pivot, s, q);
    else
      add_shifted(
          hn::IfThenElse(hn::FirstN(d, n), load_first(d, at + i, n), pivot),
          pivot, s, q);
  }

  template <fetch_into Where>
  HWY_INLINE void fetch(cursor at, std::int64_t i, std::int64_t n) const {
    prefetch<Where>(at + i, n);
  }

  [[nodiscard]] real pivot(const slab_memory& results, std::int64_t c,
                           std::int64_t before, cursor at) const {
    if (before == 0)
      return to_real(*at);
    if constexpr (has_origin)
      return results.first[c] + origin(c);
    else
      return real(results.first[c]);
  }

  [[nodiscard]] block_weights block(std::int64_t before, std::int64_t n) const {
    return {double(n), before == 0, math::weights_of_merge<double>(before, n)};
  }

  void flush(const channel_results& results, const block_weights& block,
             std::int64_t c, real pivot, double s, double q) const {
    auto part = math::from_shifted_sums<double>(double(pivot) - origin(c), s, q,
                                                block.count);
    math::mean_m2<double> whole{results.first[c], results.second[c]};
    // Weights alone would not do: before the first block, a mean of 0 would
    // turn infinity into NaN.
    whole = block.first ? part : math::merged(whole, part, block.merge);
    results.first[c] = whole.mean;
    results.second[c] = whole.m2;
  }

  static real to_real(T value) {
    if constexpr (sizeof(T) == 2)
      return to_float(value);
    else
      return value;
  }
};

/// Merges the moments of all slabs into those of the first, along the tree of
/// `merge_moments`.
void merge_slabs(const reduce_tasks& tasks, const slab_layout& layout,
                 void* workspace, std::int64_t slabs, std::int64_t channels) {
  std::int64_t counts[max_slabs];
  for (std::int64_t i = 0; i < slabs; ++i)
    counts[i] = tasks.slab_count(i);
  for (std::int64_t distance = 1; distance < slabs; distance *= 2)
    for (std::int64_t i = 0; i + distance < slabs; i += 2 * distance) {
      auto a = layout.slab(workspace, i);
      auto b = layout.slab(workspace, i + distance);
      auto weights =
          math::weights_of_merge<double>(counts[i], counts[i + distance]);
      counts[i] += counts[i + distance];
      for (std::int64_t c = 0; c < channels; ++c) {
        auto both = math::merged<double>({a.first[c], a.second[c]},
                                         {b.first[c], b.second[c]}, weights);
        a.first[c] = both.mean;
        a.second[c] = both.m2;
      }
    }
}

/// Makes the means absolute, no longer relative to an origin.
template <class Reduction>
void add_origins(const Reduction& reduction, const slab_memory& results,
                 std::int64_t channels) {
  if constexpr (Reduction::has_origin)
    for (std::int64_t c = 0; c < channels; ++c)
      results.first[c] += reduction.origin(c);
}

template <class Stored>
void write_moments(const slab_memory& results, const moments_view& out) {
  std::transform(results.first, results.first + out.channels,
                 static_cast<Stored*>(out.mean),
                 [](double mean) { return Stored(mean); });
  std::transform(results.second, results.second + out.channels,
                 static_cast<Stored*>(out.m2),
                 [](double m2) { return Stored(m2); });
}

template <class T>
void moments_of(const execution& run, const const_tensor_view& x,
                const moments_view& out, const workspace& scratch) {
  auto w = walk_of(x.layout(), gapless(x.layout()));
  auto plan = plan_of(w);
  slab_layout layout{x.layout()};
  auto step = strides_of(w, x.layout());
  auto results = layout.slab(scratch.data, 0);
  with_fetching<T>([&]<class Cpu>(Cpu) {
    moments_reduction<T, Cpu> reduction{static_cast<const T*>(x.data()), step,
                                        w.rows ? 1 : step.inner};
    reduce(run, reduction, w, plan, layout, scratch.data);
    merge_slabs(reduce_tasks{w, plan, 1}, layout, scratch.data, plan.slabs,
                w.channels);
    add_origins(reduction, results, w.channels);
  });
  if (out.type == dtype::float64)
    write_moments<double>(results, out);
  else
    write_moments<float>(results, out);
}

void batch_moments(const execution& run, const const_tensor_view& x,
                   const moments_view& out, const workspace& scratch) {
  with_element(x.type(), [&]<class T>(element<T>) {
    moments_of<T>(run, x, out, scratch);
  });
}

} // namespace

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace syncnorm::cpu {

HWY_EXPORT(batch_moments);

std::size_t batch_moments_workspace(const tensor_layout& x) {
  return slab_layout{x}.bytes();
}

void batch_moments(const execution& run, const const_tensor_view& x,
                   const moments_view& out, const workspace& scratch) {
  HWY_DYNAMIC_DISPATCH(batch_moments)(run, x, out, scratch);
}

} // namespace syncnorm::cpu

#endif
