#include "syncnorm/sync_callback.hpp"

#include "syncnorm/error.hpp"
#include "syncnorm/sync_options.hpp"

#include <fmt/format.h>

#include <string>

namespace syncnorm::detail {

void check_participants(const sync_options& options,
                        std::int64_t participants) {
  auto refuse = [&](const std::string& expected) {
    throw error{errc::invalid_argument,
                fmt::format("spawn_sync_master of layer {}: participants of "
                            "the reduction: expected {}, got {}",
                            options.layer, expected, participants)};
  };
  if (participants < 0)
    refuse("1 or more, or 0 for any number");
  if (participants != 0 && options.participants != 0
      && participants != options.participants)
    refuse(fmt::format("the {} of the options, or 0", options.participants));
}

} // namespace syncnorm::detail
