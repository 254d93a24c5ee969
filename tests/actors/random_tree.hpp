#pragma once

#include "syncnorm/publish_master.hpp"
#include "syncnorm/remote_master.hpp"

#include "tests/actors/relay_tree.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::test {

/// A master, up to three relays deep in any shape, and up to twelve replicas,
/// whose every message the test sends itself. Any of the relays, with those who
/// register with it, may live on another node.
class random_tree : public replica_tree<block, block> {
public:
  using base = replica_tree<block, block>;

  /// @param other  the other node; null: there is none.
  random_tree(caf::actor_system& system, caf::actor_system* other,
              std::mt19937& random, const sync_options& options)
      : base{system,
             spawn_sync_master<block, block>(system, options, sum_of_blocks())},
        system_{system},
        other_{other},
        random_{random},
        replicas_{2 + below(11)},
        home_(static_cast<std::size_t>(replicas_)) {
    grow({1, replicas_ - 1}, std::nullopt, 0);
  }

  ~random_tree() override {
    for (const auto& x : relays_)
      caf::anon_send_exit(x.handle, caf::exit_reason::user_shutdown);
  }

  random_tree(const random_tree&) = delete;
  random_tree& operator=(const random_tree&) = delete;

  /// A number from 0 to `n - 1`.
  std::int64_t below(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>{0, n - 1}(random_);
  }

  /// The owner included.
  [[nodiscard]] std::int64_t replicas() const noexcept {
    return replicas_;
  }

  [[nodiscard]] std::int64_t relays() const noexcept {
    return std::ssize(relays_);
  }

  /// With whom a replica registers.
  const block_master& home(std::int64_t replica) {
    return at(home_[static_cast<std::size_t>(replica)]);
  }

  void kill_relay(std::int64_t relay) {
    caf::anon_send_exit(relays_[static_cast<std::size_t>(relay)].handle,
                        caf::exit_reason::kill);
    dead_.insert(static_cast<std::size_t>(relay));
  }

  /// Whether a relay has been killed since all have registered.
  [[nodiscard]] std::int64_t nr_dead_relays() const noexcept {
    return std::ssize(dead_);
  }

  /// Whether one on the replica's way to the master has been.
  [[nodiscard]] bool is_cut_off(std::int64_t replica) const {
    for (auto i = home_[static_cast<std::size_t>(replica)]; i;
         i = relays_[*i].parent)
      if (dead_.contains(*i))
        return true;
    return false;
  }

  /// All replicas register, in any order, the dead ones' successors too.
  void enlist_all() {
    replace_dead_relays();
    std::vector<std::int64_t> order(home_.size() - 1);
    std::iota(order.begin(), order.end(), 1);
    std::ranges::shuffle(order, random_);
    for (auto i : order)
      enlist(home(i), replica_range{i, 1});
  }

  /// The shape, for who reads a failed check.
  [[nodiscard]] std::string text() const {
    auto result = std::to_string(replicas_) + " replicas";
    for (const auto& x : relays_)
      result += ", a relay of " + std::to_string(x.range.count) + " from "
                + std::to_string(x.range.first) + " on"
                + (x.is_far ? " elsewhere" : "");
    return result;
  }

protected:
  caf::actor_system& system_of(std::int64_t replica) override {
    return system_at(home_[static_cast<std::size_t>(replica)]);
  }

private:
  struct relay {
    replica_range range;
    /// Nothing: the master.
    std::optional<std::size_t> parent;
    /// On the other node.
    bool is_far = false;
    block_master handle{};
  };

  /// Spreads a range over relays of its own and the actor `parent`.
  void grow(replica_range range, std::optional<std::size_t> parent, int depth) {
    for (auto i = range.first; i < range.first + range.count;) {
      replica_range some{i, 1};
      if (depth < 3 && below(5) < 2) {
        some.count += below(range.first + range.count - i);
        relays_.push_back({some, parent, other_ && below(2) == 0});
        relays_.back().handle = spawn(relays_.back());
        grow(some, relays_.size() - 1, depth + 1);
      } else {
        home_[static_cast<std::size_t>(i)] = parent;
      }
      i += some.count;
    }
  }

  const block_master& at(std::optional<std::size_t> relay) {
    return relay ? relays_[*relay].handle : master();
  }

  caf::actor_system& system_at(std::optional<std::size_t> relay) {
    return relay && relays_[*relay].is_far ? *other_ : system_;
  }

  block_master spawn(const relay& x) {
    auto& here = x.is_far ? *other_ : system_;
    auto& there = system_at(x.parent);
    auto parent = at(x.parent);
    if (&here != &there)
      parent = across(there, here, parent);
    return spawn_sync_relay<block, block>(here, parent, "bn1", x.range,
                                          merge_blocks);
  }

  /// The handle of that actor on the other side.
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

  /// And those below them, whose parent is gone. Parents come first.
  void replace_dead_relays() {
    for (std::size_t i = 0; i < relays_.size(); ++i) {
      auto& x = relays_[i];
      if (x.parent && dead_.contains(*x.parent) && dead_.insert(i).second)
        caf::anon_send_exit(x.handle, caf::exit_reason::user_shutdown);
      if (dead_.contains(i))
        x.handle = spawn(x);
    }
    dead_.clear();
  }

  caf::actor_system& system_;
  caf::actor_system* other_;
  std::mt19937& random_;
  std::int64_t replicas_;
  /// Where each replica registers.
  std::vector<std::optional<std::size_t>> home_;
  std::vector<relay> relays_;
  std::set<std::size_t> dead_;
};

} // namespace syncnorm::test
