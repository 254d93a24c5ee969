#pragma once

#include "syncnorm/caf_error.hpp"
#include "syncnorm/detail/caf_compat.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace syncnorm::detail {

/// What a master knows of one participant: a slave, a relay that stands for a
/// range of replicas, or the owner.
struct participant {
  /// Of a relay, its first replica's.
  std::int64_t identifier = 0;
  /// Whom the master monitors. Null for an owner that is a thread, or whom it
  /// does not know yet.
  caf::actor_addr address;
  /// Has sent its message of the current round.
  bool arrived = false;
  /// Has had the error of the failed round.
  bool informed = false;
  /// A late relay that has said itself whom it waits for.
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

/// The participants of one generation in the order of their identifiers. Of a
/// master the first one is its owner; a relay has none. A relay knows whom it
/// waits for, and so does a master that was told how many; to another anybody
/// may come.
class roster {
public:
  /// A master's, of the replicas 0 to `count - 1`, or, for 0, of any.
  explicit roster(std::int64_t count = 0);

  /// A relay's, of the replicas `first` to `first + count - 1`.
  roster(std::int64_t first, std::int64_t count);

  /// Forgets everybody but the owner, who has nothing to register with.
  void clear();

  /// Why nobody could register as `x` in any generation, the text beginning
  /// with `where`: `invalid_identifier`, for what is no identifier or none of
  /// this relay's. Nothing if somebody could.
  [[nodiscard]] std::optional<caf::error>
  refuse(const participant& x, const std::string& where) const;

  /// Adds a slave or a relay and returns its position.
  /// @returns `invalid_identifier` or `duplicate_identifier`, the text
  ///          beginning with `where`, if it cannot be added.
  caf::expected<std::size_t> add(const participant& x,
                                 const std::string& where);

  void erase(std::size_t position);

  /// Position of the participant of that identifier.
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

  /// Whether it knows how many are waited for.
  [[nodiscard]] bool is_counted() const noexcept {
    return count_ != 0;
  }

  /// Whether all who are waited for have registered, but for those who were
  /// erased since; true where anybody may come.
  [[nodiscard]] bool is_full() const noexcept {
    return count_ == 0 || closed_ || replicas_ + erased_count() >= count_;
  }

  /// Waits no longer for replicas that have not registered.
  void close() noexcept {
    closed_ = true;
  }

  /// Lists those who have arrived, or those who have not:
  /// `"replica 3"`, `"replicas 0, 1, 2, 8-15"`, `"nobody"`. Those who are
  /// waited for and have not registered have not arrived; relays that have
  /// reported are in neither list.
  [[nodiscard]] std::string list(bool arrived) const;

  /// Of a relay's: `"replicas 4 to 7"`.
  [[nodiscard]] std::optional<std::string> relayed_range() const;

  /// Lists everybody in the same way.
  [[nodiscard]] std::string list() const;

private:
  /// Replicas in a row.
  struct range {
    std::int64_t first;
    std::int64_t count;
  };

  [[nodiscard]] std::int64_t erased_count() const noexcept;

  /// Those for whom `x` stands are erased no longer.
  void bring_back(const participant& x);

  std::vector<participant> members_;
  bool has_owner_;
  std::int64_t first_ = 0;
  /// 0: anybody may come.
  std::int64_t count_ = 0;
  std::int64_t replicas_ = 0;
  /// Of those who are waited for, who was erased and has not come back.
  std::vector<range> erased_;
  bool closed_ = false;
};

} // namespace syncnorm::detail
