#pragma once

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/batch_norm_messages.hpp"
#include "syncnorm/batch_norm_options.hpp"
#include "syncnorm/detail/host_copy.hpp"
#include "syncnorm/device_array.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace syncnorm::detail {

/// Scratch memory for the kernels of a replica on a device. A copy begins with
/// none: a reduction is two launches, and no other replica's may come between
/// them.
class kernel_scratch {
public:
  kernel_scratch() = default;
  kernel_scratch(kernel_scratch&&) = default;
  kernel_scratch& operator=(kernel_scratch&&) = delete;
  ~kernel_scratch() = default;
  /// Begins with none.
  kernel_scratch(const kernel_scratch&) {}
  /// Drops its memory: it may be for another device or stream now.
  kernel_scratch& operator=(const kernel_scratch&) {
    memory_ = {};
    return *this;
  }

  /// Returns at least `bytes` bytes, the earlier ones if they suffice.
  [[nodiscard]] workspace take(const device_stream& stream, std::size_t bytes);

private:
  device_array memory_;
};

/// The arrays of a replica on a device, and its kernels. Each function enqueues
/// on the replica's stream and returns; nothing waits for the device. An array
/// is written only once: its holders keep its values.
class device_share {
public:
  /// weight, bias, running statistics (means, then variances, online M2 in
  /// their place), and the gradients of weight and bias. A slot that a layer
  /// does not have, or whose gradient is zero, holds no array.
  enum slot : std::size_t {
    weight,
    bias,
    running,
    weight_gradient,
    bias_gradient,
    slots
  };

  /// @param stream of the options' device.
  device_share(const batch_norm_options& options, device_stream stream);

  [[nodiscard]] const device_stream& stream() const noexcept {
    return stream_;
  }

  [[nodiscard]] const device_array& array(slot which) const noexcept {
    return arrays_[which];
  }

  /// Replaces an array by a new one of `values`, rounded; no values: no array.
  void write(slot which, std::span<const double> values);

  /// Replaces an array by a copy in which `values` stand from `first` on.
  void write_part(slot which, std::size_t first,
                  std::span<const double> values);

  // -- forward ----------------------------------------------------------------

  /// Means and M2 of each of `xs`, one after the other, online in float64; sets
  /// the counts of `message`.
  [[nodiscard]] device_array moments(std::span<const const_tensor_view> xs,
                                     batch_norm_message& message);

  /// The values of a reply, on this device and of the statistics' type.
  [[nodiscard]] device_array receive(const channel_payload& values);

  /// Mean and inverse standard deviation for evaluation.
  /// @param count number of elements that running M2 covers, 1 where it is a
  ///              variance; 0: nothing was seen.
  [[nodiscard]] device_array running_tape(std::int64_t count);

  void normalize(const const_tensor_view& x, const device_array& tape,
                 const tensor_view& y);

  /// Adopts a reply's running statistics.
  void take_over(const channel_payload& values);

  // -- backward ---------------------------------------------------------------

  /// The sums of dy, those of clamped channels cleared; keeps the gradients
  /// for `add_gradients`.
  [[nodiscard]] device_array sums(const const_tensor_view& x,
                                  const const_tensor_view& dy,
                                  const device_array& tape);

  /// Sets dx.
  void input_gradient(const const_tensor_view& x, const const_tensor_view& dy,
                      const device_array& tape, const device_array& totals,
                      std::int64_t count, const tensor_view& dx);

  /// Adds the gradients of the last `sums`.
  void add_gradients();

  /// Puts an earlier array back.
  void restore(slot which, const device_array& before) {
    arrays_[which] = before;
  }

private:
  [[nodiscard]] device_runtime& runtime() const noexcept {
    return stream_.runtime();
  }

  [[nodiscard]] device_array make(std::size_t size) const {
    return {stream_, type_, size};
  }

  [[nodiscard]] dtype type_of(slot which) const noexcept {
    return which == running ? moments_type_ : type_;
  }

  /// `x` on this device and of the statistics' type.
  [[nodiscard]] device_array rounded(const device_array& x) const;

  [[nodiscard]] workspace scratch(std::size_t bytes) {
    return scratch_.take(stream_, bytes);
  }

  void add_gradient(slot which, device_array& pending);

  device_stream stream_;
  /// Of the statistics that the kernels take, and of the parameters.
  dtype type_;
  /// Of moments and running statistics: online float64, as on the CPU.
  dtype moments_type_;
  std::int64_t channels_;
  double eps_;
  eps_mode mode_;
  bool has_gradients_;
  std::array<device_array, slots> arrays_;
  device_array pending_weight_;
  device_array pending_bias_;
  kernel_scratch scratch_;
  upload_memory uploads_;
};

} // namespace syncnorm::detail
