#pragma once

#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/errors.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace syncnorm::detail {

/// What a master knows of one participant.
struct participant {
  std::int64_t identifier = 0;
  /// Whom the master monitors. Null for an owner that is a thread.
  caf::actor_addr address;
  /// Has sent its message of the current round.
  bool arrived = false;
  /// Has had the error of the failed round.
  bool informed = false;
};

/// The participants of one generation in the order of their identifiers. The
/// first one is the master itself.
class roster {
public:
  roster();

  /// Forgets everybody but the master.
  void clear();

  /// Adds a slave and returns its position.
  /// @returns `invalid_identifier` or `duplicate_identifier`, the text
  ///          beginning with `where`, if it cannot be added.
  caf::expected<std::size_t> add(std::int64_t identifier,
                                 const caf::actor_addr& address,
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

  /// Lists those who have arrived, or those who have not:
  /// `"replica 3"`, `"replicas 0, 1, 2"`, `"nobody"`.
  [[nodiscard]] std::string list(bool arrived) const;

private:
  std::vector<participant> members_;
};

} // namespace syncnorm::detail
