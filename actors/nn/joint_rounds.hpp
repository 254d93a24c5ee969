#pragma once

// How the copies of a data-parallel graph come to share one node.

#include "actors/nn/backward_part.hpp"
#include "actors/nn/copy_node.hpp"
#include "actors/nn/graph_node.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace syncnorm::nn::detail {

/// The table on which the copies of one layer lay their parts of the graph,
/// each from its own thread, without a lock. The round of messages between
/// `post` and `join` orders them: no copy gets a reply before all have sent. So
/// the last copy to lay down its part makes the node of all, before it sends,
/// and makes each copy's own node lead there.
///
/// What is on the table when a round fails stays there until the copies are
/// released. A copy that goes on without a release gets an error from `join`; a
/// copy that is late in an earlier round does not.
///
/// Two rounds are enough: a copy that posts into the next round but one has
/// seen the reply of the next, into which all have sent after they joined this
/// one.
class joint_rounds {
public:
  explicit joint_rounds(std::size_t copies);

  /// Lays down the part of `copy` before it sends its message of the round. No
  /// two threads make a node of the same parts: making it marks their graphs'
  /// nodes.
  void post(std::size_t copy, std::uint64_t round, saved_part_ptr part);

  /// After the reply: the node of the copy's output in that round, which no
  /// other copy touches until a backward pass, or null if nothing requires a
  /// gradient.
  /// @throws error `stale` if that round, or an earlier one, was abandoned.
  node_ptr<copy_node> join(std::size_t copy, std::uint64_t round);

  /// A copy's call of that round has failed after `post`.
  void abandon(std::uint64_t round) noexcept {
    auto before = abandoned_.load();
    while (round < before && !abandoned_.compare_exchange_weak(before, round))
      continue;
  }

private:
  struct round_table {
    std::vector<saved_part_ptr> parts;
    std::vector<node_ptr<copy_node>> nodes;
    std::atomic<std::size_t> posted = 0;
    std::atomic<std::size_t> left = 0;
  };

  /// Makes the node of all, to which each copy's node leads.
  static void join_all(round_table& table);

  void clear(round_table& table);

  std::size_t copies_;
  std::array<round_table, 2> rounds_;
  /// The first round that a copy has abandoned.
  std::atomic<std::uint64_t> abandoned_ =
      std::numeric_limits<std::uint64_t>::max();
};

} // namespace syncnorm::nn::detail
