#pragma once

#include <cstdint>

namespace syncnorm::train {

/// How the learning rate changes over a run.
enum class schedule_kind : std::uint8_t {
  /// It does not change.
  constant = 0,
  /// Half a cosine wave from the full rate to zero:
  /// `rate * (1 + cos(pi * step / steps)) / 2`.
  cosine = 1,
  /// A tenth after half of the steps, a hundredth after three quarters.
  step = 2,
};

/// The learning rate of step `step` out of `steps`.
[[nodiscard]] double learning_rate(schedule_kind kind, double rate,
                                   std::uint64_t step, std::uint64_t steps);

} // namespace syncnorm::train
