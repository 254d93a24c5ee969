#pragma once

// CUDA devices of libtorch on the host, for tests with a libtorch that has
// none: tensors on them are in the memory of `emulated_devices`, whose streams
// are libtorch's current ones there. Operations of libtorch itself wait for the
// devices and run on the CPU; the library's kernels are enqueued. To be
// included by one source of a program.

#include "tests/nn/support.hpp"

#include "actors/nn/torch_devices.hpp"
#include "tests/kernels/emulated_devices.hpp"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <cstdint>
#include <memory>

namespace syncnorm::nn::test {

constexpr int emulated_count = 2;

inline syncnorm::testing::emulated_devices& emulation() {
  // Never destroyed: tensors may be released as late as in static destructors.
  static auto* const result =
      new syncnorm::testing::emulated_devices{emulated_count};
  return *result;
}

namespace {

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, emulated_count> current_streams{};

execution execution_on(const c10::Stream& stream) {
  return {{device_type::cuda, stream.device_index()},
          reinterpret_cast<void*>(stream.id()),
          nullptr};
}

// -- devices and streams ------------------------------------------------------

class emulated_guard final : public c10::impl::DeviceGuardImplInterface {
public:
  static constexpr c10::DeviceType static_type = c10::DeviceType::CUDA;

  c10::DeviceType type() const override {
    return static_type;
  }
  c10::Device exchangeDevice(c10::Device x) const override {
    auto old = getDevice();
    current_device = x.index();
    return old;
  }
  c10::Device getDevice() const override {
    return {static_type, current_device};
  }
  void setDevice(c10::Device x) const override {
    current_device = x.index();
  }
  void uncheckedSetDevice(c10::Device x) const noexcept override {
    current_device = x.index();
  }
  c10::Stream getStream(c10::Device x) const noexcept override {
    auto index = x.has_index() ? x.index() : current_device;
    return c10::Stream{c10::Stream::UNSAFE,
                       {static_type, index},
                       current_streams[std::size_t(index)]};
  }
  c10::Stream getDefaultStream(c10::Device x) const override {
    return c10::Stream{c10::Stream::DEFAULT, x};
  }
  c10::Stream exchangeStream(c10::Stream x) const noexcept override {
    auto old = getStream(x.device());
    current_streams[std::size_t(x.device_index())] = x.id();
    return old;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return emulated_count;
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr)
      *event = emulation().make_event({device_type::cuda, 0});
    emulation().record(execution_on(stream), *event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    emulation().wait(execution_on(stream), event);
  }
  bool queryEvent(void* event) const override {
    return emulation().has_passed({device_type::cuda, 0}, event);
  }
  void destroyEvent(void* event,
                    const c10::DeviceIndex) const noexcept override {
    emulation().end_event({device_type::cuda, 0}, event);
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, emulated_guard);

/// libtorch's engine asks whether there are devices, and which are in use.
struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void initCUDA() const override {}
  bool hasCUDA() const override {
    return true;
  }
  bool hasPrimaryContext(std::int64_t) const override {
    return true;
  }
};

// -- memory -------------------------------------------------------------------

struct emulated_block {
  void* memory;
  execution at;

  static void release(void* x) {
    std::unique_ptr<emulated_block> mine{static_cast<emulated_block*>(x)};
    emulation().release(mine->at, mine->memory);
  }
};

at::Tensor make_tensor(at::IntArrayRef sizes, at::IntArrayRef strides,
                       at::ScalarType type, const c10::Device& where) {
  emulated_guard guard;
  auto at = execution_on(guard.getStream(where));
  auto bytes =
      at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type));
  auto block = std::make_unique<emulated_block>(
      emulated_block{emulation().allocate(at, bytes + 1), at});
  c10::Device device{c10::DeviceType::CUDA, at.where.index == 0
                                                ? c10::DeviceIndex{0}
                                                : c10::DeviceIndex{1}};
  auto* memory = block->memory;
  c10::Storage storage{
      c10::Storage::use_byte_size_t{}, bytes,
      c10::DataPtr{memory, block.release(), &emulated_block::release, device},
      nullptr, false};
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet{c10::DispatchKey::CUDA},
      c10::scalarTypeToTypeMeta(type));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return result;
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         c10::optional<at::ScalarType> type,
                         c10::optional<at::Layout>,
                         c10::optional<at::Device> where, c10::optional<bool>) {
  return make_tensor(sizes, strides, type.value_or(at::kFloat), *where);
}

at::Tensor empty(at::IntArrayRef sizes, c10::optional<at::ScalarType> type,
                 c10::optional<at::Layout>, c10::optional<at::Device> where,
                 c10::optional<bool>, c10::optional<at::MemoryFormat> format) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t step = 1;
  auto place = [&](std::size_t i) {
    strides[i] = step;
    step *= std::max<std::int64_t>(sizes[i], 1);
  };
  auto last = format
              && (*format == at::MemoryFormat::ChannelsLast
                  || *format == at::MemoryFormat::ChannelsLast3d);
  if (last)
    place(1);
  for (auto i = sizes.size(); i-- > 0;)
    if (!last || i != 1)
      place(i);
  return make_tensor(sizes, strides, type.value_or(at::kFloat), *where);
}

/// The same memory as a CPU tensor.
at::Tensor on_host(const at::Tensor& x) {
  if (x.is_cpu())
    return x;
  return at::from_blob(x.data_ptr(), x.sizes(), x.strides(),
                       at::TensorOptions{}.dtype(x.scalar_type()));
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool) {
  emulation().drain();
  on_host(self).copy_(on_host(from));
  return self;
}

at::Tensor copy_and_resize(const at::Tensor& from, const at::Tensor& to) {
  auto result = to;
  return copy(result, from, false);
}

at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
  emulation().drain();
  on_host(self).fill_(value);
  return self;
}

} // namespace

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(
      torch::CppFunction::makeFromBoxedFunction<&at::native::cpu_fallback>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy);
  m.impl("_copy_from_and_resize", &copy_and_resize);
  m.impl("fill_.Scalar", &fill);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("is_set_to", &at::native::is_set_to);
}

inline void use_emulation() {
  detail::access_in_use() = {&emulation(),
                             [](std::int32_t index) -> void* {
                               return reinterpret_cast<void*>(
                                   current_streams[std::size_t(index)]);
                             },
                             {}};
}

} // namespace syncnorm::nn::test

namespace at {

using syncnorm::nn::test::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks);

} // namespace at
