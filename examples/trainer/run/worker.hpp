#pragma once

#include "trainer/plan/settings.hpp"
#include "trainer/run/messages.hpp"

#include <functional>
#include <string>

namespace syncnorm::train {

/// Takes part in the run that is served at `options.join`, until it ends.
/// @param app  what this process says about itself; `start` is set here.
/// @param note is told that this process has been admitted.
/// @param stop is asked from time to time whether to leave, by several threads.
/// @returns what to tell the user at the end.
/// @throws failure if nobody answers there within `options.patience`, if this
///         process is refused, if the run fails, if the host is lost, or if
///         `stop` says so before this process is admitted.
std::string take_part(caf::actor_system& system, const settings& options,
                      const application& app,
                      const std::function<void(const std::string&)>& note,
                      const std::function<bool()>& stop);

/// Names this process among others: host and number.
[[nodiscard]] std::string process_name();

} // namespace syncnorm::train
