#include "actors/nn/torch_devices.hpp"

#include "actors/nn/tensor_bridge.hpp"
#include "syncnorm/error.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

namespace syncnorm::nn::detail {

device_access& access_in_use() {
  static device_access result = access_of_build();
  return result;
}

device to_device(const at::Device& where) {
  if (where.is_cpu())
    return {};
  auto index =
      where.has_index()
          ? where.index()
          : c10::impl::VirtualGuardImpl{where.type()}.getDevice().index();
  return {device_type::cuda, index};
}

std::optional<std::string> why_unusable(const at::Device& where) {
  if (where.is_cpu())
    return std::nullopt;
  const auto& access = access_in_use();
  if (!where.is_cuda())
    return "a CPU or a CUDA device";
  if (access.runtime == nullptr)
    return "the CPU, as " + access.missing;
  if (where.has_index() && where.index() >= cuda_device_count())
    return fmt::format("the CPU or one of {} CUDA devices",
                       cuda_device_count());
  return std::nullopt;
}

std::int32_t cuda_device_count() noexcept {
  if (!c10::impl::hasDeviceGuardImpl(at::kCUDA))
    return 0;
  return c10::impl::getDeviceGuardImpl(at::kCUDA)->deviceCount();
}

device_stream current_stream(const at::Device& where) {
  if (where.is_cpu())
    return {};
  if (auto expected = why_unusable(where))
    throw error{errc::device_unavailable,
                fmt::format("current_stream: where: expected {}, got {}",
                            *expected, where.str())};
  const auto& access = access_in_use();
  auto here = to_device(where);
  return device_stream::borrow(*access.runtime, here,
                               access.current_stream(here.index));
}

std::optional<c10::Stream> current_torch_stream(const at::Device& where) {
  if (where.is_cpu())
    return std::nullopt;
  return c10::impl::VirtualGuardImpl{where.type()}.getStream(where);
}

namespace {

/// Copies on this thread's stream, between memory of its device.
void copy_here(const device_stream& stream, void* to, const void* from,
               std::size_t bytes) {
  stream.runtime().copy(stream.run(), to, stream.where(), from, stream.where(),
                        bytes);
}

} // namespace

device_array to_array(const at::Tensor& x) {
  auto stream = current_stream(x.device());
  device_array result{stream, *to_dtype(x.scalar_type()),
                      static_cast<std::size_t>(x.numel())};
  copy_here(stream, result.data(), x.data_ptr(), result.bytes());
  result.publish();
  return result;
}

at::Tensor to_tensor(const device_array& x, const at::TensorOptions& options) {
  auto result = at::empty({static_cast<std::int64_t>(x.size())}, options);
  overwrite(result, x, 0);
  return result;
}

void overwrite(const at::Tensor& to, const device_array& x, std::size_t first) {
  auto stream = current_stream(to.device());
  auto from = x.on_device_of(stream).read_on(stream);
  copy_here(stream, to.data_ptr(), from.at(first), to.nbytes());
  torch::autograd::impl::bump_version(to);
}

} // namespace syncnorm::nn::detail
