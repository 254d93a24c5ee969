#include "syncnorm/batch_norm_options.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace syncnorm {

namespace {

[[noreturn]] void refuse(const batch_norm_options& options,
                         const std::string& text) {
  throw error{
      errc::invalid_argument,
      fmt::format("batch_norm_options of layer {}: {}", options.name, text)};
}

} // namespace

sync_options make_sync_options(const batch_norm_options& options) {
  auto fan_in = options.fan_in;
  if (!fan_in && options.where.type != device_type::cpu)
    fan_in = std::numeric_limits<std::int64_t>::max();
  return {.layer = options.name,
          .deadline = options.deadline,
          .policy = failure_policy::fail_round,
          .fan_in = fan_in};
}

void batch_norm_options::validate() const {
  make_sync_options(*this).validate();
  if (channels < 1 || channels > max_channels)
    refuse(*this, fmt::format("channels: expected 1 to {}, got {}",
                              max_channels, channels));
  if (type > dtype::bfloat16)
    refuse(*this, fmt::format("type: expected float32, float64, float16 or "
                              "bfloat16, got {}",
                              to_string(type)));
  if (!(eps >= 0) || !std::isfinite(eps))
    refuse(*this,
           fmt::format("eps: expected 0 or more, and finite, got {}", eps));
  if (mode > eps_mode::clamp)
    refuse(*this, fmt::format("mode: expected plus or clamp, got {}",
                              static_cast<int>(mode)));
  if (momentum && !(*momentum >= 0 && *momentum <= 1))
    refuse(*this, fmt::format("momentum: expected [0, 1], got {}", *momentum));
  if (frozen && !track_running_stats)
    refuse(*this, "frozen: expected running statistics to go with it, got "
                  "track_running_stats = false");
  if (online && !track_running_stats)
    refuse(*this, "online: expected running statistics to go with it, got "
                  "track_running_stats = false");
  if (!stream)
    return require_available(where);
  if (stream.where() != where)
    throw error{
        errc::device_mismatch,
        fmt::format("batch_norm_options of layer {}: stream: expected one of "
                    "{}, got one of {}",
                    name, to_string(where), to_string(stream.where()))};
  stream.runtime().require(where);
}

} // namespace syncnorm
