#pragma once

#include "syncnorm/compat.hpp"
#include "syncnorm/sync_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

namespace syncnorm::detail {

/// How long something that is done in several steps may take in all.
class time_budget {
public:
  using clock = std::chrono::steady_clock;

  explicit time_budget(caf::timespan total)
      : total_{total},
        end_{clock::now() + std::clamp(total, caf::timespan{0}, max_deadline)} {
  }

  /// The time left for the next step, at least a moment.
  [[nodiscard]] caf::timespan left() const {
    return std::max<caf::timespan>(end_ - clock::now(),
                                   std::chrono::milliseconds{1});
  }

  [[nodiscard]] bool is_over() const {
    return clock::now() >= end_;
  }

  /// The text for somebody who has waited in vain.
  [[nodiscard]] std::string text() const {
    return fmt::format("nothing heard for {:g} s",
                       std::chrono::duration<double>(total_).count());
  }

private:
  caf::timespan total_;
  clock::time_point end_;
};

inline bool is_timeout(const caf::error& x) {
  return x == caf::sec::request_timeout;
}

} // namespace syncnorm::detail
