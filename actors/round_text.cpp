#include "syncnorm/detail/round_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace syncnorm::detail {

namespace {

/// Limit for texts from another node.
constexpr std::size_t max_text = 2000;

/// Whether somebody has neither arrived nor reported.
bool lacks_somebody(const roster& members) {
  return !members.is_full()
         || std::ranges::any_of(members, [](const participant& x) {
              return !x.arrived && !x.reported;
            });
}

std::string silent_text(caf::timespan waited, const std::string& whom,
                        const roster& members) {
  auto seconds = std::chrono::duration<double>(waited).count();
  auto of = members.relayed_range();
  return fmt::format("waited {:.3g} s for {}; {}have {}", seconds, whom,
                     of ? "of " + *of + " " : "", members.list(true));
}

/// Whether a report, without its prefix, says that none of a relay's replicas
/// has come.
bool says_nobody(std::string_view report) {
  constexpr std::string_view words{" have "};
  auto first = report.find(words);
  return first == report.rfind(words) && report.ends_with(" have nobody");
}

/// For a relay whose relays have all reported: whether nobody has come.
bool has_nobody(const roster& members,
                const std::vector<std::string>& reports) {
  return !reports.empty() && members.relayed_range()
         && std::ranges::none_of(members, &participant::arrived)
         && std::ranges::all_of(reports, says_nobody);
}

/// As many of the texts as another node accepts; at least one.
std::string joined(const std::vector<std::string>& texts) {
  std::string result;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i != 0 && result.size() + texts[i].size() > max_text - 100)
      return result
             + fmt::format("; and {} more such reports", texts.size() - i);
    result += (i == 0 ? "" : "; ") + texts[i];
  }
  return result;
}

} // namespace

std::string where_text(std::string_view layer, std::uint64_t round) {
  return fmt::format("layer {}, round {}", layer, round);
}

std::string late_text(const std::string& where, caf::timespan waited,
                      const roster& members, const late_reports& reports) {
  auto prefix = where + ": ";
  std::vector<std::string> texts;
  for (const auto& [first, x] : reports)
    texts.push_back(x.starts_with(prefix) ? x.substr(prefix.size()) : x);
  if (has_nobody(members, texts))
    texts = {silent_text(waited, *members.relayed_range(), members)};
  else if (reports.empty() || lacks_somebody(members))
    texts.insert(texts.begin(),
                 silent_text(waited, members.list(false), members));
  return prefix + joined(texts);
}

std::string anonymous_text(const std::string& where) {
  return where + ": the owner's message has no sender: send it from an actor";
}

std::string down_text(const std::string& where, const participant& who,
                      const caf::error& reason) {
  return fmt::format(
      "{}: {} is down ({})", where, who.name(),
      reason == caf::none ? "it exited" : describe(reason).substr(0, max_text));
}

std::string exited_text(std::string_view who, const caf::error& reason) {
  auto why = reason == caf::none
                 ? std::string{}
                 : fmt::format(" ({})", describe(reason).substr(0, max_text));
  return fmt::format("{} has exited{}", who, why);
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

std::string wrong_parent_text(const std::string& where,
                              const participant& relay) {
  return fmt::format("{}: {} was spawned for this layer, and its parent is of "
                     "another one",
                     where, relay.name());
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

std::string no_ticket_text(const std::string& where, std::int64_t identifier) {
  return fmt::format("{}: replica {} sent a message before it had its ticket",
                     where, identifier);
}

std::string gave_up_text(const std::string& where, const participant& who,
                         std::string_view why) {
  return fmt::format("{}: {} gave up: {}", where, who.name(),
                     why.substr(0, max_text));
}

std::string membership_text(const std::string& where, std::int64_t expected,
                            const roster& members) {
  return fmt::format("{}: {} replicas were to take part, but {} are "
                     "registered: {}",
                     where, expected, members.replicas(), members.list());
}

std::string silent_parent_text(const std::string& where, caf::timespan waited,
                               const participant& relay) {
  auto seconds = std::chrono::duration<double>(waited).count();
  return fmt::format("{}: {} waited {:.3g} s for the answer of its parent",
                     where, relay.name(), seconds);
}

std::string damaged_text(const std::string& where, const participant& who,
                         std::string_view what) {
  return fmt::format("{}: the message of {} is damaged: {}", where, who.name(),
                     what);
}

caf::error left_before(const std::string& where, const participant& relay,
                       std::uint64_t round, const caf::error& reason) {
  return make_error(code_of(reason).value_or(errc::participant_failed),
                    fmt::format("{}: {} has left in round {} ({})", where,
                                relay.name(), round, text_of(reason)));
}

caf::error reported_error(const caf::error& x, errc fallback) {
  return make_error(code_of(x).value_or(fallback),
                    text_of(x).substr(0, max_text));
}

std::string failed_before_text(const std::string& where,
                               const caf::error& reason) {
  return fmt::format("{}: the round has failed before ({}): register again",
                     where, describe(reason).substr(0, max_text));
}

std::string stale_text(const std::string& where, std::int64_t identifier,
                       std::uint64_t got, std::uint64_t current) {
  return fmt::format("{}: replica {} sent a message for generation {}, but "
                     "this is generation {}: register again",
                     where, identifier, got, current);
}

} // namespace syncnorm::detail
