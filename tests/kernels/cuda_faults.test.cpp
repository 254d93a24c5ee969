// What the CUDA backend makes of a runtime that fails: a runtime of our own, in
// the place of CUDA's.

#include "kernels/backend.hpp"
#include "kernels/cuda/runtime.hpp"
#include "syncnorm/error.hpp"

#include <cuda.h>
#include <doctest/doctest.h>

#include <string>

namespace {

/// What every call gives back.
cudaError_t answer = cudaSuccess;

int current = 0;

cudaError_t give(int value, int* out) {
  if (answer == cudaSuccess)
    *out = value;
  return answer;
}

} // namespace

extern "C" {

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  return give(2, count);
}

cudaError_t CUDARTAPI cudaGetDevice(int* index) {
  return give(current, index);
}

cudaError_t CUDARTAPI cudaSetDevice(int index) {
  return give(index, &current);
}

cudaError_t CUDARTAPI cudaGetLastError() {
  return answer;
}

const char* CUDARTAPI cudaGetErrorName(cudaError_t status) {
  return status == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress"
                                           : "another error";
}

const char* CUDARTAPI cudaGetErrorString(cudaError_t) {
  return "what it means";
}

#if CUDART_VERSION >= 12080
cudaError_t CUDARTAPI cudaStreamGetDevice(cudaStream_t, int* index) {
  return give(1, index);
}

cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t,
                                            cudaStreamCaptureStatus* status) {
  *status = capturing;
  return answer;
}
#endif

#if CUDART_VERSION >= 12050
int has_been_used = 1;

static CUresult CUDAAPI get_state(CUdevice, unsigned*, int* active) {
  *active = has_been_used;
  return CUDA_SUCCESS;
}

cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(
    const char*, void** found, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult* result) {
  *found = reinterpret_cast<void*>(&get_state);
  *result = cudaDriverEntryPointSuccess;
  return answer;
}
#endif

} // extern "C"

namespace {

using namespace syncnorm;

void check_throws(errc code, const std::string& text, const execution& run) {
  try {
    cuda::device_scope scope{run, "normalize"};
    FAIL_CHECK("nothing was thrown");
  } catch (const error& e) {
    CHECK(e.code() == code);
    CHECK(e.what() == "normalize: " + text);
  }
}

const execution on_first{{device_type::cuda, 0}, nullptr, nullptr};

} // namespace

TEST_CASE(
    "what earlier work has done to a device is device_failure, before and "
    "after devices were counted") {
  answer = cudaErrorInsufficientDriver;
  CHECK(cuda::device_count() == 0);
  check_throws(errc::device_unavailable,
               "run.where: expected one of 0 CUDA devices, got cuda:0",
               on_first);

  answer = cudaErrorIllegalAddress;
  CHECK(cuda::device_count() == 0);
  check_throws(errc::device_failure,
               "cudaGetDeviceCount on cuda:0: expected success, got "
               "cudaErrorIllegalAddress (what it means)",
               on_first);

  answer = cudaSuccess;
  CHECK(cuda::device_count() == 2);
  CHECK_NOTHROW(cuda::device_scope(on_first, "normalize"));

  answer = cudaErrorIllegalAddress;
  CHECK(cuda::device_count() == 2);
  check_throws(errc::device_failure,
               "cudaGetDevice on cuda:0: expected success, got "
               "cudaErrorIllegalAddress (what it means)",
               on_first);
  check_throws(errc::device_unavailable,
               "run.where: expected one of 2 CUDA devices, got cuda:2",
               {{device_type::cuda, 2}, nullptr, nullptr});
}

#if CUDART_VERSION >= 12080
TEST_CASE("a stream of another device is refused") {
  answer = cudaSuccess;
  int any = 0;
  check_throws(errc::device_mismatch,
               "run.stream: expected a stream of cuda:0, got one of cuda:1",
               {{device_type::cuda, 0}, &any, nullptr});
  CHECK_NOTHROW(
      cuda::device_scope({{device_type::cuda, 1}, &any, nullptr}, "normalize"));
}

TEST_CASE("a stream that a graph captures is not asked for its device, which "
          "CUDA refuses") {
  answer = cudaSuccess;
  capturing = cudaStreamCaptureStatusActive;
  int any = 0;
  CHECK_NOTHROW(
      cuda::device_scope({{device_type::cuda, 0}, &any, nullptr}, "normalize"));
  capturing = cudaStreamCaptureStatusNone;
}
#endif

#if CUDART_VERSION >= 12050
TEST_CASE("the device of before is current again, unless nobody has used it") {
  answer = cudaSuccess;
  execution on_second{{device_type::cuda, 1}, nullptr, nullptr};
  for (auto used : {1, 0}) {
    current = 0;
    has_been_used = used;
    {
      cuda::device_scope scope{on_second, "normalize"};
      CHECK(current == 1);
    }
    CHECK(current == (used ? 0 : 1));
  }
}
#endif
