#include "kernels/cuda/runtime.hpp"

#include "kernels/backend.hpp"
#include "syncnorm/error.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include <atomic>

namespace syncnorm::cuda {

namespace {

struct device_census {
  int count = 0;
  cudaError_t status = cudaSuccess;
};

/// Asks until there is an answer, and not again: later, the runtime may answer
/// with the failure of work enqueued before.
device_census count_devices() noexcept {
  static std::atomic<int> known{-1};
  device_census result{known.load(std::memory_order_relaxed)};
  if (result.count >= 0)
    return result;
  result.status = cudaGetDeviceCount(&result.count);
  if (result.status == cudaSuccess) {
    known.store(result.count, std::memory_order_relaxed);
    return result;
  }
  // Cleared, so that nobody else finds it.
  (void) cudaGetLastError();
  result.count = 0;
  return result;
}

bool means_no_device(cudaError_t status) noexcept {
  return status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver
         || status == cudaErrorStubLibrary;
}

/// Whether somebody has used the device in this process. From CUDA 12 on,
/// making a device current uses it; before, and where the driver cannot be
/// asked, the answer is yes.
bool has_context(int index) noexcept {
#if CUDART_VERSION >= 12050
  using get_state = CUresult (*)(CUdevice, unsigned*, int*);
  static const auto ask = []() noexcept -> get_state {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    auto status = cudaGetDriverEntryPointByVersion(
        "cuDevicePrimaryCtxGetState", &found, 7000, cudaEnableDefault, &result);
    if (status == cudaSuccess && result == cudaDriverEntryPointSuccess)
      return reinterpret_cast<get_state>(found);
    (void) cudaGetLastError();
    return nullptr;
  }();
  unsigned flags = 0;
  int active = 1;
  if (ask != nullptr && ask(index, &flags, &active) != CUDA_SUCCESS)
    return true;
  return active != 0;
#else
  (void) index;
  return true;
#endif
}

} // namespace

int device_count() noexcept {
  return count_devices().count;
}

void check(cudaError_t status, std::string_view operation,
           std::string_view call, const device& where) {
  if (status == cudaSuccess)
    return;
  (void) cudaGetLastError();
  throw error{errc::device_failure,
              fmt::format("{}: {} on {}: expected success, got {} ({})",
                          operation, call, to_string(where),
                          cudaGetErrorName(status),
                          cudaGetErrorString(status))};
}

current_device::current_device(int index) noexcept {
  int current = -1;
  status_ = cudaGetDevice(&current);
  if (status_ == cudaSuccess && current == index)
    return;
  if (status_ == cudaSuccess) {
    call_ = "cudaSetDevice";
    status_ = cudaSetDevice(index);
  }
  if (status_ == cudaSuccess)
    previous_ = current;
  else
    (void) cudaGetLastError();
}

current_device::~current_device() {
  if (previous_ >= 0 && has_context(previous_))
    (void) cudaSetDevice(previous_);
}

device_scope::device_scope(const execution& run, std::string_view operation)
    : where_{run.where},
      stream_{static_cast<cudaStream_t>(run.stream)},
      operation_{operation},
      current_{available()} {
  check(current_.status(), current_.call());
  check_stream();
}

int device_scope::available() const {
  auto [count, status] = count_devices();
  if (!means_no_device(status))
    check(status, "cudaGetDeviceCount");
  if (where_.index < 0 || where_.index >= count)
    throw error{errc::device_unavailable,
                fmt::format("{}: run.where: expected one of {} CUDA devices, "
                            "got {}",
                            operation_, count, to_string(where_))};
  return where_.index;
}

void device_scope::check_stream() const {
#if CUDART_VERSION >= 12080
  if (stream_ == nullptr || stream_ == cudaStreamLegacy
      || stream_ == cudaStreamPerThread)
    return;
  // A stream that a graph captures cannot be asked for its device; its launches
  // fail.
  auto capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream_, &capture), "cudaStreamIsCapturing");
  if (capture != cudaStreamCaptureStatusNone)
    return;
  int index = -1;
  auto status = cudaStreamGetDevice(stream_, &index);
  if (status == cudaErrorCallRequiresNewerDriver) {
    (void) cudaGetLastError();
    return;
  }
  check(status, "cudaStreamGetDevice");
  if (index != where_.index)
    throw error{errc::device_mismatch,
                fmt::format("{}: run.stream: expected a stream of {}, got one "
                            "of {}",
                            operation_, to_string(where_),
                            to_string(device{device_type::cuda, index}))};
#endif
}

} // namespace syncnorm::cuda
