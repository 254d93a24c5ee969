#include "kernels/validate.hpp"

#include "kernels/backend.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

namespace syncnorm {

namespace {

constexpr auto max_bytes = std::numeric_limits<std::int64_t>::max();

bool known(dtype type) {
  return type <= dtype::bfloat16;
}

bool is_array(const void* data, dtype type) {
  return data != nullptr
         && reinterpret_cast<std::uintptr_t>(data) % size_of(type) == 0;
}

/// Whether the elements are one run of memory.
bool is_one_run(const tensor_layout& layout) {
  auto [n, c, s] = layout.shape;
  return n <= 1 || layout.sample_stride == c * s;
}

/// Whether the last sample ends within 2^63 - 1 bytes of the first element.
bool fits(const tensor_layout& layout) {
  auto room = max_bytes / std::int64_t(size_of(layout.type));
  auto [n, c, s] = layout.shape;
  if (s != 0 && c > room / s)
    return false;
  auto sample = c * s;
  if (n <= 1)
    return true;
  return layout.sample_stride <= (room - sample) / (n - 1);
}

bool overlap(const used_memory& a, const used_memory& b) {
  if (a.data == nullptr || b.data == nullptr)
    return false;
  auto first = reinterpret_cast<std::uintptr_t>(a.data);
  auto second = reinterpret_cast<std::uintptr_t>(b.data);
  return first < second + b.bytes && second < first + a.bytes && a.bytes != 0
         && b.bytes != 0;
}

} // namespace

void fail(errc code, std::string_view operation, std::string_view argument,
          std::string_view expected, std::string_view got) {
  throw error{code, fmt::format("{}: {}: expected {}, got {}", operation,
                                argument, expected, got)};
}

std::string to_string(const tensor_shape& shape) {
  return fmt::format("[{}, {}, {}]", shape.samples, shape.channels,
                     shape.spatial);
}

void check_type(std::string_view operation, std::string_view argument,
                dtype type) {
  if (!known(type))
    fail(errc::dtype_mismatch, operation, argument,
         "float32, float64, float16 or bfloat16", to_string(type));
}

void check_format(std::string_view operation, std::string_view argument,
                  memory_format format) {
  if (format > memory_format::channels_last)
    fail(errc::invalid_argument, operation, argument,
         "channels_first or channels_last", to_string(format));
}

void check_layout(std::string_view operation, std::string_view argument,
                  const tensor_layout& layout) {
  auto bad = [&](std::string_view expected, std::string_view got) {
    fail(errc::invalid_argument, operation, argument, expected, got);
  };
  check_type(operation, argument, layout.type);
  check_format(operation, argument, layout.format);
  auto [n, c, s] = layout.shape;
  if (n < 0 || s < 0 || c < 1)
    bad("N >= 0, C >= 1, S >= 0", "[N, C, S] = " + to_string(layout.shape));
  if (c > max_channels)
    bad(fmt::format("at most {} channels", max_channels), std::to_string(c));
  if (!fits(layout))
    bad("a tensor of at most 2^63 - 1 bytes",
        fmt::format("[N, C, S] = {}, sample stride {}", to_string(layout.shape),
                    layout.sample_stride));
  if (layout.sample_stride < c * s)
    bad(fmt::format("a sample stride of at least C * S = {}", c * s),
        std::to_string(layout.sample_stride));
}

void fail_without_cuda(std::string_view operation, std::string_view argument,
                       const device& where) {
  fail(errc::device_unavailable, operation, argument,
       "a CPU device, as this build has no CUDA kernels", to_string(where));
}

bool overlap(const void* a, const void* b, std::int64_t elements, dtype type) {
  auto bytes = std::size_t(elements) * size_of(type);
  return overlap({{}, a, bytes}, {{}, b, bytes});
}

used_memory used_memory::of(std::string_view argument, const void* data,
                            const tensor_layout& layout) {
  auto [n, c, s] = layout.shape;
  auto elements = is_one_run(layout) ? std::size_t(n * c * s) : 0;
  return {argument, data, elements * size_of(layout.type)};
}

used_memory used_memory::of_mask(std::string_view argument, const void* data,
                                 const const_tensor_view& view) {
  if (data == nullptr)
    return {};
  return {argument, data, relu_mask_bytes(view.layout())};
}

channel_memory::channel_memory(const const_tensor_view& view)
    : bytes_{std::size_t(view.shape().channels)
             * size_of(statistics_type(view.type()))} {}

call_check::call_check(std::string_view operation, const execution& run)
    : operation_{operation},
      run_{run} {
  if (run.where.type > device_type::cuda)
    fail(errc::invalid_argument, "run.where", "a CPU or CUDA device",
         fmt::format("device type {}", int(run.where.type)));
  if (run.where.index < 0)
    fail(errc::invalid_argument, "run.where", "a device index of 0 or more",
         std::to_string(run.where.index));
  if (!has_cuda && run.where.type == device_type::cuda)
    fail_without_cuda(operation, "run.where", run.where);
  if (run.split != nullptr && run.split->run == nullptr)
    fail(errc::invalid_argument, "run.split->run", "a function", "null");
  if (run.split != nullptr && run.split->parts < 1)
    fail(errc::invalid_argument, "run.split->parts", "1 or more",
         std::to_string(run.split->parts));
}

void call_check::fail(errc code, std::string_view argument,
                      std::string_view expected, std::string_view got) const {
  syncnorm::fail(code, operation_, argument, expected, got);
}

void call_check::tensor(std::string_view argument,
                        const const_tensor_view& view) const {
  check_layout(operation_, argument, view.layout());
  memory(argument, view.where());
}

void call_check::same_layout(std::string_view argument,
                             const const_tensor_view& view,
                             std::string_view like_argument,
                             const const_tensor_view& like) const {
  if (view.shape() != like.shape())
    fail(errc::shape_mismatch, argument,
         fmt::format("the shape of {}, {}", like_argument,
                     to_string(like.shape())),
         to_string(view.shape()));
  if (view.format() != like.format())
    fail(errc::shape_mismatch, argument,
         fmt::format("the format of {}, {}", like_argument,
                     to_string(like.format())),
         to_string(view.format()));
  if (view.type() != like.type())
    fail(errc::dtype_mismatch, argument,
         fmt::format("the dtype of {}, {}", like_argument,
                     to_string(like.type())),
         to_string(view.type()));
}

void call_check::same_stride(std::string_view argument,
                             const const_tensor_view& view,
                             std::string_view like_argument,
                             const const_tensor_view& like) const {
  if (view.data() == like.data() && view.shape().samples > 1
      && view.sample_stride() != like.sample_stride())
    fail(errc::invalid_argument, argument,
         fmt::format("the sample stride of {}, {}, as it is the same memory",
                     like_argument, like.sample_stride()),
         std::to_string(view.sample_stride()));
}

void call_check::in_place(std::string_view argument,
                          const const_tensor_view& view,
                          std::string_view like_argument,
                          const const_tensor_view& like) const {
  same_stride(argument, view, like_argument, like);
  if (is_one_run(view.layout()) && is_one_run(like.layout()))
    same_or_apart(argument, view.data(), like_argument, like.data(),
                  view.size(), view.type());
}

void call_check::aligned(std::string_view argument, const void* data,
                         std::size_t alignment) const {
  auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address % alignment != 0)
    fail(errc::invalid_argument, argument,
         fmt::format("a pointer aligned to {} bytes", alignment),
         fmt::format("{:#x}", address));
}

void call_check::array(std::string_view argument, const void* data,
                       dtype type) const {
  if (data == nullptr)
    fail(errc::invalid_argument, argument, "a pointer", "null");
  aligned(argument, data, size_of(type));
}

void call_check::optional_array(std::string_view argument, const void* data,
                                dtype type) const {
  aligned(argument, data, size_of(type));
}

void call_check::apart(std::string_view argument, const void* data,
                       std::string_view other_argument, const void* other,
                       std::int64_t elements, dtype type) const {
  if (overlap(data, other, elements, type))
    fail(errc::invalid_argument, argument,
         fmt::format("memory apart from {}'s", other_argument),
         "memory that overlaps it");
}

void call_check::apart(std::initializer_list<used_memory> written,
                       std::initializer_list<used_memory> others) const {
  for (const auto& one : written)
    for (const auto& other : others)
      if (overlap(one, other))
        fail(errc::invalid_argument, one.argument,
             fmt::format("memory apart from {}'s", other.argument),
             "memory that overlaps it");
}

void call_check::apart(std::string_view argument, const void* data,
                       const running_view& running, std::int64_t channels,
                       dtype type) const {
  if (running.mean == nullptr)
    return;
  apart(argument, data, "running.mean", running.mean, channels, type);
  apart(argument, data, "running.var", running.var, channels, type);
}

void call_check::same_or_apart(std::string_view argument, const void* data,
                               std::string_view other_argument,
                               const void* other, std::int64_t elements,
                               dtype type) const {
  if (data != other)
    apart(argument, data, other_argument, other, elements, type);
}

void call_check::mask(std::string_view argument, const void* data) const {
  aligned(argument, data, 8);
}

void call_check::moments(std::string_view argument,
                         const const_moments_view& view) const {
  if (view.type != dtype::float32 && view.type != dtype::float64)
    fail(errc::dtype_mismatch, argument, "float32 or float64",
         to_string(view.type));
  if (view.channels < 1)
    fail(errc::shape_mismatch, argument, "1 channel or more",
         std::to_string(view.channels));
  if (view.count < 0)
    fail(errc::invalid_argument, argument, "a count of 0 or more",
         std::to_string(view.count));
  memory(argument, view.where);
  if (view.count == 0)
    return;
  // A name that is not needed would allocate for nothing.
  for (auto [data, field] : {std::pair{view.mean, "mean"}, {view.m2, "m2"}})
    if (!is_array(data, view.type))
      array(fmt::format("{}.{}", argument, field), data, view.type);
}

void call_check::memory(std::string_view argument, const device& where) const {
  if (!same_memory(where, run_.where))
    fail(errc::device_mismatch, argument,
         fmt::format("memory of {}", to_string(run_.where)), to_string(where));
}

void call_check::scratch(const workspace& given, std::size_t needed) const {
  if (needed == 0)
    return;
  if (given.bytes < needed)
    fail(errc::workspace_too_small, "scratch",
         fmt::format("{} bytes or more", needed),
         fmt::format("{} bytes", given.bytes));
  if (given.data == nullptr)
    fail(errc::invalid_argument, "scratch", "a pointer", "null");
  aligned("scratch", given.data,
          run_.where.type == device_type::cuda ? 256 : 16);
}

void call_check::epsilon(std::string_view argument, double eps) const {
  if (!std::isfinite(eps) || eps < 0)
    fail(errc::invalid_argument, argument, "a finite number of 0 or more",
         fmt::format("{}", eps));
}

void call_check::finalization(const finalize_options& options) const {
  epsilon("options.eps", options.eps);
  if (options.mode > eps_mode::clamp)
    fail(errc::invalid_argument, "options.mode", "plus or clamp",
         std::to_string(int(options.mode)));
  if (!(options.momentum >= 0 && options.momentum <= 1))
    fail(errc::invalid_argument, "options.momentum", "a number from 0 to 1",
         fmt::format("{}", options.momentum));
}

void call_check::running(std::string_view argument, const running_view& running,
                         std::int64_t channels, dtype type) const {
  auto [mean, var] = running;
  if (mean == nullptr && var == nullptr)
    return;
  if (mean == nullptr || var == nullptr)
    fail(errc::invalid_argument, argument, "both mean and var, or neither",
         mean == nullptr ? "var only" : "mean only");
  // A name that is not needed would allocate for nothing.
  for (auto [data, field] : {std::pair{mean, "mean"}, {var, "var"}})
    if (!is_array(data, type))
      array(fmt::format("{}.{}", argument, field), data, type);
  if (overlap(mean, var, channels, type))
    fail(errc::invalid_argument, fmt::format("{}.var", argument),
         fmt::format("memory apart from {}.mean's", argument),
         "memory that overlaps it");
}

} // namespace syncnorm
