// The kernels alone, without actors: two parts of a batch are normalized by the
// statistics of both, forward and backward, then by the running statistics.
// Meant to be copied.

#include "syncnorm/batch_norm.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <thread>
#include <vector>

using namespace syncnorm;

namespace {

// begin: part
/// Two samples of one channel.
const auto layout =
    make_layout(dtype::float32, std::array<std::int64_t, 2>{2, 1});

/// One device's part of the batch, and its values for each channel.
struct part {
  std::array<float, 2> x, dy;
  std::array<float, 2> y{}, dx{};
  std::vector<std::uint8_t> mask =
      std::vector<std::uint8_t>(relu_mask_bytes(layout));
  std::int64_t count = 0;
  float mean = 0, m2 = 0;
  float sum_dy = 0, sum_dy_xmu = 0, weight_grad = 0;

  [[nodiscard]] const_tensor_view input() const {
    return {x.data(), layout};
  }

  [[nodiscard]] moments_view moments() {
    return {count, &mean, &m2, 1, dtype::float32, {}};
  }
};
// end: part

// begin: scratch
/// Scratch memory for a call, aligned as the call requires.
class scratch_memory {
public:
  explicit scratch_memory(std::size_t bytes)
      : blocks_(bytes / sizeof(block) + 1) {}

  operator workspace() {
    return {blocks_.data(), blocks_.size() * sizeof(block)};
  }

private:
  struct alignas(16) block {
    std::array<std::byte, 16> bytes;
  };

  std::vector<block> blocks_;
};
// end: scratch

// begin: threads
/// Runs the parts of one call in parallel.
void run_in_threads(void*, std::int64_t parts, parallel_for::body_type body,
                    void* context) {
  std::vector<std::jthread> threads;
  for (std::int64_t i = 1; i < parts; ++i)
    threads.emplace_back(body, context, i);
  body(context, 0);
}
// end: threads

void print(const char* name, const std::array<float, 2>& a,
           const std::array<float, 2>& b) {
  std::cout << name << ' ' << a[0] << ' ' << a[1] << ' ' << b[0] << ' ' << b[1]
            << '\n';
}

} // namespace

int main() {
  part first{{1, 3}, {1, 0}};
  part second{{5, 7}, {1, 0}};
  // begin: run
  parallel_for split{run_in_threads, nullptr, 2};
  execution run; // on the CPU
  run.split = &split;
  // end: run

  // begin: statistics
  for (auto* p : {&first, &second}) {
    scratch_memory scratch{batch_moments_workspace(layout)};
    auto moments = p->moments();
    batch_moments(run, p->input(), moments, scratch);
    p->count = moments.count;
  }
  std::array<const_moments_view, 2> parts{first.moments(), second.moments()};
  float mean = 0, m2 = 0, inv_std = 0;
  moments_view total{0, &mean, &m2, 1, dtype::float32, {}};
  merge_moments(run, parts, total);
  float running_mean = 0, running_var = 1;
  finalize_moments(run, total, {.eps = 1e-5, .momentum = 0.1}, &mean, &inv_std,
                   {&running_mean, &running_var});
  // end: statistics

  // begin: forward
  float weight = 2, bias = 1;
  channel_parameters parameters{&mean, &inv_std, &weight, &bias};
  for (auto* p : {&first, &second})
    normalize(run, p->input(), parameters, {p->y.data(), layout},
              {.relu = true, .mask = p->mask.data()});
  // end: forward
  print("y", first.y, second.y);

  // begin: backward
  for (auto* p : {&first, &second}) {
    scratch_memory scratch{backward_reduce_workspace(layout)};
    backward_reduce(run, {p->dy.data(), layout}, p->input(), parameters,
                    p->mask.data(),
                    {.sum_dy = &p->sum_dy,
                     .sum_dy_xmu = &p->sum_dy_xmu,
                     .weight_grad = &p->weight_grad},
                    scratch);
  }
  float sum_dy = 0, sum_dy_xmu = 0;
  std::array<const void*, 2> of_dy{&first.sum_dy, &second.sum_dy};
  std::array<const void*, 2> of_dy_xmu{&first.sum_dy_xmu, &second.sum_dy_xmu};
  add_arrays(run, of_dy, 1, dtype::float32, &sum_dy);
  add_arrays(run, of_dy_xmu, 1, dtype::float32, &sum_dy_xmu);
  for (auto* p : {&first, &second})
    backward_input(run, {p->dy.data(), layout}, p->input(), parameters,
                   {&sum_dy, &sum_dy_xmu, total.count}, p->mask.data(),
                   {p->dx.data(), layout});
  // end: backward
  print("dx", first.dx, second.dx);
  std::cout << "weight's gradient " << first.weight_grad + second.weight_grad
            << '\n';

  // begin: evaluation
  for (auto* p : {&first, &second})
    normalize_eval(run, p->input(), {&running_mean, &running_var}, 1e-5,
                   eps_mode::plus, parameters, {p->y.data(), layout});
  // end: evaluation
  print("evaluation", first.y, second.y);
}
