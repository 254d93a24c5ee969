#pragma once

#include "trainer/plan/epoch_order.hpp"

#include <cstddef>

namespace syncnorm::train {

/// How an epoch is cut into batches: all have `batch` samples, but the last may
/// be smaller, or larger by one: a single leftover sample joins the batch
/// before it, since by itself it has no variance.
struct epoch_plan {
  std::size_t samples = 0;
  std::size_t batch = 0;

  /// Number of batches in an epoch.
  [[nodiscard]] std::size_t steps() const noexcept {
    auto rest = samples % batch;
    auto whole = samples / batch;
    return whole + (rest > 1 || whole == 0 ? 1 : 0);
  }

  /// Whether a batch begins at `position`, or the epoch ends there.
  [[nodiscard]] bool has_border_at(std::size_t position) const noexcept {
    return position == samples
           || (position % batch == 0 && position / batch < steps());
  }

  /// The batch that begins at `position`.
  [[nodiscard]] position_range batch_at(std::size_t position) const noexcept {
    auto last = position / batch + 1 >= steps();
    return {position, last ? samples : position + batch};
  }
};

} // namespace syncnorm::train
