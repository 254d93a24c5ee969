#include "syncnorm/sync_options.hpp"

#include "syncnorm/error.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>

namespace syncnorm {

void sync_options::validate() const {
  if (layer.empty())
    throw error{errc::invalid_argument,
                "sync_options: the layer must have a name, got an empty one"};
  if (deadline && deadline->count() <= 0)
    throw error{errc::invalid_argument,
                fmt::format("sync_options of layer {}: the deadline must be "
                            "longer than zero, got {} ns",
                            layer, deadline->count())};
  if (deadline && *deadline > max_deadline)
    throw error{
        errc::invalid_argument,
        fmt::format("sync_options of layer {}: the deadline must be a "
                    "year or less, got {}",
                    layer,
                    std::chrono::duration_cast<std::chrono::hours>(*deadline))};
  if (policy && *policy > failure_policy::continue_with_survivors)
    throw error{errc::invalid_argument,
                fmt::format("sync_options of layer {}: the policy must be "
                            "fail_round or continue_with_survivors, got {}",
                            layer, static_cast<int>(*policy))};
  if (fan_in && *fan_in < 2)
    throw error{errc::invalid_argument,
                fmt::format("sync_options of layer {}: the fan-in must be 2 or "
                            "more, got {}",
                            layer, *fan_in)};
  if (participants < 0)
    throw error{errc::invalid_argument,
                fmt::format("sync_options of layer {}: the participants must "
                            "be 1 or more, or 0 for any number, got {}",
                            layer, participants)};
}

std::uint64_t layer_hash(std::string_view layer) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (auto c : layer) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

} // namespace syncnorm
