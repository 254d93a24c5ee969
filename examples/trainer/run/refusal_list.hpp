#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>

namespace syncnorm::train {

/// The lines about the processes that a port refuses: each line once, so that a
/// process that tries again and again fills no log.
class refusal_list {
public:
  /// How many lines are given; the last one says that there are more.
  static constexpr std::size_t max_lines = 100;

  /// Returns the line for that refusal; nothing if it was given before, or is
  /// one too many. The line leaves out what cannot be printed, or is beyond the
  /// thousandth character.
  [[nodiscard]] std::optional<std::string> add(const std::string& text);

private:
  std::set<std::string> told_;
};

} // namespace syncnorm::train
