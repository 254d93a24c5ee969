#pragma once

// What the libtorch component's tests share. doctest and libtorch's logging
// headers both define CHECK: libtorch's is removed.

#include <torch/torch.h>

#undef CHECK

#include <doctest/doctest.h>

#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/message_types.hpp"
#include "syncnorm/nn/data_parallel_with_callback.hpp"
#include "syncnorm/nn/synchronize.hpp"
#include "syncnorm/nn/synchronized_batch_norm.hpp"
#include "tests/on_threads.hpp"

#include <chrono>
#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace syncnorm::nn::test {

using torch::Tensor;

struct config : caf::actor_system_config {
  config() {
    syncnorm::detail::add_types<caf::id_block::syncnorm>(*this);
  }
};

/// An actor system for one test.
struct actors {
  actors() {
    torch::manual_seed(7);
  }

  struct types {
    types() {
      syncnorm::detail::init_types<caf::id_block::syncnorm>();
    }
  };

  types registered;
  config cfg;
  caf::actor_system system{cfg};
};

/// The devices of `n` copies on CPUs.
inline std::vector<torch::Device> cpu_times(std::size_t n) {
  return std::vector<torch::Device>(n, torch::Device{torch::kCPU});
}

/// Options with a deadline longer than any test: an error must not wait for it.
inline SynchronizeOptions patient() {
  SynchronizeOptions result;
  result.deadline = std::chrono::hours{1};
  return result;
}

/// Options for `n` patient copies on CPUs.
inline DataParallelWithCallbackOptions on_patient_cpus(std::size_t n) {
  return DataParallelWithCallbackOptions{}
      .devices(cpu_times(n))
      .synchronize(patient());
}

using syncnorm::testing::on_threads;
using syncnorm::testing::rethrow_first;

/// The text of an exception, empty for none.
inline std::string text_of(const std::exception_ptr& x) {
  if (!x)
    return {};
  try {
    std::rethrow_exception(x);
  } catch (const std::exception& e) {
    return e.what();
  }
}

/// The error of a call that must fail.
template <class F>
errc code_of(F f, std::string* text = nullptr) {
  try {
    f();
  } catch (const error& x) {
    if (text)
      *text = x.what();
    return x.code();
  }
  return errc::none;
}

inline bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

/// The largest absolute difference, relative to the larger of 1 and the
/// largest value expected. Infinity for different shapes or a NaN.
inline double distance(const Tensor& expected, const Tensor& got) {
  constexpr auto far = std::numeric_limits<double>::infinity();
  if (expected.sizes() != got.sizes())
    return far;
  if (expected.numel() == 0)
    return 0;
  auto a = expected.detach().to(torch::kDouble);
  auto b = got.detach().to(torch::kDouble);
  auto error = (a - b).abs().max().item<double>();
  auto scale = std::max(1.0, a.abs().max().item<double>());
  return std::isfinite(error) ? error / scale : far;
}

/// How far results of that dtype may differ. float64 agrees to 1e-10; float32
/// to the tolerance with which libtorch compares its own batch norms (1e-5
/// relative, times 10 for sums over whole batches); a half type to two units in
/// the last place of its own output.
inline double tolerance(torch::ScalarType type) {
  switch (type) {
  case torch::kDouble:
    return 1e-10;
  case torch::kFloat:
    return 1e-4;
  case torch::kHalf:
    return 2 * 0x1p-10;
  default:
    return 2 * 0x1p-7;
  }
}

/// Runs libtorch's plain layer for input of that rank.
inline Tensor plain_forward(torch::nn::Module& m, const Tensor& x) {
  if (auto* one = m.as<torch::nn::BatchNorm1d>())
    return one->forward(x);
  if (auto* two = m.as<torch::nn::BatchNorm2d>())
    return two->forward(x);
  return m.as<torch::nn::BatchNorm3d>()->forward(x);
}

} // namespace syncnorm::nn::test
