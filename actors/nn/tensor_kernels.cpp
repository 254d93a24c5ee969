#include "actors/nn/tensor_kernels.hpp"

#include "actors/nn/torch_devices.hpp"

#include <ATen/ATen.h>

namespace syncnorm::nn::detail {

namespace {

workspace scratch_of(const at::Tensor& bytes) {
  return {bytes.numel() == 0 ? nullptr : bytes.data_ptr(),
          static_cast<std::size_t>(bytes.numel())};
}

} // namespace

tensor_kernels::tensor_kernels(const at::Device& where, bool split)
    : where_{where},
      stream_{current_stream(where)},
      run_{split} {}

/// Memory of a device goes back in the order of its stream.
at::Tensor tensor_kernels::make_scratch(std::size_t bytes) const {
  return at::empty({static_cast<std::int64_t>(bytes)},
                   at::TensorOptions{where_}.dtype(at::kByte));
}

void tensor_kernels::batch_moments(const const_tensor_view& x,
                                   moments_view& out) const {
  if (stream_) {
    auto scratch =
        make_scratch(stream_.runtime().batch_moments_workspace(x.layout()));
    return stream_.runtime().batch_moments(stream_.run(), x, out,
                                           scratch_of(scratch));
  }
  auto scratch = make_scratch(batch_moments_workspace(x.layout()));
  syncnorm::batch_moments(run_, x, out, scratch_of(scratch));
}

void tensor_kernels::normalize(const const_tensor_view& x,
                               const channel_parameters& parameters,
                               const tensor_view& y) const {
  if (stream_)
    return stream_.runtime().normalize(stream_.run(), x, parameters, y);
  syncnorm::normalize(run_, x, parameters, y);
}

void tensor_kernels::backward_reduce(const const_tensor_view& dy,
                                     const const_tensor_view& x,
                                     const channel_parameters& parameters,
                                     const backward_sums& out) const {
  if (stream_) {
    auto scratch =
        make_scratch(stream_.runtime().backward_reduce_workspace(x.layout()));
    return stream_.runtime().backward_reduce(stream_.run(), dy, x, parameters,
                                             out, scratch_of(scratch));
  }
  auto scratch = make_scratch(backward_reduce_workspace(x.layout()));
  syncnorm::backward_reduce(run_, dy, x, parameters, nullptr, out,
                            scratch_of(scratch));
}

void tensor_kernels::backward_input(const const_tensor_view& dy,
                                    const const_tensor_view& x,
                                    const channel_parameters& parameters,
                                    const total_sums& sums,
                                    const tensor_view& dx) const {
  if (stream_)
    return stream_.runtime().backward_input(stream_.run(), dy, x, parameters,
                                            sums, dx);
  syncnorm::backward_input(run_, dy, x, parameters, sums, nullptr, dx);
}

} // namespace syncnorm::nn::detail
