#include "syncnorm/device_runtime.hpp"

#include "kernels/backend.hpp"
#include "kernels/cuda/runtime.hpp"
#include "syncnorm/error.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace syncnorm::cuda {

namespace {

cudaEvent_t event_of(void* event) {
  return static_cast<cudaEvent_t>(event);
}

/// For a call that gives something back, whose failure nobody is told, not even
/// whoever asks for the last error next.
void forget(cudaError_t status) noexcept {
  if (status != cudaSuccess)
    (void) cudaGetLastError();
}

/// A stream that is the same one whatever thread uses it: actors and arrays
/// change threads.
class stream_scope : public device_scope {
public:
  /// @throws error as `device_scope`; `invalid_argument` for another stream.
  stream_scope(const execution& run, std::string_view operation)
      : device_scope{run, operation} {
    if (stream() == cudaStreamPerThread)
      throw error{errc::invalid_argument,
                  std::string{operation}
                      + ": run.stream: expected a stream that is the same for "
                        "all threads, got cudaStreamPerThread"};
  }
};

/// The memory pools of the devices, made at first use. They keep enough of the
/// memory given back that a round does not go to the driver for more.
class memory_pools {
public:
  cudaMemPool_t of(const device_scope& scope, const device& where) {
    if (std::size_t(where.index) >= pools_.size())
      throw error{errc::device_unavailable,
                  "allocate: expected one of the first "
                      + std::to_string(pools_.size()) + " CUDA devices, got "
                      + to_string(where)};
    auto& slot = pools_[std::size_t(where.index)];
    auto* pool = slot.load(std::memory_order_acquire);
    if (pool != nullptr)
      return pool;
    auto* made = make(scope, where);
    if (slot.compare_exchange_strong(pool, made, std::memory_order_acq_rel))
      return made;
    forget(cudaMemPoolDestroy(made));
    return pool;
  }

private:
  static cudaMemPool_t make(const device_scope& scope, const device& where) {
    int supported = 0;
    scope.check(cudaDeviceGetAttribute(
                    &supported, cudaDevAttrMemoryPoolsSupported, where.index),
                "cudaDeviceGetAttribute");
    if (supported == 0)
      throw error{errc::device_unavailable,
                  "allocate: expected a device with memory pools, got "
                      + to_string(where) + ", whose driver has none"};
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = where.index;
    cudaMemPool_t pool = nullptr;
    scope.check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
    auto keep = kept_bytes;
    auto status =
        cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
    if (status != cudaSuccess)
      forget(cudaMemPoolDestroy(pool));
    scope.check(status, "cudaMemPoolSetAttribute");
    for (int peer = 0; peer < device_count(); ++peer)
      if (peer != where.index)
        let_in(pool, where.index, peer);
    return pool;
  }

  /// Lets copies between two devices bypass the host. Where that is not
  /// possible, they go through it.
  static void let_in(cudaMemPool_t pool, int home, int peer) noexcept {
    int can = 0;
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = peer;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    if (cudaDeviceCanAccessPeer(&can, peer, home) != cudaSuccess
        || (can != 0 && cudaMemPoolSetAccess(pool, &access, 1) != cudaSuccess))
      (void) cudaGetLastError();
  }

  /// Idle memory of a device beyond this goes back to the driver, where
  /// libtorch and others find it.
  static constexpr std::uint64_t kept_bytes = std::uint64_t{1} << 30U;

  std::array<std::atomic<cudaMemPool_t>, 128> pools_{};
};

class cuda_device_runtime final : public device_runtime {
public:
  void require(const device& where) override {
    require_available(where);
  }

  void* make_stream(const device& where) override {
    device_scope scope{{where, nullptr}, "make_stream"};
    cudaStream_t stream = nullptr;
    scope.check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                "cudaStreamCreateWithFlags");
    return stream;
  }

  void end_stream(const device& where, void* stream) noexcept override {
    current_device here{where.index};
    forget(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
  }

  void* make_event(const device& where) override {
    device_scope scope{{where, nullptr}, "make_event"};
    cudaEvent_t event = nullptr;
    scope.check(cudaEventCreateWithFlags(&event, cudaEventBlockingSync
                                                     | cudaEventDisableTiming),
                "cudaEventCreateWithFlags");
    return event;
  }

  void end_event(const device& where, void* event) noexcept override {
    current_device here{where.index};
    forget(cudaEventDestroy(event_of(event)));
  }

  void record(const execution& run, void* event) override {
    stream_scope scope{run, "record"};
    scope.check(cudaEventRecord(event_of(event), scope.stream()),
                "cudaEventRecord");
  }

  void wait(const execution& run, void* event) override {
    stream_scope scope{run, "wait"};
    scope.check(cudaStreamWaitEvent(scope.stream(), event_of(event), 0),
                "cudaStreamWaitEvent");
  }

  bool has_passed(const device& where, void* event) override {
    device_scope scope{{where, nullptr}, "has_passed"};
    auto status = cudaEventQuery(event_of(event));
    if (status == cudaErrorNotReady) {
      (void) cudaGetLastError();
      return false;
    }
    scope.check(status, "cudaEventQuery");
    return true;
  }

  void synchronize(const device& where, void* event) override {
    device_scope scope{{where, nullptr}, "synchronize"};
    scope.check(cudaEventSynchronize(event_of(event)), "cudaEventSynchronize");
  }

  void* allocate(const execution& run, std::size_t bytes) override {
    stream_scope scope{run, "allocate"};
    void* memory = nullptr;
    scope.check(cudaMallocFromPoolAsync(&memory, bytes,
                                        pools_.of(scope, run.where),
                                        scope.stream()),
                "cudaMallocFromPoolAsync");
    return memory;
  }

  void release(const execution& run, void* memory) noexcept override {
    current_device here{run.where.index};
    forget(cudaFreeAsync(memory, static_cast<cudaStream_t>(run.stream)));
  }

  void* allocate_pinned(const device& where, std::size_t bytes) override {
    device_scope scope{{where, nullptr}, "allocate_pinned"};
    void* memory = nullptr;
    // Portable: usable by every device.
    scope.check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable),
                "cudaHostAlloc");
    return memory;
  }

  void release_pinned(const device& where, void* memory) noexcept override {
    // The calling thread's device may be one that nobody uses.
    current_device here{where.index};
    forget(cudaFreeHost(memory));
  }

  void copy(const execution& run, void* to, const device& to_where,
            const void* from, const device& from_where,
            std::size_t bytes) override {
    stream_scope scope{run, "copy"};
    auto across = to_where.type == device_type::cuda
                  && from_where.type == device_type::cuda
                  && to_where.index != from_where.index;
    if (across)
      scope.check(cudaMemcpyPeerAsync(to, to_where.index, from,
                                      from_where.index, bytes, scope.stream()),
                  "cudaMemcpyPeerAsync");
    else
      scope.check(
          cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, scope.stream()),
          "cudaMemcpyAsync");
  }

private:
  memory_pools pools_;
};

} // namespace

device_runtime& runtime() {
  // Never destroyed: arrays may be given back as late as static destructors.
  static auto* const instance = new cuda_device_runtime;
  return *instance;
}

} // namespace syncnorm::cuda
