#include "syncnorm/device.hpp"

#include "kernels/backend.hpp"
#include "kernels/validate.hpp"

#include <fmt/format.h>

#include <charconv>

namespace syncnorm {

namespace {

constexpr std::int32_t max_index = 32767;

std::int32_t cuda_devices() {
  if constexpr (has_cuda)
    return cuda::device_count();
  else
    return 0;
}

/// Reads the "3" of "cpu:3". Returns false unless all of it is a number.
bool read_index(std::string_view text, std::int32_t& index) {
  const auto* end = text.data() + text.size();
  auto [stop, failure] = std::from_chars(text.data(), end, index);
  return failure == std::errc{} && stop == end && text.front() != '-'
         && index <= max_index;
}

} // namespace

bool same_memory(const device& a, const device& b) noexcept {
  return a.type == b.type && (a.type == device_type::cpu || a.index == b.index);
}

std::string to_string(const device& where) {
  if (where.type == device_type::cuda)
    return fmt::format("cuda:{}", where.index);
  if (where.type != device_type::cpu)
    return fmt::format("device type {}", int(where.type));
  return where.index == 0 ? "cpu" : fmt::format("cpu:{}", where.index);
}

device parse_device(std::string_view text) {
  auto colon = text.find(':');
  auto name = text.substr(0, colon);
  device result;
  auto good = name == "cpu" || name == "cuda";
  result.type = name == "cuda" ? device_type::cuda : device_type::cpu;
  if (good && colon != std::string_view::npos)
    good = read_index(text.substr(colon + 1), result.index);
  if (!good)
    fail(errc::invalid_argument, "parse_device", "text",
         "cpu, cpu:N, cuda or cuda:N with N from 0 to 32767",
         fmt::format("\"{}\"", text));
  return result;
}

std::vector<device> devices() {
  std::vector<device> result{device{}};
  for (std::int32_t i = 0; i < cuda_devices(); ++i)
    result.push_back({device_type::cuda, i});
  return result;
}

void require_available(const device& where) {
  if (where.index < 0)
    fail(errc::device_unavailable, "require_available", "where",
         "a device index of 0 or more", to_string(where));
  if (where.type == device_type::cpu)
    return;
  auto count = cuda_devices();
  if (where.type == device_type::cuda && where.index < count)
    return;
  fail(errc::device_unavailable, "require_available", "where",
       has_cuda ? fmt::format("a CPU device or one of {} CUDA devices", count)
                : "a CPU device, as this build has no CUDA kernels",
       to_string(where));
}

} // namespace syncnorm
