#pragma once

#include "bench/network/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace syncnorm::bench {

/// Something that exchanges messages with other processes.
class network_contestant {
public:
  network_contestant() = default;
  network_contestant(const network_contestant&) = delete;
  network_contestant& operator=(const network_contestant&) = delete;
  virtual ~network_contestant() = default;

  /// Does so `times` times. @throws std::runtime_error for a wrong answer.
  virtual void run(std::int64_t times) = 0;
};

using network_contestant_ptr = std::unique_ptr<network_contestant>;

/// Rounds of a master in this process, which also holds its owner; each of
/// `peers` holds one replica. They add up ones.
network_contestant_ptr make_rounds(caf::actor_system& system,
                                   const std::vector<caf::actor>& peers,
                                   std::size_t elements);

/// The same for several layers in parallel, each with as many rounds.
network_contestant_ptr make_layers(caf::actor_system& system,
                                   const std::vector<caf::actor>& peers,
                                   std::size_t elements, std::size_t layers);

/// One plain request to each of `peers`, all at the same time, and their
/// answers.
network_contestant_ptr make_requests(caf::actor_system& system,
                                     const std::vector<caf::actor>& peers,
                                     std::size_t elements);

/// Small whole numbers, whose sum is exact in any order.
std::vector<float> bulk_values(std::size_t elements);

/// How a large array is sent.
struct chunking {
  std::size_t elements;
  /// Chunks in flight at a time.
  std::size_t window;
  /// Actors on both sides run on the thread that brings their messages, as
  /// masters and relays do; otherwise on CAF's workers.
  bool here;
};

/// A new receiver of chunks in the process of `peer`.
caf::actor make_receiver(caf::actor_system& system, const caf::actor& peer,
                         bool here);

/// Sends `values` to `receiver` in chunks.
network_contestant_ptr make_chunks(caf::actor_system& system,
                                   const caf::actor& receiver,
                                   std::span<const float> values,
                                   const chunking& cut);

/// The sum of the chunks that `receiver` has received; it then forgets them.
double total_of(caf::actor_system& system, const caf::actor& receiver);

} // namespace syncnorm::bench
