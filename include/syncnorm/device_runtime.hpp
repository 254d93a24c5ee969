#pragma once

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/execution.hpp"
#include "syncnorm/moments.hpp"
#include "syncnorm/tensor_view.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace syncnorm {

/// What the actors need from a device other than the CPU: streams, events,
/// memory, copies and the kernels. `cuda_runtime` is the one for CUDA devices;
/// a test may use another instead. Streams and events are opaque.
///
/// All functions may be called from any thread. `synchronize` waits for the
/// device, and `allocate_pinned` and `release_pinned` may, as CUDA's own do;
/// all others enqueue or query, and return.
/// @throws error all functions but those marked noexcept: `device_unavailable`,
///         `device_mismatch`, `device_failure`; kernels also as the functions
///         that they call.
class device_runtime {
public:
  device_runtime() = default;
  device_runtime(const device_runtime&) = delete;
  device_runtime& operator=(const device_runtime&) = delete;
  virtual ~device_runtime() = default;

  /// Returns normally if `where` is there.
  /// @throws error `device_unavailable`, naming the device and what there is.
  virtual void require(const device& where) = 0;

  // -- streams ----------------------------------------------------------------

  /// A stream that does not wait for the device's default stream.
  [[nodiscard]] virtual void* make_stream(const device& where) = 0;

  /// Ends a stream; work that is already enqueued is still done.
  virtual void end_stream(const device& where, void* stream) noexcept = 0;

  // -- events -----------------------------------------------------------------

  /// An event that is waited for without spinning, and records no time.
  [[nodiscard]] virtual void* make_event(const device& where) = 0;

  /// Ends what `make_event` has made.
  virtual void end_event(const device& where, void* event) noexcept = 0;

  /// The event passes when the stream of `run` has come here.
  virtual void record(const execution& run, void* event) = 0;

  /// The stream of `run` waits here for the event, of any device. The calling
  /// thread does not.
  virtual void wait(const execution& run, void* event) = 0;

  /// Whether the event has passed.
  [[nodiscard]] virtual bool has_passed(const device& where, void* event) = 0;

  /// The calling thread waits for the event, without deadline.
  virtual void synchronize(const device& where, void* event) = 0;

  // -- memory -----------------------------------------------------------------

  /// Memory of the device, valid from here on in the stream of `run`, aligned
  /// to 256 bytes.
  [[nodiscard]] virtual void* allocate(const execution& run,
                                       std::size_t bytes) = 0;

  /// Gives the memory back when the stream has come here.
  virtual void release(const execution& run, void* memory) noexcept = 0;

  /// Pinned host memory: copies between it and a device can be enqueued without
  /// waiting.
  [[nodiscard]] virtual void* allocate_pinned(const device& where,
                                              std::size_t bytes) = 0;

  /// Gives back what `allocate_pinned` has made for that device.
  virtual void release_pinned(const device& where, void* memory) noexcept = 0;

  /// Copies, in the stream of `run`, between memory of any two devices; host
  /// memory must be pinned.
  virtual void copy(const execution& run, void* to, const device& to_where,
                    const void* from, const device& from_where,
                    std::size_t bytes) = 0;

  // -- kernels ----------------------------------------------------------------

  // Each does what the function of the same name does, which it calls.

  /// As `syncnorm::batch_moments_workspace`, on the device.
  [[nodiscard]] virtual std::size_t
  batch_moments_workspace(const tensor_layout& x);

  /// As `syncnorm::batch_moments`, on the device.
  virtual void batch_moments(const execution& run, const const_tensor_view& x,
                             moments_view& out, const workspace& scratch);

  /// As `syncnorm::merge_moments`, on the device.
  virtual void merge_moments(const execution& run,
                             std::span<const const_moments_view> parts,
                             moments_view& out);

  /// As `syncnorm::finalize_moments`, on the device.
  virtual void finalize_moments(const execution& run,
                                const const_moments_view& total,
                                const finalize_options& options, void* mean,
                                void* inv_std, const running_view& running);

  /// As `syncnorm::normalize`, on the device.
  virtual void normalize(const execution& run, const const_tensor_view& x,
                         const channel_parameters& parameters,
                         const tensor_view& y);

  /// As `syncnorm::backward_reduce_workspace`, on the device.
  [[nodiscard]] virtual std::size_t
  backward_reduce_workspace(const tensor_layout& x);

  /// As `syncnorm::backward_reduce`, on the device.
  virtual void backward_reduce(const execution& run,
                               const const_tensor_view& dy,
                               const const_tensor_view& x,
                               const channel_parameters& parameters,
                               const backward_sums& out,
                               const workspace& scratch);

  /// As `syncnorm::backward_input`, on the device.
  virtual void backward_input(const execution& run, const const_tensor_view& dy,
                              const const_tensor_view& x,
                              const channel_parameters& parameters,
                              const total_sums& sums, const tensor_view& dx);

  /// As `syncnorm::add_arrays`, on the device.
  virtual void add_arrays(const execution& run,
                          std::span<const void* const> parts,
                          std::int64_t elements, dtype type, void* out);

  /// As `syncnorm::round_array`, on the device.
  virtual void round_array(const execution& run, const double* from,
                           std::int64_t elements, float* out);

  /// As `syncnorm::clear_clamped`, on the device.
  virtual void clear_clamped(const execution& run, const void* inv_std,
                             double eps, std::int64_t channels, dtype type,
                             void* sum_dy_xmu);
};

/// The runtime of CUDA devices. Its only state is a memory pool for each
/// device, which keeps at most 1 GiB of idle memory. Its functions throw
/// `invalid_argument` for `cudaStreamPerThread`, which is a different stream in
/// each thread.
/// @throws error `device_unavailable` in a build without CUDA.
[[nodiscard]] device_runtime& cuda_runtime();

} // namespace syncnorm
