#pragma once

#include "syncnorm/nn/detail/known_counter.hpp"
#include "syncnorm/nn/module_traits.hpp"
#include "syncnorm/nn/synchronized_batch_norm_options.hpp"
#include "syncnorm/replicable.hpp"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

namespace syncnorm::nn {

namespace detail {
class participant;
} // namespace detail

/// What every synchronized layer is besides a libtorch module: one of the
/// copies of a layer. While a copy is synchronized with the others, it has a
/// seat among them. Clones and copies of a module have no seat.
class SynchronizedBatchNormBase : public replicable {
public:
  /// Leaves the seat, if it has one.
  ~SynchronizedBatchNormBase() override;

  /// Takes its seat among the copies; from then on, training exchanges moments
  /// with them. Called by `execute_replication_callbacks` on behalf of
  /// `DataParallelWithCallback`, `patch_replication_callback`, `synchronize`,
  /// `lead_copies` or `follow_copies`.
  /// @throws error `invalid_argument` if none of these called it;
  ///         `duplicate_identifier` if this copy already has a seat, because
  ///         the callbacks ran twice.
  void on_data_parallel_replicate(callback_context& context,
                                  std::int64_t copy_id) override;

  /// Leaves the seat: the layer is a plain batch norm again. A backward pass
  /// that exchanges with other copies is refused from then on.
  void on_data_parallel_release() override;

  /// Tells the other copies that this one does not go on; see `give_up`.
  void on_data_parallel_failure(const std::string& why) override;

  /// Applies the layer; see `SynchronizedBatchNormImplBase`.
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;

  /// The layer's options.
  [[nodiscard]] virtual SynchronizedBatchNormOptions&
  layer_options() noexcept = 0;

  /// What copies of the layer must agree in, for error texts: `"(64)"`, or
  /// `"(64, affine=false, track_running_stats=false)"`, depending on which
  /// tensors the layer has.
  [[nodiscard]] virtual std::string shape_text() const = 0;

  /// Whether this copy has a seat.
  [[nodiscard]] bool is_attached() const noexcept {
    return seat_ != nullptr;
  }

  /// How many messages this copy has sent to the layer's master since it took
  /// its seat; 0 without a seat.
  [[nodiscard]] std::uint64_t messages_sent() const noexcept;

protected:
  SynchronizedBatchNormBase() = default;
  /// A copy has no seat.
  SynchronizedBatchNormBase(const SynchronizedBatchNormBase&) noexcept
      : replicable{} {}
  /// Keeps its own seat.
  SynchronizedBatchNormBase&
  operator=(const SynchronizedBatchNormBase&) noexcept {
    return *this;
  }

  struct call;
  /// Applies the layer with `arguments`.
  torch::Tensor run(const torch::Tensor& input, const call& arguments) const;

  /// The name of the layer's type. The layer's own error texts begin with it,
  /// followed by the layer's path if it has a seat; errors of its rounds name
  /// the layer by its path, and by this name only if the path is empty.
  [[nodiscard]] virtual const char* kind() const noexcept = 0;

private:
  std::shared_ptr<detail::participant> seat_;
  mutable detail::known_counter batches_;
};

/// One forward call: what the layer holds at that moment.
struct SynchronizedBatchNormBase::call {
  /// Number of spatial dimensions.
  std::size_t dimensions;
  /// The layer's options.
  const SynchronizedBatchNormOptions& options;
  /// Whether the layer is in training.
  bool training;
  /// The weight, or undefined.
  const torch::Tensor& weight;
  /// The bias, or undefined.
  const torch::Tensor& bias;
  /// The running mean, or undefined.
  torch::Tensor& running_mean;
  /// The running variance, or undefined.
  torch::Tensor& running_var;
  /// The counter of batches, or undefined.
  torch::Tensor& num_batches_tracked;
};

/// Batch norm that in training uses the statistics of the batches of all its
/// copies together, forward and backward, as if one device had seen the whole
/// batch.
///
/// Parameters and buffers, their names and the options' defaults are those of
/// libtorch's BatchNorm, so that a file saved from one can be loaded into the
/// other. Without other copies, and in evaluation, it is a plain batch norm and
/// sends no message. It is synchronized by `DataParallelWithCallback`,
/// `patch_replication_callback`, `synchronize`, `lead_copies` or
/// `follow_copies`.
///
/// Input: float32 or float64 with parameters of the same dtype, or float16 or
/// bfloat16 with float32 parameters; on a CPU, or on a CUDA device if libtorch
/// and the kernels were built with CUDA. Parameters must be contiguous; N may
/// be 0. Input in contiguous or channels-last memory is used as it is, any
/// other is made contiguous first. The layer is twice differentiable in reverse
/// mode; forward mode is refused.
///
/// On a CUDA device, everything is enqueued on libtorch's current stream, and
/// the layer waits neither for the device nor for its statistics, as long as
/// all copies are on devices of this process. The counter of batches is read
/// back once, and again after something else has written to it.
///
/// Errors, as `syncnorm::error`: `shape_mismatch` for a wrong rank or channel
/// count; `dtype_mismatch`, also for a tensor that is not dense;
/// `device_mismatch` for parameters on another device; `invalid_argument` for a
/// batch of one value per channel (counted over all copies; in evaluation
/// without running statistics, in this copy alone), for options out of range,
/// for a running mean without a running variance or the other way round, for
/// running statistics where copy 0 tracks none, and for a tangent of forward
/// mode; `malformed_message` for a `num_batches_tracked` below 0 or of
/// 2^63 - 1; `device_unavailable`; and every error with which a round fails. A
/// copy that throws, forward or backward, has told the others first.
///
/// Numerics: moments of shifted block sums, merged in float64; the bits are the
/// same whatever the order in which copies arrive.
template <std::size_t D, class Derived>
class SynchronizedBatchNormImplBase
    : public torch::nn::NormImplBase<D, Derived, SynchronizedBatchNormOptions>,
      public SynchronizedBatchNormBase {
public:
  /// libtorch's part of the layer.
  using base_type =
      torch::nn::NormImplBase<D, Derived, SynchronizedBatchNormOptions>;
  using base_type::base_type;

  /// Number of spatial dimensions.
  static constexpr std::size_t dimensions = D;

  /// Applies the layer.
  torch::Tensor forward(const torch::Tensor& input) override {
    return run(input, {D, this->options, this->is_training(), this->weight,
                       this->bias, this->running_mean, this->running_var,
                       this->num_batches_tracked});
  }

  /// The layer's options.
  [[nodiscard]] SynchronizedBatchNormOptions&
  layer_options() noexcept override {
    return this->options;
  }

  /// What copies of the layer must agree in.
  [[nodiscard]] std::string shape_text() const override {
    std::string result{"("};
    result += std::to_string(this->options.num_features());
    if (!this->weight.defined() && !this->bias.defined())
      result += ", affine=false";
    if (!this->running_mean.defined())
      result += ", track_running_stats=false";
    return result + ")";
  }

  /// Takes over from a plain layer with the same options: parameters as the
  /// same tensors, buffers as the same memory.
  void adopt(const torch::Tensor& plain_weight, const torch::Tensor& plain_bias,
             const torch::Tensor& plain_mean, const torch::Tensor& plain_var,
             const torch::Tensor& plain_batches) {
    if (plain_weight.defined()) {
      this->weight = this->parameters_["weight"] = plain_weight;
      this->bias = this->parameters_["bias"] = plain_bias;
    }
    if (plain_mean.defined()) {
      this->running_mean.set_data(plain_mean);
      this->running_var.set_data(plain_var);
      this->num_batches_tracked.set_data(plain_batches);
    }
  }

  /// Prints as libtorch's own layers do, with this layer's name.
  void pretty_print(std::ostream& stream) const override {
    stream << "syncnorm::nn::" << Derived::layer_name << "("
           << this->options.num_features() << ", eps=" << this->options.eps()
           << (this->options.eps_mode() == eps_mode::clamp ? " (clamp)" : "")
           << ", momentum=";
    if (auto momentum = this->options.momentum())
      stream << *momentum;
    else
      stream << "None";
    auto text = [](bool x) { return x ? "true" : "false"; };
    stream << ", affine=" << text(this->options.affine())
           << ", track_running_stats="
           << text(this->options.track_running_stats()) << ")";
  }

protected:
  /// Does nothing: `run` checks rank and channels, and tells the other copies
  /// if that fails.
  void _check_input_dim(const torch::Tensor&) override {}

  /// The name of the layer's type, for error texts; see the base.
  [[nodiscard]] const char* kind() const noexcept override {
    return Derived::layer_name;
  }
};

/// For input of shape (N, C) or (N, C, L).
class SynchronizedBatchNorm1dImpl
    : public SynchronizedBatchNormImplBase<1, SynchronizedBatchNorm1dImpl> {
public:
  /// The layer's name.
  static constexpr const char* layer_name = "SynchronizedBatchNorm1d";
  using SynchronizedBatchNormImplBase::SynchronizedBatchNormImplBase;
};

/// For input of shape (N, C, H, W).
class SynchronizedBatchNorm2dImpl
    : public SynchronizedBatchNormImplBase<2, SynchronizedBatchNorm2dImpl> {
public:
  /// The layer's name.
  static constexpr const char* layer_name = "SynchronizedBatchNorm2d";
  using SynchronizedBatchNormImplBase::SynchronizedBatchNormImplBase;
};

/// For input of shape (N, C, D, H, W).
class SynchronizedBatchNorm3dImpl
    : public SynchronizedBatchNormImplBase<3, SynchronizedBatchNorm3dImpl> {
public:
  /// The layer's name.
  static constexpr const char* layer_name = "SynchronizedBatchNorm3d";
  using SynchronizedBatchNormImplBase::SynchronizedBatchNormImplBase;
};

TORCH_MODULE(SynchronizedBatchNorm1d);
TORCH_MODULE(SynchronizedBatchNorm2d);
TORCH_MODULE(SynchronizedBatchNorm3d);

} // namespace syncnorm::nn
