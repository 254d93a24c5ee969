// For a libtorch, or kernels, without CUDA.

#include "actors/nn/torch_devices.hpp"

namespace syncnorm::nn::detail {

device_access access_of_build() {
  return {nullptr, nullptr,
          "this build of syncnorm::torch has no CUDA: it needs a libtorch with "
          "CUDA and SYNCNORM_ENABLE_CUDA"};
}

} // namespace syncnorm::nn::detail
