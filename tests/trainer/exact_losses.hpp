#pragma once

#include "trainer/run_processes.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstddef>

namespace syncnorm::train {

/// With these options, the losses are the same whichever processes take part.
inline const arguments exact{"--model=mlp",         "--precision=f64",
                             "--schedule=constant", "--devices=cpu",
                             "--deadline=2",        "--patience=20"};

inline const arguments endless_run =
    exact + arguments{"--epochs=9999", "--on-failure=continue"};

/// The losses of such a run in `folder` are those of one process.
inline void require_losses_of_one(const scratch_folder& folder) {
  auto found = read_trace(folder).losses;
  auto epochs = fmt::format("--epochs={}", found.size() / 23 + 1);
  auto whole = run(1, "cpu", exact + arguments{epochs}).losses;
  REQUIRE(found.size() <= whole.size());
  // The sums differ slightly in float64, which training amplifies.
  for (std::size_t i = 0; i < found.size(); ++i)
    REQUIRE(std::abs(found[i] - whole[i]) <= 1e-6 * whole[i]);
}

} // namespace syncnorm::train
