// The passes in one call on a CUDA device that the host emulates, against the
// CPU's: the library's own steps and checks, the kernels thread by thread.

#include "syncnorm/batch_norm.hpp"
#include "tests/kernels/cases.hpp"
#include "tests/kernels/cuda_emulation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace syncnorm::cuda {

std::size_t batch_moments_workspace(const tensor_layout& x) {
  return reduction_workspace(x);
}

void batch_moments(const execution&, const const_tensor_view& x,
                   const moments_view& out, const workspace& scratch) {
  with_moments(x, out, testing::emulate_reduction{scratch.bytes});
}

void merge_moments(const execution&, part_list, const moments_view&) {
  FAIL("a pass of one replica merges nothing");
}

void finalize_moments(const execution&, const const_moments_view& total,
                      const finalize_options& options, void* mean,
                      void* inv_std, const running_view& running) {
  testing::emulated_backend{}.finalize_moments(total, options, mean, inv_std,
                                               running);
}

void normalize(const execution&, const const_tensor_view& x,
               const channel_normalizer& channel, const tensor_view& y,
               const fused_tail& tail) {
  with_normalize(x, channel, y, tail, testing::emulate_pass{});
}

std::size_t backward_reduce_workspace(const tensor_layout& x) {
  return reduction_workspace(x);
}

void backward_reduce(const execution&, const const_tensor_view& dy,
                     const const_tensor_view& x,
                     const channel_parameters& parameters,
                     const std::uint8_t* mask, const backward_sums& out,
                     const workspace& scratch) {
  with_gradients(dy, x, parameters, mask, out,
                 testing::emulate_reduction{scratch.bytes});
}

void backward_input(const execution&, const const_tensor_view& dy,
                    const const_tensor_view& x,
                    const channel_parameters& parameters,
                    const total_sums& sums, const std::uint8_t* mask,
                    const tensor_view& dx, void* residual_grad) {
  with_backward_input(dy, x, parameters, sums, mask, dx, residual_grad,
                      testing::emulate_pass{});
}

void backward_input_eval(const execution&, const const_tensor_view&,
                         const channel_normalizer&, const std::uint8_t*,
                         const tensor_view&, void*) {
  FAIL("a pass that trains evaluates nothing");
}

} // namespace syncnorm::cuda

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// What both passes write, in float64.
using results = std::vector<std::vector<double>>;

std::vector<double> flat(const values& from) {
  std::vector<double> result;
  from.for_each(
      [&](auto n, auto c, auto s) { result.push_back(from.at(n, c, s)); });
  return result;
}

results both_passes(layout_case one, const device& where, bool fused) {
  one.layout.where = where;
  const auto& layout = one.layout;
  auto count = layout.shape.channels;
  auto type = statistics_type(layout.type);
  tensor x{layout, random_values(layout.shape, 70, 1, 2), one.skip};
  tensor dy{layout, random_values(layout.shape, 71), one.skip};
  tensor residual{layout, random_values(layout.shape, 72), one.skip};
  tensor y{layout, values{layout.shape}, one.skip};
  tensor dx{layout, values{layout.shape}, one.skip};
  tensor residual_grad{layout, values{layout.shape}, one.skip};
  channel_array weight{type, random_channels(count, 73, 0.5, 2)};
  channel_array bias{type, random_channels(count, 74, -1, 1)};
  channel_array running_mean{type, random_channels(count, 75, -1, 1)};
  channel_array running_var{type, random_channels(count, 76, 0.5, 2)};
  std::vector<channel_array> set(6, channel_array{type, count});
  guarded_memory mask{relu_mask_bytes(layout)};
  fused_tail tail;
  if (fused)
    tail = {residual.view().data(), true,
            reinterpret_cast<std::uint8_t*>(mask.data())};
  auto bytes = std::max(batch_norm_forward_workspace(layout),
                        batch_norm_backward_workspace(layout));
  std::vector<std::byte> memory(bytes + 256);
  auto past = reinterpret_cast<std::uintptr_t>(memory.data()) % 256;
  workspace scratch{memory.data() + (256 - past), bytes};
  execution run{where, nullptr, nullptr};
  batch_norm_forward(
      run, x.view(), {},
      {set[0].data(), set[1].data(), {running_mean.data(), running_var.data()}},
      weight.data(), bias.data(), y.view(), tail, scratch);
  batch_norm_backward(
      run, dy.view(), x.view(),
      {set[0].data(), set[1].data(), weight.data(), nullptr}, tail.mask,
      {set[2].data(), set[3].data(), set[4].data(), set[5].data()}, dx.view(),
      fused ? residual_grad.view().data() : nullptr, scratch);
  results all{flat(y.get()), flat(dx.get()), flat(residual_grad.get()),
              running_mean.get(), running_var.get()};
  for (auto& array : set)
    all.push_back(array.get());
  return all;
}

/// Elements that are further apart than rounding of the largest one explains.
int different(const std::vector<double>& a, const std::vector<double>& b) {
  double scale = 1;
  for (auto value : a)
    scale = std::max(scale, std::abs(value));
  int result = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    result += std::abs(a[i] - b[i]) <= 1e-5 * scale ? 0 : 1;
  return result;
}

} // namespace

TEST_CASE("a pass in one call on a CUDA device gives what the CPU's gives") {
  for (tensor_shape shape :
       {tensor_shape{1, 1, 7}, {3, 5, 7}, {16, 3, 49}, {40, 67, 1}, {2, 4, 64}})
    for (const auto& one : layouts_of(dtype::float32, shape))
      for (auto fused : {false, true}) {
        INFO(describe(one.layout), ", fused ", fused);
        auto got = both_passes(one, {device_type::cuda, 0}, fused);
        auto want = both_passes(one, {}, fused);
        for (std::size_t i = 0; i < want.size(); ++i) {
          INFO("result ", i);
          CHECK(different(want[i], got[i]) == 0);
        }
      }
}
