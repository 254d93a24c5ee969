#include "actors/nn/joint_rounds.hpp"

#include "actors/nn/batch_norm_node.hpp"
#include "syncnorm/error.hpp"

#include <utility>

namespace syncnorm::nn::detail {

joint_rounds::joint_rounds(std::size_t copies) : copies_{copies} {
  for (auto& table : rounds_)
    clear(table);
}

void joint_rounds::post(std::size_t copy, std::uint64_t round,
                        saved_part_ptr part) {
  if (round >= abandoned_.load())
    return;
  auto& table = rounds_[round % 2];
  table.nodes[copy] = make_node<copy_node>(*part);
  table.parts[copy] = std::move(part);
  if (table.posted.fetch_add(1, std::memory_order_acq_rel) + 1 == copies_)
    join_all(table);
}

void joint_rounds::join_all(round_table& table) {
  if (!any_edge(table.parts)) {
    for (auto& node : table.nodes)
      node.reset();
    return;
  }
  auto all = make_node<batch_norm_node>(table.parts, nullptr);
  std::uint32_t input = 0;
  for (auto& node : table.nodes)
    node->add_next_edge({all, input++});
}

node_ptr<copy_node> joint_rounds::join(std::size_t copy, std::uint64_t round) {
  if (round >= abandoned_.load())
    throw error{errc::stale, "a call of the layer has failed before, and the "
                             "copies have not been replicated again"};
  auto& table = rounds_[round % 2];
  auto node = std::move(table.nodes[copy]);
  if (table.left.fetch_add(1, std::memory_order_acq_rel) + 1 == copies_)
    clear(table);
  return node;
}

/// The last to leave clears the table, before anybody can come back to it.
void joint_rounds::clear(round_table& table) {
  table.parts.assign(copies_, nullptr);
  table.nodes.assign(copies_, {});
  table.posted.store(0, std::memory_order_relaxed);
  table.left.store(0, std::memory_order_relaxed);
}

} // namespace syncnorm::nn::detail
