#pragma once

#include <torch/types.h>

#include <cstdint>

namespace syncnorm::nn::detail {

/// The counter of batches of a layer on a device, as the host knows it: to read
/// it back at each pass would be to wait for the device.
class known_counter {
public:
  /// The value of `x`: what is known, as long as nobody has written to it in
  /// place or put another in its place, or else what is read back now.
  [[nodiscard]] std::int64_t read(const torch::Tensor& x);

  /// Sets `x` in the order of its device's stream.
  void write(const torch::Tensor& x, std::int64_t value);

private:
  /// Shares memory and version with the counter, so that another one cannot
  /// come to lie there.
  torch::Tensor of_;
  std::int64_t version_ = 0;
  std::int64_t value_ = 0;
};

} // namespace syncnorm::nn::detail
