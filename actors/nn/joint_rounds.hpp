#pragma once

// How the copies of a data-parallel graph come to have one node.

#include "actors/nn/batch_norm_node.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace syncnorm::nn::detail {

/// The table on which the copies of one layer lay their parts of the graph,
/// each from its own thread, without a lock. The round of messages between
/// `post` and `join` is what orders them: nobody gets a reply before everybody
/// has sent.
///
/// Two rounds are enough: a copy that posts into the next but one has seen the
/// reply of the next, which all have sent into after they joined this one.
class joint_rounds {
public:
  explicit joint_rounds(std::size_t copies);

  /// Lays down the part of `copy` before it sends its message of the round.
  void post(std::size_t copy, std::uint64_t round, saved_part_ptr part);

  /// Takes back what `post` laid down after the round failed.
  void withdraw(std::size_t copy, std::uint64_t round) noexcept;

  /// After the reply: the node of all copies of that round, the same for each,
  /// or null if nothing requires a gradient. Input `copy` is this copy's.
  node_ptr<batch_norm_node> join(std::size_t copy, std::uint64_t round);

private:
  struct round_table {
    std::vector<saved_part_ptr> parts;
    std::vector<node_ptr<batch_norm_node>> candidates;
    /// The copy whose candidate counts, or -1.
    std::atomic<std::int64_t> winner = -1;
    std::atomic<std::size_t> left = 0;
  };

  void clear(round_table& table);

  std::size_t copies_;
  std::array<round_table, 2> rounds_;
};

} // namespace syncnorm::nn::detail
