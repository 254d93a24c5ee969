#pragma once

// The CUDA kernels on the host, one thread of a block after the other: all of
// their code except the launch, CUB's block reduction and the exchange of mask
// bits in a warp. Finds errors in the partition, the index arithmetic, the
// vector accesses and the mathematics on a machine without a GPU.

#include "kernels/cuda/add_tree.hpp"
#include "kernels/cuda/merge_partials.hpp"
#include "kernels/cuda/plane_reduce.hpp"
#include "kernels/cuda/prepare_merge.hpp"
#include "kernels/cuda/prepare_pass.hpp"
#include "kernels/cuda/prepare_reduction.hpp"
#include "kernels/cuda/row_reduce.hpp"
#include "tests/kernels/cuda_backend.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace syncnorm::testing {

/// Merges the shares of a block, neighbours first.
template <class Reduction, class Count>
cuda::counted<Reduction, Count>
reduce_block(std::vector<cuda::counted<Reduction, Count>> shares) {
  for (std::size_t d = 1; d < shares.size(); d *= 2)
    for (std::size_t i = 0; i + d < shares.size(); i += 2 * d)
      shares[i] = cuda::merge_counted<Reduction>{}(shares[i], shares[i + d]);
  return shares[0];
}

/// Runs a block of a reduction over rows, without its stores: returns the
/// places of its threads.
template <class Reduction>
std::vector<cuda::row_place> reduce_rows(const cuda::row_task<Reduction>& task,
                                         std::int64_t tile, std::int64_t split,
                                         cuda::row_board<Reduction>& board) {
  std::vector<cuda::row_place> places;
  for (int row = 0; row < task.plan.tile_height; ++row)
    for (int lane = 0; lane < task.plan.tile_width; ++lane)
      places.push_back(task.place_of(tile, split, lane, row));
  for (const auto& place : places) {
    auto known = place.shares.each + (place.row < place.shares.rest ? 1 : 0);
    auto there = place.column < task.plan.shape.channels;
    if (task.share(place, board) != (there ? known : 0))
      throw std::logic_error("a thread did not see all of its rows");
  }
  // Threads that run in any order must not write what another reads: a row
  // behind the results is read by one before it.
  task.tree.for_each_level([&](const auto& level) {
    std::for_each(places.rbegin(), places.rend(),
                  [&](const auto& place) { task.merge(level, place, board); });
  });
  return places;
}

struct emulate_reduction {
  std::size_t workspace_bytes = 0;

  template <class Reduction>
  void operator()(const Reduction& what, const cuda::reduce_plan& plan) const {
    using state = typename Reduction::state;
    std::vector<state> scratch(plan.direct() ? 0 : plan.partials());
    if (scratch.size() * sizeof(state) > workspace_bytes)
      throw std::logic_error("a plan needs more than the workspace function "
                             "tells");
    if (plan.shape.format == memory_format::channels_first)
      planes(cuda::plane_task<Reduction>{what, plan, scratch.data()});
    else
      rows(cuda::row_task<Reduction>{what, plan, scratch.data()});
    if (!plan.direct())
      merge(cuda::merge_partials_task<Reduction>{what, plan, scratch.data()});
  }

private:
  template <class Reduction>
  static void planes(const cuda::plane_task<Reduction>& task) {
    for (std::int64_t block = 0; block < task.blocks(); ++block) {
      auto split = block / task.plan.shape.channels;
      auto channel = block % task.plan.shape.channels;
      std::vector<cuda::counted<Reduction, int>> shares;
      for (int thread = 0; thread < cuda::block_threads; ++thread)
        shares.push_back(task.share(channel, split, thread));
      auto total = reduce_block(std::move(shares));
      if (total.count != task.plan.count_of(split))
        throw std::logic_error("a block did not see all of its run");
      task.put(channel, split, task.reduction.before_close(channel), total);
    }
  }

  template <class Reduction>
  static void rows(const cuda::row_task<Reduction>& task) {
    auto board = std::make_unique<cuda::row_board<Reduction>>();
    for (std::int64_t split = 0; split < task.plan.splits; ++split)
      for (std::int64_t tile = 0; tile < task.plan.tiles; ++tile) {
        auto places = reduce_rows(task, tile, split, *board);
        for (const auto& place : places)
          task.put(place, *board);
      }
  }

  template <class Reduction>
  static void merge(const cuda::merge_partials_task<Reduction>& task) {
    using real = typename Reduction::real;
    int threads = task.for_a_warp() ? cuda::warp_threads : cuda::merge_threads;
    for (std::int64_t c = 0; c < task.channels(); ++c) {
      std::vector<cuda::counted<Reduction, real>> shares;
      for (int thread = 0; thread < threads; ++thread) {
        auto place = task.place_of(c, task.channels(), thread, threads);
        if (thread > 0 && place.count > shares.back().count)
          throw std::logic_error("a thread has more than the one before");
        shares.push_back({place.count, task.share(place, c, task.channels(),
                                                  thread, threads)});
      }
      task.reduction.close(c, task.reduction.before_close(c),
                           reduce_block(std::move(shares)).state);
    }
  }
};

struct emulate_pass {
  template <class Pass>
  void operator()(const Pass& pass, const cuda::pass_plan& plan) const {
    for (std::int64_t block = 0; block < plan.blocks; ++block)
      for (int thread = 0; thread < cuda::block_threads; ++thread)
        cuda::run_pass(pass, plan.range_of(block, thread), thread % 32);
  }
};

struct emulate_merge {
  template <class Real, int Capacity>
  void operator()(const cuda::merge_parts_task<Real, Capacity>& task) const {
    constexpr int width = cuda::merge_channels;
    if (task.groups() * cuda::merge_group > Capacity)
      throw std::logic_error("a block has no threads for so many groups");
    std::vector<cuda::tree_node<Real>> board(task.groups() * width);
    for (std::int64_t c = 0; c < task.channels; ++c) {
      auto* column = board.data() + c % width;
      for (int group = 0; group < task.groups(); ++group)
        column[group * width] = task.share(c, group);
      for (int distance = 1; distance < task.groups(); distance *= 2)
        // Backwards: no group may write what one before it reads.
        for (int group = task.groups() - 1; group >= 0; --group)
          task.merge(column, group, distance);
      task.put(c, *column);
    }
  }
};

struct emulate_finalize {
  template <class Real>
  void operator()(const cuda::finalize_task<Real>& task) const {
    for (std::int64_t channel = 0; channel < task.channels; ++channel)
      task.run(channel);
  }
};

struct emulate_arrays {
  template <class Task>
  void operator()(const Task& task) const {
    for (std::int64_t element = 0; element < task.elements; ++element)
      task.run(element);
  }
};

class emulated_backend : public in_host_memory<backend> {
public:
  [[nodiscard]] device where() const override {
    return {};
  }

  void batch_moments(const const_tensor_view& x, moments_view& out) override {
    out.count = x.shape().per_channel();
    if (out.count > 0)
      cuda::with_moments(
          x, out, emulate_reduction{cuda::reduction_workspace(x.layout())});
  }
  void merge_moments(std::span<const const_moments_view> parts,
                     moments_view& out) override {
    std::int64_t count = 0;
    for (const auto& part : parts)
      count += part.count;
    if (out.type == dtype::float64)
      cuda::with_merges<double>(parts, out, emulate_merge{});
    else
      cuda::with_merges<float>(parts, out, emulate_merge{});
    out.count = count;
  }
  void finalize_moments(const const_moments_view& total,
                        const finalize_options& options, void* mean,
                        void* inv_std, const running_view& running) override {
    if (total.type == dtype::float64)
      cuda::with_finalize<double>(total, options, mean, inv_std, running,
                                  emulate_finalize{});
    else
      cuda::with_finalize<float>(total, options, mean, inv_std, running,
                                 emulate_finalize{});
  }
  void add_arrays(std::span<const void* const> parts, std::int64_t elements,
                  dtype type, void* out) override {
    if (type == dtype::float64)
      cuda::with_adds<double>(parts, elements, out, emulate_arrays{});
    else
      cuda::with_adds<float>(parts, elements, out, emulate_arrays{});
  }
  void round_array(const double* from, std::int64_t elements,
                   float* out) override {
    emulate_arrays{}(cuda::round_task{from, elements, out});
  }
  void clear_clamped(const void* inv_std, double eps, std::int64_t channels,
                     dtype type, void* sum_dy_xmu) override {
    if (type == dtype::float64)
      cuda::with_clear<double>(inv_std, eps, channels, sum_dy_xmu,
                               emulate_arrays{});
    else
      cuda::with_clear<float>(inv_std, eps, channels, sum_dy_xmu,
                              emulate_arrays{});
  }
  void normalize(const const_tensor_view& x,
                 const channel_parameters& parameters, const tensor_view& y,
                 const fused_tail& tail) override {
    channel_normalizer channel;
    channel.mean = parameters.mean;
    channel.spread = parameters.inv_std;
    channel.weight = parameters.weight;
    channel.bias = parameters.bias;
    cuda::with_normalize(x, channel, y, tail, emulate_pass{});
  }
  void normalize_eval(const const_tensor_view& x,
                      const running_statistics& statistics, double eps,
                      eps_mode mode, const channel_parameters& parameters,
                      const tensor_view& y, const fused_tail& tail) override {
    cuda::with_normalize(x, evaluation(statistics, eps, mode, parameters), y,
                         tail, emulate_pass{});
  }
  void backward_reduce(const const_tensor_view& dy, const const_tensor_view& x,
                       const channel_parameters& parameters,
                       const std::uint8_t* mask,
                       const backward_sums& out) override {
    cuda::with_gradients(
        dy, x, parameters, mask, out,
        emulate_reduction{cuda::reduction_workspace(x.layout())});
  }
  void backward_input(const const_tensor_view& dy, const const_tensor_view& x,
                      const channel_parameters& parameters,
                      const total_sums& sums, const std::uint8_t* mask,
                      const tensor_view& dx, void* residual_grad) override {
    cuda::with_backward_input(dy, x, parameters, sums, mask, dx, residual_grad,
                              emulate_pass{});
  }
  void backward_input_eval(const const_tensor_view& dy,
                           const running_statistics& statistics, double eps,
                           eps_mode mode, const channel_parameters& parameters,
                           const std::uint8_t* mask, const tensor_view& dx,
                           void* residual_grad) override {
    cuda::with_backward_input_eval(
        dy, evaluation(statistics, eps, mode, parameters), mask, dx,
        residual_grad, emulate_pass{});
  }

private:
  static channel_normalizer evaluation(const running_statistics& statistics,
                                       double eps, eps_mode mode,
                                       const channel_parameters& parameters) {
    return {statistics.mean,   statistics.var, true, eps, mode,
            parameters.weight, parameters.bias};
  }
};

} // namespace syncnorm::testing
