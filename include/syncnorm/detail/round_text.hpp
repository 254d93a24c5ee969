#pragma once

#include "syncnorm/detail/roster.hpp"

#include <caf/timespan.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

// The texts of the errors that a round can end with. Each begins with the layer
// and the round and names the replicas at fault.

namespace syncnorm::detail {

/// Texts of relays that have reported whom they wait for, by first replica.
using late_reports = std::map<std::int64_t, std::string>;

/// `"layer bn2, round 17"`
[[nodiscard]] std::string where_text(std::string_view layer,
                                     std::uint64_t round);

/// `"<where>: waited 30 s for replica 3; have replicas 0, 1, 2"`; a relay knows
/// only its own replicas: `"...; of replicas 4 to 7 have replicas 4, 5"`.
/// Reports follow those who have reported nothing, if any; where nobody at all
/// has come behind a relay, one text stands for all.
[[nodiscard]] std::string late_text(const std::string& where,
                                    caf::timespan waited, const roster& members,
                                    const late_reports& reports);

/// `"<where>: replica 3 is down (<reason>)"`
[[nodiscard]] std::string down_text(const std::string& where,
                                    const participant& who,
                                    const caf::error& reason);

/// `"<who> has exited (<reason>)"`, without a reason if there is none
[[nodiscard]] std::string exited_text(std::string_view who,
                                      const caf::error& reason);

/// `"<where>: replica 3 sent a message for round 12"`
[[nodiscard]] std::string wrong_round_text(const std::string& where,
                                           std::int64_t identifier,
                                           std::uint64_t got);

/// `"<where>: replica 3 sent a message for another layer"`
[[nodiscard]] std::string wrong_layer_text(const std::string& where,
                                           std::int64_t identifier);

/// `"<where>: the relay of replicas 4 to 7 was spawned for this layer, and its
/// parent is of another one"`
[[nodiscard]] std::string wrong_parent_text(const std::string& where,
                                            const participant& relay);

/// `"<where>: replica 3 sent two messages"`
[[nodiscard]] std::string twice_text(const std::string& where,
                                     std::int64_t identifier);

/// `"<where>: a message from replica 3, which is not registered, or not by this
/// sender"`
[[nodiscard]] std::string unregistered_text(const std::string& where,
                                            std::int64_t identifier);

/// `"<where>: the owner's message has no sender: send it from an actor"`
[[nodiscard]] std::string anonymous_text(const std::string& where);

/// `"<where>: replica 3 sent a message before it had its ticket"`
[[nodiscard]] std::string no_ticket_text(const std::string& where,
                                         std::int64_t identifier);

/// `"<where>: replica 3 gave up: <why>"`
[[nodiscard]] std::string gave_up_text(const std::string& where,
                                       const participant& who,
                                       std::string_view why);

/// `"<where>: 8 replicas were to take part, but 2 are registered: replicas 0,
/// 1"`
[[nodiscard]] std::string membership_text(const std::string& where,
                                          std::int64_t expected,
                                          const roster& members);

/// `"<where>: the relay of replicas 4 to 7 waited 30 s for the
/// answer of its parent"`
[[nodiscard]] std::string silent_parent_text(const std::string& where,
                                             caf::timespan waited,
                                             const participant& relay);

/// `"<where>: the message of the relay of replicas 4 to 7 is damaged: <what>"`
[[nodiscard]] std::string damaged_text(const std::string& where,
                                       const participant& who,
                                       std::string_view what);

/// The error of an earlier round as the error of a later one, which the relay
/// does not take part in: `"<where>: the relay of replicas 4 to 7 has left in
/// round 16 (layer bn2, round 16: replica 5 is down)"`
[[nodiscard]] caf::error left_before(const std::string& where,
                                     const participant& relay,
                                     std::uint64_t round,
                                     const caf::error& reason);

/// The error of a round as another node reports it, with a text no longer than
/// this library's own; `fallback` is the code if the error has no code of this
/// library.
[[nodiscard]] caf::error reported_error(const caf::error& x, errc fallback);

/// `"<where>: the round has failed before (<reason>): register again"`
[[nodiscard]] std::string failed_before_text(const std::string& where,
                                             const caf::error& reason);

/// `"<where>: replica 3 sent a message for generation 1, but this is generation
/// 2: register again"`
[[nodiscard]] std::string stale_text(const std::string& where,
                                     std::int64_t identifier, std::uint64_t got,
                                     std::uint64_t current);

} // namespace syncnorm::detail
