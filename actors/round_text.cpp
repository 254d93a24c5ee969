#include "syncnorm/detail/round_text.hpp"

#include <fmt/format.h>

#include <chrono>

namespace syncnorm::detail {

std::string where_text(std::string_view layer, std::uint64_t round) {
  return fmt::format("layer {}, round {}", layer, round);
}

std::string late_text(const std::string& where, caf::timespan waited,
                      const roster& members) {
  auto seconds = std::chrono::duration<double>(waited).count();
  return fmt::format("{}: waited {:.3g} s for {}; have {}", where, seconds,
                     members.list(false), members.list(true));
}

std::string down_text(const std::string& where, std::int64_t identifier,
                      const caf::error& reason) {
  return fmt::format("{}: replica {} is down ({})", where, identifier,
                     reason == caf::none ? "it exited" : describe(reason));
}

std::string wrong_round_text(const std::string& where, std::int64_t identifier,
                             std::uint64_t got) {
  return fmt::format("{}: replica {} sent a message for round {}", where,
                     identifier, got);
}

std::string wrong_layer_text(const std::string& where,
                             std::int64_t identifier) {
  return fmt::format("{}: replica {} sent a message for another layer", where,
                     identifier);
}

std::string twice_text(const std::string& where, std::int64_t identifier) {
  return fmt::format("{}: replica {} sent two messages", where, identifier);
}

std::string unregistered_text(const std::string& where,
                              std::int64_t identifier) {
  return fmt::format("{}: a message from replica {}, which is not registered, "
                     "or not by this sender",
                     where, identifier);
}

std::string gave_up_text(const std::string& where, std::int64_t identifier,
                         std::string_view why) {
  return fmt::format("{}: replica {} gave up: {}", where, identifier, why);
}

std::string failed_before_text(const std::string& where) {
  return where + ": the round has failed before: register again";
}

std::string stale_text(const std::string& where, std::int64_t identifier,
                       std::uint64_t got, std::uint64_t current) {
  return fmt::format("{}: replica {} sent a message for generation {}, but "
                     "this is generation {}: register again",
                     where, identifier, got, current);
}

} // namespace syncnorm::detail
