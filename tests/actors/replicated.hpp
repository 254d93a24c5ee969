#pragma once

#include "syncnorm/batch_norm_layer.hpp"

#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/layer_copies.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

// Copies of a small layer that know that they are copies.

namespace syncnorm::test {

inline constexpr std::size_t copy_count = 3;

inline batch_norm_options make_options() {
  return {.name = "bn", .channels = 2, .type = dtype::float64};
}

/// Copy r's x: its values make the mean of the whole batch r-independent.
inline tensor make_x(std::size_t r, std::int64_t channels = 2,
                     dtype type = dtype::float64) {
  tensor x{make_layout(type, std::array<std::int64_t, 2>{1, channels})};
  for (std::int64_t c = 0; c < channels; ++c)
    x.set(x.at(0, c, 0), static_cast<double>(r));
  return x;
}

inline batch_norm_tape forward(batch_norm_layer& layer, std::size_t r) {
  auto x = make_x(r);
  auto y = x;
  return layer.forward(x.view(), y.view());
}

/// Checks that a round runs and uses the samples of all copies.
inline void check_works(layers& copies) {
  std::vector<double> means(copies.size());
  run_all(copies.size(),
          [&](std::size_t r) { means[r] = forward(*copies[r], r).mean()[0]; });
  auto n = static_cast<double>(copies.size());
  CHECK(means == std::vector<double>(copies.size(), (n - 1) / 2));
}

/// Checks that the same modules work after being released and replicated.
inline void check_works_again(layers& copies) {
  release_replicas(copies);
  execute_replication_callbacks(copies);
  check_works(copies);
}

struct replicated : layer_fixture {
  layers copies = make_copies(system, make_options(), copy_count);

  replicated() {
    execute_replication_callbacks(copies);
  }
};

} // namespace syncnorm::test
