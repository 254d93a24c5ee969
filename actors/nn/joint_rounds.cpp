#include "actors/nn/joint_rounds.hpp"

#include "actors/nn/seat.hpp"

#include <utility>

namespace syncnorm::nn::detail {

joint_rounds::joint_rounds(std::size_t copies) : copies_{copies} {
  for (auto& table : rounds_) {
    table.parts.resize(copies);
    table.candidates.resize(copies);
  }
}

void joint_rounds::post(std::size_t copy, std::uint64_t round,
                        saved_part_ptr part) {
  rounds_[round % 2].parts[copy] = std::move(part);
}

void joint_rounds::withdraw(std::size_t copy, std::uint64_t round) noexcept {
  rounds_[round % 2].parts[copy].reset();
}

node_ptr<batch_norm_node> joint_rounds::join(std::size_t copy,
                                             std::uint64_t round) {
  auto& table = rounds_[round % 2];
  node_ptr<batch_norm_node> node;
  if (any_edge(table.parts)) {
    // Each copy makes a node as long as none is there, one of them counts:
    // nobody waits for another, and the others' are dropped.
    auto winner = table.winner.load(std::memory_order_acquire);
    if (winner < 0) {
      table.candidates[copy] = make_node<batch_norm_node>(table.parts, nullptr);
      if (table.winner.compare_exchange_strong(
              winner, static_cast<std::int64_t>(copy),
              std::memory_order_acq_rel, std::memory_order_acquire))
        winner = static_cast<std::int64_t>(copy);
      else
        table.candidates[copy].reset();
    }
    node = table.candidates[static_cast<std::size_t>(winner)];
  }
  if (table.left.fetch_add(1, std::memory_order_acq_rel) + 1 == copies_)
    clear(table);
  return node;
}

/// The last to leave clears the table, before anybody can come back to it.
void joint_rounds::clear(round_table& table) {
  table.parts.assign(copies_, nullptr);
  table.candidates.assign(copies_, nullptr);
  table.winner.store(-1, std::memory_order_relaxed);
  table.left.store(0, std::memory_order_relaxed);
}

std::shared_ptr<joint_rounds> make_joint_rounds(std::size_t copies) {
  return std::make_shared<joint_rounds>(copies);
}

} // namespace syncnorm::nn::detail
