#pragma once

#include "trainer/input/dataset.hpp"
#include "trainer/plan/settings.hpp"

#include <cstdint>
#include <string>

namespace syncnorm::train {

/// How far a run has come, besides the weights: what a checkpoint says in text.
struct run_state {
  // What must be the same to continue.
  std::string model;
  std::string norm;
  std::string precision;
  std::uint64_t batch = 0;
  std::uint64_t seed = 0;
  std::uint64_t fingerprint = 0;
  std::uint64_t channels = 0;
  std::uint64_t height = 0;
  std::uint64_t width = 0;

  // The position: epochs done, samples of the next one done, steps done. With
  // the seed this is also the state of the random numbers; see `epoch_order`.
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::uint64_t step = 0;

  // Sums over the epoch so far.
  double loss = 0;
  double seconds = 0;
  double waiting = 0;
};

/// The state before the first step.
[[nodiscard]] run_state initial_state(const settings& options,
                                      const dataset& data);

/// One `name=value` per line; numbers with the digits that restore the same
/// bits.
[[nodiscard]] std::string to_text(const run_state& state);

/// Reads what `to_text` wrote.
/// @throws failure that names `file` and the line that is wrong or missing.
[[nodiscard]] run_state parse_state(const std::string& text,
                                    const std::string& file);

/// @throws failure that names `file` and the first thing in which its run
///         differs from `expected`.
void require_same_run(const run_state& found, const run_state& expected,
                      const std::string& file);

} // namespace syncnorm::train
