// For a libtorch with CUDA, and kernels with CUDA.

#include "actors/nn/torch_devices.hpp"
#include "syncnorm/device_runtime.hpp"

#include <c10/cuda/CUDAStream.h>

namespace syncnorm::nn::detail {

device_access access_of_build() {
  return {&cuda_runtime(),
          [](std::int32_t index) -> void* {
            return c10::cuda::getCurrentCUDAStream(
                       static_cast<c10::DeviceIndex>(index))
                .stream();
          },
          {}};
}

} // namespace syncnorm::nn::detail
