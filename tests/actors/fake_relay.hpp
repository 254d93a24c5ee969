#pragma once

#include "tests/actors/relay_tree.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace syncnorm::test {

using tree_type = replica_tree<block, block>;

inline constexpr auto survivors = failure_policy::continue_with_survivors;

/// A deadline of one hour distinguishes a round that ends at once from one that
/// ends at its deadline.
inline sync_options bn1(failure_policy policy = failure_policy::fail_round,
                        caf::timespan deadline = std::chrono::hours{1}) {
  return {.layer = "bn1", .deadline = deadline, .policy = policy};
}

/// A tag of the first generation.
inline round_tag tag_of(std::int64_t identifier, std::uint64_t round = 1) {
  return {layer_hash("bn1"), 1, round, identifier};
}

/// A master that adds, and its replicas.
struct relay_master : tree_type {
  explicit relay_master(caf::actor_system& system, sync_options options = bn1())
      : tree_type{system, spawn_sync_master<block, block>(
                              system, std::move(options), sum_of_blocks())} {}
};

/// Returns when `to` has handled everything sent to it before.
inline void settle(tree_type& tree, const block_master& to) {
  detail::request(tree.actor(0), to, nr_slaves_atom_v)
      .receive([](std::uint64_t) {},
               [](const caf::error& x) { FAIL(describe(x)); });
}

/// The metrics of a master or a relay.
inline sync_metrics metrics_of(tree_type& tree, const block_master& of) {
  sync_metrics result;
  read_metrics(tree.actor(0), of)
      .receive([&](sync_metrics& x) { result = std::move(x); },
               [](const caf::error& x) { FAIL(describe(x)); });
  return result;
}

/// A relay; the test itself sends each of its messages.
class fake_relay {
public:
  fake_relay(caf::actor_system& system, const tree_type& tree,
             replica_range range)
      : self_{system},
        master_{tree.master()},
        range_{range} {
    enlist();
  }

  void enlist() {
    detail::request(self_, master_, register_relay_atom_v, range_.first,
                    range_.count)
        .receive([this](slave_ticket& x) { tag = x.first; },
                 [](const caf::error& x) { FAIL(describe(x)); });
  }

  auto send(const relay_parts& parts) {
    return tree_type::later(
        detail::request(self_, master_, run_relay_atom_v, tag, parts));
  }

  /// Sends the value of its first replica on behalf of all of its replicas.
  auto send(block value, caf::timespan waited = {}) {
    return send(relay_parts{
        waited, {range_.first}, caf::make_message(std::move(value))});
  }

  /// Sends as a slave would.
  auto send_as_slave(block value) {
    return tree_type::later(detail::request(self_, master_, run_slave_atom_v,
                                            tag, std::move(value)));
  }

  void report_failure(const round_tag& where,
                      const std::string& text = "a report") {
    detail::send(self_, master_, round_failed_atom_v, where,
                 make_error(errc::participant_failed, text));
  }

  round_tag tag;

private:
  caf::scoped_actor self_;
  block_master master_;
  replica_range range_;
};

} // namespace syncnorm::test
