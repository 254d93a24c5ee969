#pragma once

#include "trainer/run/messages.hpp"

#include "syncnorm/sync_master.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <variant>

namespace syncnorm::train {

/// The name of the master.
inline constexpr const char* gradient_layer = "gradients";

/// One replica's end of the exchange of gradients. Replica 0 owns the master,
/// the others have a pipe to it.
class gradient_exchange {
public:
  /// Replica 0's: spawns the master.
  /// @param deadline of each round.
  gradient_exchange(caf::actor_system& system, caf::timespan deadline);

  /// Another replica's: registers with `master`, here or on another node.
  /// @throws syncnorm::error as the master answers.
  gradient_exchange(caf::actor_system& system, const gradient_master& master,
                    std::size_t index);

  /// Waits until every replica has sent its part.
  /// @throws syncnorm::error with the master's text, which names the replicas
  /// at fault.
  gradient_sum run(gradient_part part);

  /// Tells the others that this replica cannot do its part, and why.
  void give_up(const std::string& why);

  [[nodiscard]] const gradient_master& master() const noexcept {
    return master_;
  }

private:
  using owner = sync_master<gradient_part, gradient_sum>;
  using pipe = slave_pipe<gradient_part, gradient_sum>;

  std::variant<std::unique_ptr<owner>, std::unique_ptr<pipe>> role_;
  gradient_master master_;
};

} // namespace syncnorm::train
