#pragma once

#include "tests/actors/simulated_network.hpp"
#include "tests/actors/simulated_replica.hpp"
#include "tests/actors/simulated_system.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::test {

/// A master, relays and replicas on any nodes, and what happens to them.
class simulated_tree {
public:
  /// @param nodes with 1 there is no network.
  simulated_tree(simulated_system& here, std::uint32_t seed, std::int64_t nodes,
                 const sync_options& options)
      : here_{here},
        world_{.random = std::mt19937{seed}},
        network_{here.system},
        shape_{world_.random, options.participants},
        nodes_{nodes},
        master_{spawn_sync_master<block, block>(here.system, options,
                                                sum_of_blocks())},
        replicas_(static_cast<std::size_t>(options.participants)),
        relays_(shape_.relays().size()) {
    world_.replicas.resize(replicas_.size());
    for (std::size_t i = 0; i < relays_.size(); ++i) {
      relays_[i].node = choose_node();
      spawn_relay(i);
    }
    for (std::int64_t i = 0; i < replicas(); ++i) {
      replica(i).node = choose_node();
      spawn_replica(i);
    }
  }

  simulated_tree(const simulated_tree&) = delete;
  simulated_tree& operator=(const simulated_tree&) = delete;

  ~simulated_tree() {
    for (auto& x : replicas_)
      caf::anon_send_exit(x.actor, caf::exit_reason::kill);
    for (auto& x : relays_)
      caf::anon_send_exit(x.actor, caf::exit_reason::kill);
    caf::anon_send_exit(std::exchange(master_, {}), caf::exit_reason::kill);
    world_.waiting.clear();
    replicas_.clear();
    relays_.clear();
    // An actor that asks when its connection is lost gets an answer.
    here_.run_to_the_end();
    network_.close();
    here_.run_to_the_end();
  }

  [[nodiscard]] std::int64_t replicas() const {
    return shape_.replicas();
  }

  [[nodiscard]] std::int64_t below(std::int64_t n) {
    return test::below(world_.random, n);
  }

  [[nodiscard]] const simulated_record& record(std::int64_t replica) const {
    return world_.replicas[static_cast<std::size_t>(replica)];
  }

  [[nodiscard]] bool is_behind_relay(std::int64_t replica) const {
    return shape_.home(replica).has_value();
  }

  /// Whether anything between this replica and the master was ever lost.
  [[nodiscard]] bool was_cut_off(std::int64_t replica) const {
    return replicas_[static_cast<std::size_t>(replica)].was_cut_off
           || shape_.any_above(shape_.home(replica), [this](std::size_t i) {
                return relays_[i].was_lost;
              });
  }

  /// Replicas go on until each has `values` more values.
  void go_on(std::int64_t values, int misdeeds) {
    world_.misdeeds = misdeeds;
    for (std::int64_t i = 0; i < replicas(); ++i) {
      auto& x = world_.replicas[static_cast<std::size_t>(i)];
      x.goal = x.values + values;
      x.errors = 0;
      x.has_stopped = false;
      detail::anon_send(replica(i).actor, go_atom_v);
    }
  }

  /// A random actor takes a message, or a random connection brings one.
  /// @returns whether there was one.
  bool step() {
    return test::step(here_, network_, world_.random);
  }

  /// The next timer rings, or a node notices that it has lost another.
  /// @returns whether there was any.
  bool wait() {
    if (network_.is_all_noticed() || below(2) == 0)
      return here_.ring() || notice();
    return notice();
  }

  bool notice() {
    return network_.notice(world_.random);
  }

  /// Whether all replicas that go on have reached their goal.
  [[nodiscard]] bool is_done() const {
    return world_.is_done();
  }

  /// Whether a replica that lives waits for an answer, or is late.
  [[nodiscard]] bool is_waiting() const {
    return std::ranges::any_of(world_.replicas, [](const auto& x) {
      return x.is_late || x.is_waiting();
    });
  }

  /// Whether a replica waits for a master that all nodes know it has lost.
  [[nodiscard]] bool is_waiting_for_lost() const {
    if (!network_.is_all_noticed())
      return false;
    for (std::int64_t i = 0; i < replicas(); ++i)
      for (auto cut : network_.cuts())
        if (crosses(i, cut) && record(i).is_waiting())
          return true;
    return false;
  }

  /// Whether all exist, are active, and reach the master: then none has to wait
  /// for the clock.
  [[nodiscard]] bool is_whole() const {
    return network_.cuts().empty() && world_.waiting.empty()
           && std::ranges::none_of(relays_,
                                   [](const auto& x) { return x.is_lost; })
           && std::ranges::none_of(world_.replicas, [](const auto& x) {
                return x.has_stopped || x.is_late;
              });
  }

  /// Tells all that wait for it to go on.
  /// @returns whether there was one.
  bool retry() {
    auto waiting = std::exchange(world_.waiting, {});
    for (const auto& x : waiting)
      detail::anon_send(x, go_atom_v);
    return !waiting.empty();
  }

  // -- what befalls them ------------------------------------------------------

  void kill_replica(bool is_replaced) {
    auto i = below(replicas());
    tell("replica " + std::to_string(i) + " is killed");
    caf::anon_send_exit(replica(i).actor, caf::exit_reason::kill);
    if (is_replaced)
      return spawn_replica(i);
    auto& record = world_.replicas[static_cast<std::size_t>(i)];
    record.has_stopped = true;
    record.orphan();
  }

  void kill_master() {
    caf::anon_send_exit(master_, caf::exit_reason::kill);
  }

  void kill_relay() {
    if (relays_.empty())
      return;
    auto i = static_cast<std::size_t>(below(std::ssize(relays_)));
    tell("relay " + std::to_string(i) + " is killed");
    lose_relay(i, caf::exit_reason::kill);
  }

  void cut() {
    auto one = choose_node();
    auto other = choose_node();
    if (one == other || network_.is_cut({one, other}))
      return;
    tell("nodes " + std::to_string(one) + " and " + std::to_string(other)
         + " lose each other");
    network_.cut(one, other);
    for (std::int64_t i = 0; i < replicas(); ++i)
      if (crosses(i, {one, other}))
        replica(i).was_cut_off = true;
  }

  /// Respawns the actors that have ended or cannot reach the master.
  void repair() {
    tell("repair");
    while (notice())
      while (step()) {
      }
    for (auto way : network_.mend())
      replace_behind(way);
    for (std::size_t i = 0; i < relays_.size(); ++i)
      if (auto parent = shape_.relays()[i].parent;
          parent && relays_[*parent].is_lost && !relays_[i].is_lost)
        lose_relay(i, caf::exit_reason::user_shutdown);
    for (std::int64_t i = 0; i < replicas(); ++i)
      if (is_below_lost(i))
        end_replica(i);
    for (std::size_t i = 0; i < relays_.size(); ++i)
      if (std::exchange(relays_[i].is_lost, false))
        spawn_relay(i);
    for (std::int64_t i = 0; i < replicas(); ++i)
      if (detail::has_exited(replica(i).actor) || replica(i).is_ended)
        spawn_replica(i);
  }

  /// The shape and what has happened, for readers of a failed check.
  [[nodiscard]] std::string text() const {
    auto result = std::to_string(replicas()) + " replicas";
    for (std::size_t i = 0; i < relays_.size(); ++i)
      result +=
          ", " + shape_.text(i) + " at node " + std::to_string(relays_[i].node);
    return result + world_.log;
  }

private:
  struct replica_place {
    std::size_t node = 0;
    caf::actor actor{};
    bool is_ended = false;
    bool was_cut_off = false;
  };

  struct relay_place {
    std::size_t node = 0;
    block_master actor{};
    bool is_lost = false;
    bool was_lost = false;
  };

  std::size_t choose_node() {
    return static_cast<std::size_t>(below(nodes_));
  }

  replica_place& replica(std::int64_t i) {
    return replicas_[static_cast<std::size_t>(i)];
  }

  [[nodiscard]] std::size_t node_of(tree_shape::place x) const {
    return x ? relays_[*x].node : 0;
  }

  [[nodiscard]] std::size_t node_of_replica(std::int64_t i) const {
    return replicas_[static_cast<std::size_t>(i)].node;
  }

  block_master seen(tree_shape::place x, std::size_t node) {
    return caf::actor_cast<block_master>(
        network_.seen(node, node_of(x),
                      caf::actor_cast<caf::strong_actor_ptr>(
                          x ? relays_[*x].actor : master_)));
  }

  void spawn_relay(std::size_t i) {
    const auto& x = shape_.relays()[i];
    relays_[i].actor = spawn_sync_relay<block, block>(
        here_.system, seen(x.parent, relays_[i].node), "bn1", x.range,
        merge_blocks);
  }

  void spawn_replica(std::int64_t i) {
    auto& place = replica(i);
    auto& record = world_.replicas[static_cast<std::size_t>(i)];
    record.orphan();
    place.is_ended = false;
    place.actor = here_.system.spawn<simulated_replica>(
        world_, seen(shape_.home(i), place.node), i);
    detail::anon_send(place.actor, go_atom_v);
  }

  void end_replica(std::int64_t i) {
    caf::anon_send_exit(replica(i).actor, caf::exit_reason::kill);
    replica(i).is_ended = true;
    world_.replicas[static_cast<std::size_t>(i)].orphan();
  }

  void lose_relay(std::size_t i, caf::exit_reason why) {
    relays_[i].is_lost = relays_[i].was_lost = true;
    caf::anon_send_exit(relays_[i].actor, why);
  }

  [[nodiscard]] bool is_below_lost(std::int64_t i) const {
    return shape_.any_above(shape_.home(i), [this](std::size_t relay) {
      return relays_[relay].is_lost;
    });
  }

  /// Replaces the actors whose handles belong to the lost connection.
  void replace_behind(direction cut) {
    for (std::size_t i = 0; i < relays_.size(); ++i)
      if (is_same({relays_[i].node, node_of(shape_.relays()[i].parent)}, cut))
        lose_relay(i, caf::exit_reason::user_shutdown);
    for (std::int64_t i = 0; i < replicas(); ++i)
      if (is_same({replica(i).node, node_of(shape_.home(i))}, cut))
        end_replica(i);
  }

  /// Whether the replica's way to the master crosses `cut`.
  bool crosses(std::int64_t i, direction cut) const {
    auto home = shape_.home(i);
    return is_same({node_of_replica(i), node_of(home)}, cut)
           || shape_.any_above(home, [&](std::size_t relay) {
                return is_same({relays_[relay].node,
                                node_of(shape_.relays()[relay].parent)},
                               cut);
              });
  }

  static bool is_same(direction x, direction y) {
    return x == y || x == direction{y.to, y.from};
  }

  void tell(const std::string& what) {
    world_.log += "\n  " + what;
  }

  simulated_system& here_;
  simulated_world world_;
  simulated_network network_;
  tree_shape shape_;
  std::int64_t nodes_;
  block_master master_;
  std::vector<replica_place> replicas_;
  std::vector<relay_place> relays_;
};

} // namespace syncnorm::test
