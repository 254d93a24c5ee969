#pragma once

#include "kernels/cuda/runtime.hpp"
#include "syncnorm/error.hpp"

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace syncnorm::cuda {

/// Enqueues `kernel` with a grid of one dimension on the stream of `scope`.
/// @param name  the kernel's, for errors.
/// @throws error `invalid_argument` if the tensor needs more blocks than a
///         grid can have, `device_failure` if the launch fails.
template <class... Parameters, class... Arguments>
void launch(const device_scope& scope, std::string_view name,
            void (*kernel)(Parameters...), std::int64_t blocks, int threads,
            Arguments&&... arguments) {
  constexpr auto most = std::int64_t{std::numeric_limits<int>::max()};
  if (blocks > most)
    throw error{errc::invalid_argument,
                std::string{scope.operation()} + ": " + std::string{name}
                    + ": expected a tensor that takes at most "
                    + std::to_string(most) + " blocks, got "
                    + std::to_string(blocks)};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3{unsigned(blocks)};
  config.blockDim = dim3{unsigned(threads)};
  config.stream = scope.stream();
  scope.check(cudaLaunchKernelEx(&config, kernel,
                                 std::forward<Arguments>(arguments)...),
              name);
}

} // namespace syncnorm::cuda
