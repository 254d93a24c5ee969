#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <utility>

namespace syncnorm::detail {

/// Owns an agent: when the guard goes, the agent exits.
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
    if (agent_)
      caf::anon_send_exit(agent_, caf::exit_reason::user_shutdown);
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
