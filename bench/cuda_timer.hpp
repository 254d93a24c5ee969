#pragma once

#include "bench/cuda_tensors.hpp"
#include "bench/support.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace syncnorm::bench {

/// Times calls by CUDA events on the default stream. Copies keep the device
/// busy before the first event, so that all calls of one sample are enqueued
/// when the first of them starts: this times the device, not the host's
/// launches. The copies also push the inputs out of the L2 cache.
class device_timer {
public:
  device_timer() {
    require_success(cudaEventCreate(&start_));
    require_success(cudaEventCreate(&stop_));
  }
  ~device_timer() {
    (void) cudaEventDestroy(start_);
    (void) cudaEventDestroy(stop_);
  }
  device_timer(const device_timer&) = delete;
  device_timer& operator=(const device_timer&) = delete;

  /// Seconds of one call, from `samples` times 16 calls in a row.
  /// @param call    `call(i)` enqueues one call on the copies of number i.
  /// @param copies  the numbers i cycle from 0 to copies - 1.
  template <class Call>
  [[nodiscard]] timing measure(std::size_t copies, int samples,
                               const Call& call) {
    constexpr std::size_t calls = 16;
    std::vector<double> seconds;
    std::size_t next = 0;
    for (int sample = -2; sample < samples; ++sample) {
      keep_busy();
      require_success(cudaEventRecord(start_));
      for (std::size_t i = 0; i < calls; ++i)
        call(next++ % copies);
      require_success(cudaEventRecord(stop_));
      require_success(cudaEventSynchronize(stop_));
      float milliseconds = 0;
      require_success(cudaEventElapsedTime(&milliseconds, start_, stop_));
      if (sample >= 0)
        seconds.push_back(1e-3 * double(milliseconds) / double(calls));
    }
    std::ranges::sort(seconds);
    auto at = [&](int quarter) {
      return seconds[std::size_t(samples - 1) * std::size_t(quarter) / 4];
    };
    return {at(2), seconds.front(), (at(3) - at(1)) / at(2)};
  }

private:
  /// Takes about two milliseconds on an H100.
  void keep_busy() {
    constexpr int rounds = 12;
    for (int i = 0; i < rounds; ++i)
      require_success(cudaMemcpyAsync(to_.data(), from_.data(), ballast,
                                      cudaMemcpyDeviceToDevice));
  }

  static constexpr std::size_t ballast = std::size_t{256} << 20;

  device_memory from_{ballast};
  device_memory to_{ballast};
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

} // namespace syncnorm::bench
