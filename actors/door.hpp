#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <string>
#include <utility>

namespace syncnorm::detail {

/// Where refused connections to one published port are reported. The port and
/// its connections share the door.
class door {
public:
  /// @param system   whose logger gets the reports.
  /// @param listener gets them, too, if there is one; the door does not keep
  /// it.
  door(caf::actor_system& system, const caf::actor& listener)
      : system_{&system},
        listener_{caf::actor_cast<caf::actor_addr>(listener)} {}

  /// Reports that `who` was refused, and why: "10.0.0.7 is refused: certificate
  /// has expired". Waits for nobody.
  void tell(const std::string& who, const std::string& why) const;

private:
  caf::actor_system* system_;
  caf::actor_addr listener_;
};

/// While one of these lives, what OpenSSL finds wrong with a connection on this
/// thread is reported at that door; see `here`.
class at_door {
public:
  explicit at_door(const door* x) noexcept
      : before_{std::exchange(current, x)} {}

  at_door(const at_door&) = delete;
  at_door& operator=(const at_door&) = delete;

  ~at_door() {
    current = before_;
  }

  /// The door of the innermost `at_door`, or null.
  [[nodiscard]] static const door* here() noexcept {
    return current;
  }

private:
  static thread_local const door* current;

  const door* before_;
};

} // namespace syncnorm::detail
