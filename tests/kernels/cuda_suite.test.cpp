// The public functions on a GPU.

#include "tests/kernels/cuda_device.hpp"

static syncnorm::testing::backend& backend_under_test() {
  static syncnorm::testing::cuda_backend ops;
  return ops;
}

#include "tests/kernels/cuda_suite.hpp"
