#pragma once

#include "trainer/plan/settings.hpp"
#include "trainer/run/messages.hpp"

#include "syncnorm/sync_master.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace syncnorm::train {

/// Elements of a gradient that travel as one message, unless set otherwise.
/// With large messages, nothing overlaps in transit.
inline constexpr std::size_t gradient_chunk = elements_of_chunk(default_chunk);

/// How many chunks a replica has in flight at a time.
inline constexpr std::size_t max_gradient_lanes = 16;

/// The name of a lane's master.
[[nodiscard]] std::string gradient_lane(std::size_t lane);

/// One replica's end of the exchange of gradients. Gradients are cut into
/// chunks, which travel in lanes: chunk k is in lane k % lanes, and each round
/// of a lane carries one chunk. Cutting changes no bit of the sum. Replica 0
/// owns the masters of the lanes, the others have a pipe to each.
class gradient_exchange {
public:
  /// Replica 0's: spawns the masters.
  /// @param deadline of each round.
  /// @param elements of the model.
  /// @param chunk    elements of a message, 1 or more; the same for all.
  gradient_exchange(caf::actor_system& system, caf::timespan deadline,
                    std::size_t elements, std::size_t chunk = gradient_chunk);

  /// Another replica's: registers with `masters`, here or on another node.
  /// @throws syncnorm::error as a master answers; `shape_mismatch` if there are
  ///         not as many as a model of `elements` has lanes.
  gradient_exchange(caf::actor_system& system, gradient_masters masters,
                    std::size_t index, std::size_t elements,
                    std::size_t chunk = gradient_chunk);

  /// Waits until every replica has sent its part.
  /// @throws syncnorm::error with a master's text, which names the replicas at
  /// fault.
  gradient_sum run(const gradient_part& part);

  /// Tells the others that this replica cannot do its part, and why.
  void give_up(const std::string& why);

  [[nodiscard]] const gradient_masters& masters() const noexcept {
    return masters_;
  }

private:
  using owner = sync_master<gradient_part, gradient_sum>;
  using pipe = slave_pipe<gradient_part, gradient_sum>;
  using lane = std::variant<std::unique_ptr<owner>, std::unique_ptr<pipe>>;

  void send(std::size_t i, const gradient_part& part);
  gradient_sum await(std::size_t i);
  gradient_sum run_chunks(const gradient_part& part);

  std::size_t elements_;
  /// Elements of a chunk, and how many chunks there are.
  std::size_t chunk_;
  std::size_t chunks_;
  gradient_masters masters_;
  std::vector<lane> lanes_;
};

} // namespace syncnorm::train
