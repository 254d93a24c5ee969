#pragma once

#include "syncnorm/batch_norm_stage.hpp"
#include "syncnorm/future_result.hpp"

#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/layer_copies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

// Slave actors used by an application's actors: copies of an online layer,
// their input, and the expected output.

namespace syncnorm::test {

struct fed_stages {
  static constexpr std::size_t copies = 2;
  static constexpr std::size_t batches = 5;

  batch_norm_options options{
      .name = "stream", .channels = 3, .type = dtype::float64, .online = true};
  std::vector<std::unique_ptr<batch_norm_stage>> stages;
  /// For each copy, its part of each batch.
  std::vector<std::vector<tensor>> xs{copies};

  explicit fed_stages(caf::actor_system& system) {
    std::mt19937 random{11};
    for (std::size_t r = 0; r < copies; ++r) {
      stages.push_back(std::make_unique<batch_norm_stage>(system, options));
      for (std::size_t k = 0; k < batches; ++k) {
        std::vector<std::int64_t> sizes{static_cast<std::int64_t>(r + k + 1),
                                        3};
        fill(xs[r].emplace_back(make_layout(options.type, sizes)), random, 2,
             3);
      }
    }
    execute_replication_callbacks(stages);
  }

  /// The tensors of copy `r` as messages carry them.
  [[nodiscard]] std::vector<shared_tensor> messages(std::size_t r) const {
    std::vector<shared_tensor> result;
    for (const auto& x : xs[r]) {
      auto copy = std::make_shared<tensor>(x);
      result.emplace_back(copy->view(), copy);
    }
    return result;
  }

  /// Compares what came out of copy `r`, in order, with the truth: the
  /// statistics of all batches so far, of all copies.
  void check(std::size_t r, const std::vector<shared_tensor>& ys) const {
    REQUIRE(ys.size() == batches);
    std::vector<tensor> seen;
    for (std::size_t k = 0; k < batches; ++k) {
      for (std::size_t copy = 0; copy < copies; ++copy)
        seen.push_back(xs[copy][k]);
      reference truth{options.eps, options.mode, std::vector<double>(3, 1),
                      std::vector<double>(3, 0)};
      truth.forward(seen);
      const auto* y = static_cast<const double*>(ys[k].view().data());
      reference::for_each({xs[r][k]}, [&](auto c, auto, auto i) {
        if (!(std::abs(y[i] - truth.y(c, xs[r][k].get(i))) <= 1e-10))
          FAIL_CHECK("copy " << r << ", batch " << k);
      });
    }
  }
};

/// What an actor got in the end, for the thread that waits.
using outputs = std::vector<shared_tensor>;
using future_outputs = std::shared_ptr<future_result<outputs>>;

} // namespace syncnorm::test
