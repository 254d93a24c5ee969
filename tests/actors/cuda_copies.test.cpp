// Copies on GPUs.

#include "syncnorm/device_runtime.hpp"

#include <vector>

namespace {

syncnorm::device_runtime& runtime_under_test() {
  return syncnorm::cuda_runtime();
}

std::vector<syncnorm::device> places() {
  auto result = syncnorm::devices();
  result.erase(result.begin());
  return result;
}

} // namespace

#include "tests/actors/device_cases.hpp"
#include "tests/actors/device_host_tensor_cases.hpp"
#include "tests/actors/device_online_cases.hpp"
#include "tests/actors/device_together_cases.hpp"
