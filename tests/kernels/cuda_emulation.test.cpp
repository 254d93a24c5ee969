// The CUDA kernels, run thread by thread on the host.

#include "tests/kernels/cuda_emulation.hpp"

static syncnorm::testing::backend& backend_under_test() {
  static syncnorm::testing::emulated_backend ops;
  return ops;
}

#include "tests/kernels/cuda_suite.hpp"
