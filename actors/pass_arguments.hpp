#pragma once

#include "syncnorm/batch_norm_messages.hpp"
#include "syncnorm/batch_norm_options.hpp"
#include "syncnorm/batch_norm_tape.hpp"
#include "syncnorm/tensor_view.hpp"

#include <cstddef>
#include <span>

namespace syncnorm::detail {

/// Requirements for the arguments of a replica's passes and for the replies.
/// Arguments are checked before a pass begins: once the other replicas have its
/// message, none of them can take the round back. All `require_*` throw
/// `error`, naming the layer, the call and the argument.
class pass_arguments {
public:
  /// @param options of the layer; must outlive this object.
  explicit pass_arguments(const batch_norm_options& options) noexcept
      : options_{&options} {}

  /// One or more batches of a forward pass.
  void require_inputs(std::span<const const_tensor_view> xs) const {
    require_each(xs, &pass_arguments::require);
  }

  void require_forward(const const_tensor_view& x, const tensor_view& y) const;

  void require_backward(const const_tensor_view& dy, const const_tensor_view& x,
                        const batch_norm_tape& tape,
                        const tensor_view& dx) const;

  /// Before tensors in host memory are copied to the device: they must fit
  /// there, for a forward pass, or as dy of the pass of x.
  void require_to_bring(std::span<const const_tensor_view> xs) const {
    require_each(xs, &pass_arguments::require_kind);
  }
  void require_to_bring(const const_tensor_view& dy,
                        const const_tensor_view& x) const;

  /// Whether `tape` has statistics like this layer's.
  [[nodiscard]] bool is_readable(const batch_norm_tape& tape) const;

  /// A reply to the forward pass of that many batches.
  void require_forward_reply(const batch_norm_reply& reply,
                             std::size_t batches) const;

  void require_backward_reply(const batch_norm_reply& reply) const;

private:
  using requirement = void (pass_arguments::*)(const char*, const char*,
                                               const const_tensor_view&) const;

  [[nodiscard]] std::size_t channels() const noexcept {
    return static_cast<std::size_t>(options_->channels);
  }

  [[nodiscard]] bool on_device() const noexcept {
    return options_->where.type != device_type::cpu;
  }

  void require(const char* call, const char* argument,
               const const_tensor_view& x) const;
  /// All but the memory that `x` lies in.
  void require_kind(const char* call, const char* argument,
                    const const_tensor_view& x) const;
  void require_like(const char* call, const char* argument,
                    const const_tensor_view& view,
                    const const_tensor_view& x) const;
  void require_layout(const char* call, const char* argument,
                      const const_tensor_view& view,
                      const const_tensor_view& x) const;
  void require_in_place(const char* call, const char* argument,
                        const const_tensor_view& view, const char* input,
                        const const_tensor_view& x) const;
  void require_each(std::span<const const_tensor_view> xs,
                    requirement fits) const;
  void require_statistics(const char* call, const char* what,
                          const channel_payload& values,
                          std::size_t size) const;

  const batch_norm_options* options_;
};

} // namespace syncnorm::detail
