#pragma once

#include <torch/types.h>

#include <cstdint>

namespace syncnorm::nn::detail {

/// The batch counter of a layer on a device, as the host knows it: reading it
/// back at each pass would mean waiting for the device.
class known_counter {
public:
  /// The value of `x`: the known one as long as nobody has written to `x` in
  /// place or replaced it, else the one read back now.
  [[nodiscard]] std::int64_t read(const torch::Tensor& x);

  /// Sets `x` in the order of its device's stream.
  void write(const torch::Tensor& x, std::int64_t value);

private:
  /// Shares memory and version with the counter, so that no other tensor can
  /// come to lie there.
  torch::Tensor of_;
  std::int64_t version_ = 0;
  std::int64_t value_ = 0;
};

} // namespace syncnorm::nn::detail
