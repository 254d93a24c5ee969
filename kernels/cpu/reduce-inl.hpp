// The walk of a reduction that makes two sums for each channel: batch_moments,
// sum(x - pivot) and sum((x - pivot)^2), and backward_reduce, sum(dy) and
// sum(dy * (x - mean)). Memory is read once, in its order. Blocks of a channel
// are summed up in the type of calculation and then flushed to the reduction's
// results, in float64.
//
// A `Reduction` has:
//   real               the type of calculation
//   cursor             where in the inputs a run of elements starts
//   finds_pivots       whether pivots come from the elements
//   element_bytes      bytes that are read for an element
//   planes, rows, tiles            how memory is prefetched: of planes,
//                      of rows, and of rows whose sums stay in registers
//   plane(g, c), row(g, r)         cursors
//   add<Full>(d, at, i, n, pivot, s, q)  adds the elements [i, i + n) from
//                      `at` on to the sums; n is a whole vector if Full
//   fetch<Where>(at, i, n)  prefetches the elements [i, i + n) from `at` on
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
#include "kernels/cpu/reduce_planes-inl.hpp"
#include "kernels/cpu/reduce_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

/// Reduces all slabs. Leaves their results in the workspace.
template <class Reduction>
void reduce(const execution& run, const Reduction& r, const walk& w,
            const reduce_plan& plan, const slab_layout& layout,
            void* workspace) {
  reduce_tasks tasks{w, plan, run.split == nullptr ? 1 : run.split->parts};
  // A lane of a short plane has at most the terms of one sum.
  auto lanes = std::int64_t(hn::Lanes(tag<typename Reduction::real>{}));
  auto short_planes = w.inner < std::min(short_plane, sum_terms * lanes);
  for_ranges(run, tasks.size(), [&](std::int64_t first, std::int64_t last) {
    for (auto i = first; i < last; ++i) {
      auto task = tasks[i];
      auto memory = layout.slab(workspace, task.slab);
      auto width = std::size_t(task.last_channel - task.first_channel);
      std::fill_n(memory.first + task.first_channel, width, 0.0);
      std::fill_n(memory.second + task.first_channel, width, 0.0);
      if (w.rows)
        reduce_rows(r, w, plan.fold, task, memory);
      else if (short_planes)
        reduce_short_planes(r, w, task, memory);
      else
        reduce_long_planes(r, w, task, memory);
    }
  });
}

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
