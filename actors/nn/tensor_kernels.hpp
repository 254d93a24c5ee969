#pragma once

#include "actors/nn/tensor_bridge.hpp"
#include "syncnorm/batch_norm.hpp"
#include "syncnorm/device_array.hpp"
#include "syncnorm/moments.hpp"

#include <ATen/core/Tensor.h>

namespace syncnorm::nn::detail {

/// The kernels where the tensors are: run on the calling thread and libtorch's
/// threads, or enqueued on the stream of this thread on a device. Temporary
/// memory is libtorch's.
class tensor_kernels {
public:
  /// @param split false: on a CPU, the calling thread only.
  /// @throws error `device_unavailable`.
  explicit tensor_kernels(const at::Device& where, bool split = true);

  /// None on a CPU.
  [[nodiscard]] const device_stream& stream() const noexcept {
    return stream_;
  }

  /// As the functions of these names.
  void batch_moments(const const_tensor_view& x, moments_view& out) const;
  void normalize(const const_tensor_view& x,
                 const channel_parameters& parameters,
                 const tensor_view& y) const;
  void backward_reduce(const const_tensor_view& dy, const const_tensor_view& x,
                       const channel_parameters& parameters,
                       const backward_sums& out) const;
  void backward_input(const const_tensor_view& dy, const const_tensor_view& x,
                      const channel_parameters& parameters,
                      const total_sums& sums, const tensor_view& dx) const;

private:
  [[nodiscard]] at::Tensor make_scratch(std::size_t bytes) const;

  at::Device where_;
  device_stream stream_;
  torch_execution run_;
};

} // namespace syncnorm::nn::detail
