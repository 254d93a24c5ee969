#pragma once

#include "syncnorm/channel_array.hpp"
#include "syncnorm/device_array.hpp"

#include <cstdint>

namespace syncnorm {

/// What a forward pass leaves for its backward pass: the statistics that x was
/// normalized with. x itself is the caller's to keep.
class batch_norm_tape {
public:
  /// The mean of the whole batch; in evaluation, the running mean or, without
  /// running statistics, the mean of this replica's batch; online, the mean of
  /// everything seen so far. C elements; none on a CUDA device, where
  /// `device_statistics` has them.
  [[nodiscard]] const channel_array& mean() const noexcept {
    return mean_;
  }
  /// 1 / sqrt(var + eps), or with `eps_mode::clamp` 1 / sqrt(max(var, eps)), of
  /// the same variance; C elements; none on a CUDA device.
  [[nodiscard]] const channel_array& inv_std() const noexcept {
    return inv_std_;
  }

  /// On a CUDA device: mean, then inverse standard deviation; 2 * C elements.
  [[nodiscard]] const device_array& device_statistics() const noexcept {
    return device_statistics_;
  }

  /// Elements of each channel that the statistics were made from; 0 for
  /// running statistics.
  [[nodiscard]] std::int64_t count() const noexcept {
    return count_;
  }

private:
  friend class batch_norm_replica;

  /// Where the statistics come from, and so who takes part in the backward
  /// pass.
  enum class source : std::uint8_t { all_replicas, this_replica, running };

  source source_ = source::running;
  std::int64_t count_ = 0;
  /// The master's number of this pass; 0: the master has given none.
  std::uint64_t pass_ = 0;
  channel_array mean_;
  channel_array inv_std_;
  device_array device_statistics_;
};

} // namespace syncnorm
