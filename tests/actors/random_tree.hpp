#pragma once

#include "syncnorm/publish_master.hpp"
#include "syncnorm/remote_master.hpp"

#include "tests/actors/relay_tree.hpp"
#include "tests/actors/tree_shape.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::test {

/// A master, relays in any shape up to three deep, and up to twelve replicas;
/// the test itself sends each of their messages. Any of the relays, with those
/// that register with it, may live on another node.
class random_tree : public replica_tree<block, block> {
public:
  using base = replica_tree<block, block>;

  /// @param other  the other node, or null if there is none.
  random_tree(caf::actor_system& system, caf::actor_system* other,
              std::mt19937& random, const sync_options& options)
      : base{system,
             spawn_sync_master<block, block>(system, options, sum_of_blocks())},
        system_{system},
        other_{other},
        random_{random},
        shape_{random, 2 + below(11)} {
    for (std::size_t i = 0; i < shape_.relays().size(); ++i) {
      relays_.push_back({other && below(2) == 0});
      relays_[i].handle = spawn(i);
    }
  }

  ~random_tree() override {
    for (const auto& x : relays_)
      caf::anon_send_exit(x.handle, caf::exit_reason::user_shutdown);
  }

  random_tree(const random_tree&) = delete;
  random_tree& operator=(const random_tree&) = delete;

  /// A number from 0 to `n - 1`.
  std::int64_t below(std::int64_t n) {
    return test::below(random_, n);
  }

  /// The number of replicas, the owner included.
  [[nodiscard]] std::int64_t replicas() const noexcept {
    return shape_.replicas();
  }

  [[nodiscard]] std::int64_t relays() const noexcept {
    return std::ssize(relays_);
  }

  /// The master or relay with which a replica registers.
  const block_master& home(std::int64_t replica) {
    return at(shape_.home(replica));
  }

  void kill_relay(std::int64_t relay) {
    caf::anon_send_exit(relays_[static_cast<std::size_t>(relay)].handle,
                        caf::exit_reason::kill);
    dead_.insert(static_cast<std::size_t>(relay));
  }

  /// How many relays have been killed since all registered.
  [[nodiscard]] std::int64_t nr_dead_relays() const noexcept {
    return std::ssize(dead_);
  }

  /// Whether a relay on the replica's way to the master has been killed.
  [[nodiscard]] bool is_cut_off(std::int64_t replica) const {
    return shape_.any_above(shape_.home(replica), [this](std::size_t relay) {
      return dead_.contains(relay);
    });
  }

  /// All replicas register, in any order, the dead ones' successors too.
  void enlist_all() {
    replace_dead_relays();
    std::vector<std::int64_t> order(static_cast<std::size_t>(replicas() - 1));
    std::iota(order.begin(), order.end(), 1);
    std::ranges::shuffle(order, random_);
    for (auto i : order)
      enlist(home(i), replica_range{i, 1});
  }

  /// The shape, for readers of a failed check.
  [[nodiscard]] std::string text() const {
    auto result = std::to_string(replicas()) + " replicas";
    for (std::size_t i = 0; i < relays_.size(); ++i)
      result += ", " + shape_.text(i) + (relays_[i].is_far ? " elsewhere" : "");
    return result;
  }

protected:
  caf::actor_system& system_of(std::int64_t replica) override {
    return system_at(shape_.home(replica));
  }

private:
  struct relay {
    /// Whether it is on the other node.
    bool is_far = false;
    block_master handle{};
  };

  const block_master& at(tree_shape::place relay) {
    return relay ? relays_[*relay].handle : master();
  }

  caf::actor_system& system_at(tree_shape::place relay) {
    return relay && relays_[*relay].is_far ? *other_ : system_;
  }

  block_master spawn(std::size_t relay) {
    const auto& x = shape_.relays()[relay];
    auto& here = system_at(relay);
    auto& there = system_at(x.parent);
    auto parent = at(x.parent);
    if (&here != &there)
      parent = across(there, here, parent);
    return spawn_sync_relay<block, block>(here, parent, "bn1", x.range,
                                          merge_blocks);
  }

  /// The handle of `x` on the other node.
  static block_master across(caf::actor_system& from, caf::actor_system& to,
                             const block_master& x) {
    auto port = publish_master(from, x);
    if (!port)
      throw std::runtime_error{describe(port.error())};
    auto result = remote_master<block, block>(to, "127.0.0.1", *port);
    if (!result)
      throw std::runtime_error{describe(result.error())};
    return *result;
  }

  /// Also replaces the relays below them, whose parent is gone. Parents come
  /// first.
  void replace_dead_relays() {
    for (std::size_t i = 0; i < relays_.size(); ++i) {
      auto parent = shape_.relays()[i].parent;
      if (parent && dead_.contains(*parent) && dead_.insert(i).second)
        caf::anon_send_exit(relays_[i].handle, caf::exit_reason::user_shutdown);
      if (dead_.contains(i))
        relays_[i].handle = spawn(i);
    }
    dead_.clear();
  }

  caf::actor_system& system_;
  caf::actor_system* other_;
  std::mt19937& random_;
  tree_shape shape_;
  std::vector<relay> relays_;
  std::set<std::size_t> dead_;
};

} // namespace syncnorm::test
