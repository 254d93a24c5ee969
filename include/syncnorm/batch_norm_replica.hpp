#pragma once

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/batch_norm_messages.hpp"
#include "syncnorm/batch_norm_options.hpp"
#include "syncnorm/batch_norm_tape.hpp"
#include "syncnorm/channel_array.hpp"
#include "syncnorm/detail/device_share.hpp"
#include "syncnorm/detail/learned_statistics.hpp"
#include "syncnorm/tensor_view.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace syncnorm {

namespace detail {

class batch_norm_slave;
class pass_arguments;

} // namespace detail

/// One replica's share of a batch-norm layer: its state, and everything in a
/// pass except the exchange with the other replicas. A pass that needs the
/// exchange has two halves: `begin_*` makes the message, `end_*` takes the
/// reply. Between them, no other pass may begin. `batch_norm_layer` and
/// `batch_norm_stage` put the exchange between the halves.
///
/// On a CUDA device, a pass enqueues its kernels on the options' stream and
/// returns: tensors must stay valid until the stream has completed the pass,
/// and the message contains arrays of the device.
///
/// Only one thread may use it at a time.
class batch_norm_replica {
public:
  /// weight 1, bias 0, running mean 0, running variance 1, no batches. An
  /// online replica, too, uses mean 0 and variance 1 until it has seen
  /// something.
  /// @throws error as `batch_norm_options::validate`; `device_failure`.
  explicit batch_norm_replica(batch_norm_options options);

  /// What the layer is.
  [[nodiscard]] const batch_norm_options& options() const noexcept {
    return options_;
  }

  /// Switches to training (a new replica is in training) or to evaluation.
  void train(bool on) noexcept {
    training_ = on;
  }

  /// Whether it is in training, not in evaluation.
  [[nodiscard]] bool is_training() const noexcept {
    return training_;
  }

  /// Where the passes are enqueued; none on the CPU.
  [[nodiscard]] const device_stream& stream() const noexcept {
    return options_.stream;
  }

  // -- state ------------------------------------------------------------------

  /// `weight`, `bias`, `running_mean`, `running_var`, `num_batches_tracked`, as
  /// far as the layer has them, for reading and writing. If online,
  /// `running_m2`, the sum of squared deviations, replaces the variance, and
  /// `num_elements_tracked` counts its elements per channel; mean and M2 are
  /// then float64. These are the replica's own arrays, until it is moved,
  /// assigned or destroyed.
  ///
  /// On a CUDA device, they are copied to the host now, and the calling thread
  /// waits for that. What is written to them before the next pass, or the next
  /// half of a pass, takes effect in it; what is written later is lost.
  /// @throws error `device_failure`.
  [[nodiscard]] std::vector<named_array> state();

  /// The gradients of `weight` and `bias` under these names, summed up since
  /// the last `zero_gradients`. They are of this replica only; the trainer's
  /// reduction adds or averages them. On a CUDA device, as `state`.
  [[nodiscard]] std::vector<named_array> gradients();

  /// Sets the gradients of weight and bias to 0.
  void zero_gradients();

  /// Takes over state, gradients and training flag of `other`, a replica with
  /// the same arrays, on any device. `other` itself is not changed. If one of
  /// the two is on a CUDA device, the calling thread waits for the device, as
  /// in `state`.
  /// @throws error `shape_mismatch` if one replica has an array that the other
  ///         lacks or has in another size (nothing is written then); as
  ///         `state`.
  void assign_state(const batch_norm_replica& other);

  /// Batches that the running statistics have seen; a batch without an element
  /// in any copy does not count.
  [[nodiscard]] std::int64_t num_batches_tracked() const noexcept {
    return num_batches_tracked_;
  }

  // -- forward ----------------------------------------------------------------

  /// True if a forward pass uses the statistics of all replicas.
  [[nodiscard]] bool exchanges() const noexcept {
    return training_ && !options_.frozen;
  }

  /// A pass without exchange: in evaluation, if frozen, or of the only replica.
  /// Sets y.
  /// @param x, y  `[N, C, S]` of the options' channels and dtype and of one
  ///              layout; y may be x, as `normalize` says.
  /// @param reused  a tape that nobody needs any more; its memory is reused.
  /// @throws error `shape_mismatch`, `dtype_mismatch`, `device_mismatch`,
  ///         `invalid_argument`; in training `malformed_message` if a counter
  ///         of the state is negative, or if another batch or its elements
  ///         would take it past 2^63 - 1; nothing is written then. Also
  ///         `device_failure`.
  batch_norm_tape forward_alone(const const_tensor_view& x,
                                const tensor_view& y,
                                batch_norm_tape reused = {});

  /// The first half: the moments of x. The master checks the counters.
  /// @throws error `shape_mismatch`, `dtype_mismatch`, `device_mismatch`,
  ///         `invalid_argument`, `device_failure`.
  [[nodiscard]] batch_norm_message begin_forward(const const_tensor_view& x,
                                                 const tensor_view& y);

  /// Only the moments of x, which a replica on the CPU may compute while
  /// another pass is between its halves. `add_update` completes the message.
  /// @throws error as `begin_forward`.
  [[nodiscard]] batch_norm_message measure(const const_tensor_view& x);

  /// The same for several batches that share a message. Each batch gets
  /// statistics of its own, as in passes one after the other.
  /// @throws error as `begin_forward`; `invalid_argument` for no batch.
  [[nodiscard]] batch_norm_message
  measure(std::span<const const_tensor_view> xs);

  /// Adds to a message of `measure` what depends on the passes before it: the
  /// running statistics and their counters.
  /// @throws error `device_failure`.
  void add_update(batch_norm_message& message);

  /// The second half: takes over the running statistics and the number of
  /// batches, then sets y, as `accept` and `apply` do.
  /// @param x, y  those of the first half.
  /// @throws error `malformed_message` for a reply with statistics of another
  ///         size; nothing is written then; as `apply`.
  batch_norm_tape end_forward(const batch_norm_reply& reply,
                              const const_tensor_view& x, const tensor_view& y);

  /// The second half except y: takes over the running statistics and the number
  /// of batches. After that, the next pass may begin. `apply` sets y.
  /// @throws error `malformed_message` for a reply with statistics of another
  ///         size; nothing is written then; `device_failure`.
  [[nodiscard]] batch_norm_tape accept(const batch_norm_reply& reply);

  /// The same for several batches: sets one tape per batch.
  /// @param tapes as many as batches were measured; the memory of used tapes is
  ///              reused.
  /// @throws error `malformed_message` for a reply to another number of
  ///         batches, or as `end_forward`.
  void accept(const batch_norm_reply& reply, std::span<batch_norm_tape> tapes);

  /// Sets y from the x that was measured, with the tape of `accept`.
  /// @throws error as `normalize`.
  void apply(const batch_norm_tape& tape, const const_tensor_view& x,
             const tensor_view& y);

  // -- backward ---------------------------------------------------------------

  /// True if the backward pass with `tape` needs the sums of all replicas.
  [[nodiscard]] static bool exchanges(const batch_norm_tape& tape) noexcept {
    return tape.source_ == batch_norm_tape::source::all_replicas;
  }

  /// A pass without exchange: sets dx and adds to the gradients.
  /// @param dy, x, dx  as in forward, of one shape and format; dx may be dy
  ///                   or x, as `backward_input` says.
  /// @param tape  from this layer's forward pass of x; a tape with statistics
  ///              of another dtype, size or device is `invalid_argument`.
  /// @throws error as `begin_forward`.
  void backward_alone(const const_tensor_view& dy, const const_tensor_view& x,
                      const batch_norm_tape& tape, const tensor_view& dx);

  /// The first half: the sums of dy. For channels whose variance was clamped
  /// the sum of dy * (x - mean) is 0: their inv_std is a constant.
  /// @throws error as `begin_forward`.
  [[nodiscard]] batch_norm_message begin_backward(const const_tensor_view& dy,
                                                  const const_tensor_view& x,
                                                  const batch_norm_tape& tape,
                                                  const tensor_view& dx);

  /// The second half: sets dx and adds to the gradients.
  /// @param dy, x, tape, dx  those of the first half.
  /// @throws error `malformed_message` for a reply with sums of another size;
  ///         nothing is written then; as `backward_input`.
  void end_backward(const batch_norm_reply& reply, const const_tensor_view& dy,
                    const const_tensor_view& x, const batch_norm_tape& tape,
                    const tensor_view& dx);

private:
  friend class batch_norm_layer;
  friend class detail::batch_norm_slave;

  // -- for the layer and the slave actor --------------------------------------

  /// The counter of that name in `state`; it is in host memory even if the
  /// arrays are on a CUDA device.
  /// @returns nothing for an unknown name or an array's name.
  [[nodiscard]] std::optional<std::int64_t>
  read_counter(const std::string& name) const;

  /// On a CUDA device: enqueues a copy of the named array (a name of `state`,
  /// `weight.grad` or `bias.grad`) into host memory. Nothing waits for it.
  /// @returns nothing for an unknown name or a counter's name.
  [[nodiscard]] std::optional<detail::host_copy>
  begin_read(const std::string& name);

  /// The array that `begin_read` has read; for use when the copy is done.
  [[nodiscard]] std::vector<double>
  end_read(const std::string& name, const detail::host_copy& copy) const;

  /// On a CUDA device: enqueues the overwriting of that array.
  /// @returns the array's number of elements, or nothing for an unknown name;
  ///          with another number of values, nothing is written.
  std::optional<std::size_t> write_on_device(const std::string& name,
                                             std::span<const double> values);

  /// On a CUDA device: what the passes so far have learned, including those
  /// that are enqueued. Nothing is copied.
  [[nodiscard]] detail::learned_statistics learned();

  /// Takes back what was learned since then.
  void unlearn(const detail::learned_statistics& since);

  /// Checks whether `forward_alone` would accept each of these batches, one
  /// after the other.
  /// @throws error as `forward_alone` would.
  void require_alone(std::span<const const_tensor_view> xs) const;

  // -- for itself -------------------------------------------------------------

  [[nodiscard]] std::size_t channels() const noexcept {
    return static_cast<std::size_t>(options_.channels);
  }

  [[nodiscard]] execution run() const noexcept {
    return {options_.where, nullptr, nullptr};
  }

  [[nodiscard]] channel_parameters
  parameters(const batch_norm_tape& tape) const noexcept;

  /// What a pass requires of its arguments and replies.
  [[nodiscard]] detail::pass_arguments arguments() const noexcept;

  /// Memory for a kernel to scribble on.
  [[nodiscard]] workspace scratch(std::size_t bytes);

  /// The array that accompanies the running mean.
  [[nodiscard]] channel_array& spread() noexcept {
    return options_.online ? running_m2_ : running_var_;
  }
  [[nodiscard]] const channel_array& spread() const noexcept {
    return options_.online ? running_m2_ : running_var_;
  }

  [[nodiscard]] statistics_update make_update() const;
  void take_over(const batch_norm_reply& reply);
  [[nodiscard]] batch_norm_tape::source source_of_round() const noexcept;
  void write_tape(batch_norm_tape& tape, std::int64_t count,
                  std::span<const double> values) const;
  void write_tape(batch_norm_tape& tape, std::int64_t count,
                  device_array values) const;
  [[nodiscard]] batch_norm_tape running_tape();
  void learn_alone(const const_tensor_view& x, batch_norm_tape& tape);
  [[nodiscard]] double_array
  moments_on_host(std::span<const const_tensor_view> xs,
                  batch_norm_message& message);
  [[nodiscard]] double_array sums_on_host(const const_tensor_view& dy,
                                          const const_tensor_view& x,
                                          const batch_norm_tape& tape);

  // On a device the arrays below are copies for `state`. One side is newer, or
  // both are the same.
  struct device_place;

  [[nodiscard]] std::optional<device_place>
  find_on_device(const std::string& name) const;
  [[nodiscard]] std::int64_t batch_norm_replica::*
  find_counter(const std::string& name) const noexcept;
  void bring_to_device();
  void bring_to_host();

  batch_norm_options options_;
  bool training_ = true;
  std::optional<detail::device_share> device_;
  bool host_is_newer_ = true;
  bool device_is_newer_ = false;

  channel_array weight_;
  channel_array bias_;
  channel_array running_mean_;
  channel_array running_var_;
  channel_array running_m2_;
  std::int64_t num_batches_tracked_ = 0;
  std::int64_t num_elements_tracked_ = 0;
  channel_array weight_gradient_;
  channel_array bias_gradient_;

  /// Between the halves of a backward pass: this replica's gradients.
  channel_array pending_weight_;
  channel_array pending_bias_;
  std::vector<std::byte> scratch_;
  /// Online: mean and M2 of a batch.
  std::vector<double> batch_;
};

} // namespace syncnorm
