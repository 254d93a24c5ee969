#include "tests/kernels/cuda_agreement.hpp"

#include "tests/kernels/cuda_emulation.hpp"
#include "tests/kernels/cuda_library.hpp"

using namespace syncnorm::testing;

TEST_CASE("the CPU kernels and the emulated CUDA kernels agree on a layer, "
          "forward and backward") {
  cpu_backend cpu;
  emulated_backend emulated;
  check_agreement_everywhere(cpu, emulated);
}
