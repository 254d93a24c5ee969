#include "trainer/plan/devices.hpp"

#include "trainer/failure.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace syncnorm::train {

namespace {

[[noreturn]] void fail(std::string_view item) {
  throw failure{fmt::format("--devices: expected cpu, cuda:N or either with *N "
                            "(N copies), found \"{}\"",
                            item)};
}

std::size_t parse_count(std::string_view item, std::string_view text) {
  std::size_t count = 0;
  const auto* end = text.data() + text.size();
  auto [rest, code] = std::from_chars(text.data(), end, count);
  if (code != std::errc{} || rest != end || count == 0)
    fail(item);
  if (count > max_replicas)
    throw failure{fmt::format("--devices: expected at most {} replicas, found "
                              "\"{}\"",
                              max_replicas, item)};
  return count;
}

void append(std::vector<device>& devices, std::string_view item) {
  auto star = item.find('*');
  std::size_t count = 1;
  if (star != std::string_view::npos)
    count = parse_count(item, item.substr(star + 1));
  try {
    devices.insert(devices.end(), count, parse_device(item.substr(0, star)));
  } catch (const error&) {
    fail(item);
  }
}

/// CPUs are numbered in their order, whether the numbers are given or not.
void number_cpus(std::vector<device>& devices) {
  std::int32_t cpus = 0;
  for (auto& where : devices) {
    if (where.type != device_type::cpu)
      continue;
    if (where.index != 0 && where.index != cpus)
      throw failure{fmt::format("--devices: expected cpu or cpu:{} as CPU "
                                "number {}, found \"cpu:{}\"",
                                cpus, cpus, where.index)};
    where.index = cpus++;
  }
}

} // namespace

std::vector<device> parse_devices(std::string_view text) {
  std::vector<device> result;
  for (auto rest = text;;) {
    auto comma = rest.find(',');
    append(result, rest.substr(0, comma));
    if (comma == std::string_view::npos)
      break;
    rest.remove_prefix(comma + 1);
  }
  if (result.size() > max_replicas)
    throw failure{fmt::format("--devices: expected at most {} replicas, found "
                              "{}",
                              max_replicas, result.size())};
  number_cpus(result);
  return result;
}

std::vector<device> default_devices(std::size_t gpus, std::size_t cores) {
  std::vector<device> result;
  auto count = gpus > 0 ? gpus : std::clamp<std::size_t>(cores, 1, 4);
  for (std::size_t i = 0; i < count; ++i)
    result.push_back({gpus > 0 ? device_type::cuda : device_type::cpu,
                      static_cast<std::int32_t>(i)});
  return result;
}

device launched_device(std::size_t gpus, std::int64_t local_rank) {
  if (gpus == 0)
    return {device_type::cpu, 0};
  auto number = gpus == 1 ? 0 : static_cast<std::int32_t>(local_rank);
  return {device_type::cuda, number};
}

std::string list_devices(const std::vector<device>& devices) {
  std::string result;
  for (const auto& where : devices) {
    if (!result.empty())
      result += ", ";
    result += where.type == device_type::cpu
                  ? fmt::format("cpu:{}", where.index)
                  : to_string(where);
  }
  return result;
}

} // namespace syncnorm::train
