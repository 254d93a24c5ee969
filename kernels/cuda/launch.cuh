#pragma once

#include "kernels/cuda/runtime.hpp"
#include "syncnorm/error.hpp"

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace syncnorm::cuda {

// Code for compute capability 9.0 and later overlaps a kernel with the one
// before it: its blocks stand ready by the time the earlier one ends, by CUDA's
// programmatic dependent launch. Other code starts after that end.

/// Waits for everything enqueued before the kernel. Every kernel calls this
/// first (a test checks), except for finding out what it has to do.
__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Lets the blocks of the next kernel come as soon as there is room for them,
/// as each block does anyway when it ends. Called earlier only in kernels of
/// few blocks, or where the next kernel has few: where both have many, those
/// that come early spread unevenly over the free room, and the multiprocessors
/// with most of them end last.
__device__ inline void let_next_kernel_come() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// Whether the code that the current device runs waits by itself: a binary may
/// have only older code that the device can run.
/// @param kernel  any kernel of the library; all are compiled for the same
///                targets.
inline bool waits_by_itself(int device_index, const void* kernel) {
  static std::atomic<std::uint64_t> asked{0};
  static std::atomic<std::uint64_t> waits{0};
  auto bit = device_index < 64 ? std::uint64_t{1} << device_index : 0;
  if ((asked.load(std::memory_order_acquire) & bit) != 0)
    return (waits.load(std::memory_order_relaxed) & bit) != 0;
  cudaFuncAttributes found{};
  if (cudaFuncGetAttributes(&found, kernel) != cudaSuccess) {
    // The launch says why.
    (void) cudaGetLastError();
    return false;
  }
  constexpr int version_that_waits = 90;
  auto result = found.ptxVersion >= version_that_waits;
  waits.fetch_or(result ? bit : 0, std::memory_order_relaxed);
  asked.fetch_or(bit, std::memory_order_release);
  return result;
}

/// Blocks of a grid, or threads of a block: in one dimension or two.
struct launch_size {
  std::int64_t x = 1;
  std::int64_t y = 1;

  launch_size(std::int64_t along_x) : x{along_x} {}
  launch_size(std::int64_t along_x, std::int64_t along_y)
      : x{along_x},
        y{along_y} {}

  explicit operator dim3() const {
    return {unsigned(x), unsigned(y)};
  }
};

/// Enqueues `kernel` on the stream of `scope`.
/// @param name  the kernel's, for errors.
/// @throws error `invalid_argument` if the tensor needs more blocks than a
///         grid can have, `device_failure` if the launch fails.
template <class... Parameters, class... Arguments>
void launch(const device_scope& scope, std::string_view name,
            void (*kernel)(Parameters...), launch_size blocks,
            launch_size threads, Arguments&&... arguments) {
  constexpr auto most_x = std::int64_t{std::numeric_limits<int>::max()};
  constexpr auto most_y = std::int64_t{65535};
  if (blocks.x > most_x || blocks.y > most_y) {
    auto wide = blocks.x > most_x;
    throw error{errc::invalid_argument,
                std::string{scope.operation()} + ": " + std::string{name}
                    + ": expected a tensor that takes at most "
                    + std::to_string(wide ? most_x : most_y) + " blocks"
                    + (wide ? "" : " for a channel") + ", got "
                    + std::to_string(wide ? blocks.x : blocks.y)};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = scope.stream();
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  if (waits_by_itself(scope.device_index(),
                      reinterpret_cast<const void*>(kernel))) {
    config.attrs = &early;
    config.numAttrs = 1;
  }
  scope.check(cudaLaunchKernelEx(&config, kernel,
                                 std::forward<Arguments>(arguments)...),
              name);
}

} // namespace syncnorm::cuda
