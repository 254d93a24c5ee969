#pragma once

#include "syncnorm/caf_error.hpp"
#include "syncnorm/detail/caf_compat.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace syncnorm::detail {

/// What a master knows about one participant: a slave, a relay that stands for
/// a range of replicas, or the owner.
struct participant {
  /// Of a relay: its first replica's identifier.
  std::int64_t identifier = 0;
  /// The actor that the master monitors. Null for an owner that is a thread, or
  /// is not known yet.
  caf::actor_addr address;
  /// Has sent its message of the current round.
  bool arrived = false;
  /// Has been told the error of the failed round.
  bool informed = false;
  /// A late relay that has itself reported whom it waits for.
  bool reported = false;
  /// Stands for `count` replicas.
  bool is_relay = false;
  std::int64_t count = 1;

  [[nodiscard]] static participant slave(std::int64_t identifier);
  [[nodiscard]] static participant relay(std::int64_t first,
                                         std::int64_t count);

  /// `"replica 3"`, `"the relay of replicas 4 to 7"`
  [[nodiscard]] std::string name() const;
};

/// The participants of one generation in the order of their identifiers. A
/// master's first participant is its owner; a relay has no owner. A relay knows
/// whom it waits for, and so does a master that was told the number of
/// replicas; at any other master anybody may register.
class roster {
public:
  /// A master's roster: the replicas 0 to `count - 1` or, for 0, any.
  explicit roster(std::int64_t count = 0);

  /// A relay's roster: the replicas `first` to `first + count - 1`.
  roster(std::int64_t first, std::int64_t count);

  /// Forgets everybody but the owner, which never registers.
  void clear();

  /// Why nobody could register as `x` in any generation: `invalid_identifier`,
  /// with a text that begins with `where`, for a value that is no identifier,
  /// or outside of the range of this relay, or of a master that knows how many
  /// take part. Nothing if somebody could.
  [[nodiscard]] std::optional<caf::error>
  refuse(const participant& x, const std::string& where) const;

  /// Adds a slave or a relay and returns its position.
  /// @returns `invalid_identifier` or `duplicate_identifier`, with a text that
  ///          begins with `where`, if `x` cannot be added.
  caf::expected<std::size_t> add(const participant& x,
                                 const std::string& where);

  void erase(std::size_t position);

  /// Position of the participant with that identifier.
  [[nodiscard]] std::optional<std::size_t> find(std::int64_t identifier) const;

  [[nodiscard]] std::size_t size() const noexcept {
    return members_.size();
  }

  participant& operator[](std::size_t position) {
    return members_[position];
  }

  const participant& operator[](std::size_t position) const {
    return members_[position];
  }

  [[nodiscard]] auto begin() const noexcept {
    return members_.begin();
  }

  [[nodiscard]] auto end() const noexcept {
    return members_.end();
  }

  /// How many replicas the participants stand for.
  [[nodiscard]] std::int64_t replicas() const noexcept {
    return replicas_;
  }

  /// Whether the number of awaited replicas is known.
  [[nodiscard]] bool is_counted() const noexcept {
    return count_ != 0;
  }

  /// Whether all awaited replicas have registered, except those erased since;
  /// true where anybody may register.
  [[nodiscard]] bool is_full() const noexcept {
    return count_ == 0 || closed_ || replicas_ + erased_count() >= count_;
  }

  /// Stops waiting for replicas that have not registered.
  void close() noexcept {
    closed_ = true;
  }

  /// Lists those who have arrived, or those who have not: `"replica 3"`,
  /// `"replicas 0, 1, 2, 8-15"`, `"nobody"`. Awaited replicas that have not
  /// registered have not arrived; relays that have reported are in neither
  /// list.
  [[nodiscard]] std::string list(bool arrived) const;

  /// For a relay's roster: `"replicas 4 to 7"`.
  [[nodiscard]] std::optional<std::string> relayed_range() const;

  /// Lists everybody in the same way.
  [[nodiscard]] std::string list() const;

private:
  /// Consecutive replicas.
  struct range {
    std::int64_t first;
    std::int64_t count;
  };

  [[nodiscard]] std::int64_t erased_count() const noexcept;

  /// The replicas that `x` stands for no longer count as erased.
  void bring_back(const participant& x);

  std::vector<participant> members_;
  bool has_owner_;
  std::int64_t first_ = 0;
  /// 0: anybody may register.
  std::int64_t count_ = 0;
  std::int64_t replicas_ = 0;
  /// Awaited replicas that were erased and have not come back.
  std::vector<range> erased_;
  bool closed_ = false;
};

} // namespace syncnorm::detail
