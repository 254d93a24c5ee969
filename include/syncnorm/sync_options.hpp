#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace syncnorm {

/// What happens to a round in which a participant is at fault.
enum class failure_policy : std::uint8_t {
  /// Every participant gets the error; the master serves again after the
  /// slaves have registered again.
  fail_round = 0,
  /// The slave at fault is expelled; the others complete the round and go on,
  /// until a registration begins a new generation for all. If the owner's
  /// message does not come, the round fails all the same.
  continue_with_survivors = 1,
};

/// The longest deadline of a round.
inline constexpr caf::timespan max_deadline = detail::longest_wait;

/// What a master is spawned with. Values that are left open are taken from the
/// system's configuration; see `sync_defaults`.
struct sync_options {
  /// Names the master in every error text.
  std::string layer = "unnamed";
  /// How long a round may take from its first message to its last. Left open
  /// and not configured: 60 s.
  std::optional<caf::timespan> deadline = std::nullopt;
  /// What happens to a round in which a participant is at fault. Left open and
  /// not configured: it fails for all.
  std::optional<failure_policy> policy = std::nullopt;
  /// The approximate maximum of messages that one actor receives per round,
  /// where the library spawns relays: more replicas stand behind a tree of
  /// relays. A master may receive one more, its owner's. Left open and not
  /// configured: 16.
  std::optional<std::int64_t> fan_in = std::nullopt;
  /// How many replicas take part, the owner included: identifiers 0 to
  /// `participants` - 1; others are refused. A round waits for all of them
  /// until its deadline, including those that have not registered yet, so
  /// nobody has to wait before the round. Once the owner has received the error
  /// of a failed round, its next message begins a generation, too. 0: a round
  /// consists of the participants that are registered when the last of them has
  /// sent its message.
  std::int64_t participants = 0;

  /// @throws error `invalid_argument` for an empty layer name, a deadline of
  ///         zero or less or above `max_deadline`, a policy that does not
  ///         exist, a fan-in below 2, or less than 0 participants.
  void validate() const;
};

/// The hash by which messages name a layer (FNV-1a, 64 bits).
[[nodiscard]] std::uint64_t layer_hash(std::string_view layer) noexcept;

} // namespace syncnorm
