#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>

namespace syncnorm::train {

/// What is told of the processes that a port refuses: each line once, so that
/// whoever tries again and again fills no log.
class refusal_list {
public:
  /// Lines that are told; the last one says that there are more.
  static constexpr std::size_t max_lines = 100;

  /// Returns the line to tell of that refusal; nothing if it was told before,
  /// or is one too many. What cannot be printed, or is beyond the thousandth
  /// character, is not in it.
  [[nodiscard]] std::optional<std::string> add(const std::string& text);

private:
  std::set<std::string> told_;
};

} // namespace syncnorm::train
