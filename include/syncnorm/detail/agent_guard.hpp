#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <utility>

namespace syncnorm::detail {

/// Owns an agent: when the guard is destroyed, the agent exits after reading
/// what it was sent before.
class agent_guard {
public:
  explicit agent_guard(caf::actor agent) : agent_{std::move(agent)} {}

  agent_guard(const agent_guard&) = delete;
  agent_guard& operator=(const agent_guard&) = delete;

  ~agent_guard() {
    replace(nullptr);
  }

  [[nodiscard]] const caf::actor& actor() const noexcept {
    return agent_;
  }

  /// Ends the agent, and owns another one.
  void replace(caf::actor agent) {
    // `anon_send_exit` overtakes other messages.
    if (agent_)
      detail::anon_send(
          agent_,
          caf::exit_msg{agent_.address(),
                        caf::make_error(caf::exit_reason::user_shutdown)});
    agent_ = std::move(agent);
  }

  /// Leaves the agent to somebody else.
  void release() noexcept {
    agent_ = nullptr;
  }

private:
  caf::actor agent_;
};

} // namespace syncnorm::detail
