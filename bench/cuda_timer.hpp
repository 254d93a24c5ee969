#pragma once

#include "bench/cuda_tensors.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace syncnorm::bench {

/// Time of one call on the device, in microseconds.
struct timing {
  double median = 0;
  /// Half of all samples lie between these.
  double lower = 0;
  double upper = 0;
};

/// Times calls by CUDA events on the default stream. Before the first event
/// the device is kept busy by copies, so that the calls of one sample are all
/// enqueued when the first of them starts: what is timed is the device, not
/// the host's launches. The copies also push the inputs out of the L2 cache.
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

  /// @param call    `call(i)` enqueues one on the copies of number i.
  /// @param copies  the numbers i go round from 0 to copies - 1.
  template <class Call>
  [[nodiscard]] timing measure(std::size_t copies, const Call& call) {
    constexpr int samples = 15;
    constexpr std::size_t calls = 16;
    std::vector<double> times;
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
        times.push_back(1e3 * double(milliseconds) / double(calls));
    }
    std::sort(times.begin(), times.end());
    return {times[samples / 2], times[samples / 4], times[samples * 3 / 4]};
  }

private:
  /// About two milliseconds of an H100.
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
