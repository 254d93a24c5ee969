// The public functions on the CPU, by the rules that the CUDA kernels keep.

#include "tests/kernels/cuda_library.hpp"

static syncnorm::testing::backend& backend_under_test() {
  static syncnorm::testing::cpu_backend ops;
  return ops;
}

#include "tests/kernels/cuda_suite.hpp"
