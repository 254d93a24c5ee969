#include "tests/kernels/cuda_agreement.hpp"

#include "tests/kernels/cuda_device.hpp"

using namespace syncnorm::testing;

TEST_CASE("the CPU and the GPU agree on a layer, forward and backward") {
  cpu_backend cpu;
  cuda_backend gpu;
  check_agreement_everywhere(cpu, gpu);
}
