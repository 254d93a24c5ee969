#pragma once

#include "syncnorm/merge_tree.hpp"
#include "syncnorm/sync_relay.hpp"

#include "tests/actors/outcome.hpp"
#include "tests/actors/system.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace syncnorm::test {

using block = double_array;
using block_master = sync_master_actor<block, block>;
using parts = std::vector<identified<block>>;

/// Adds arrays along the tree.
inline block merge_blocks(std::span<identified<block>> parts) {
  std::vector<identified<std::span<const double>>> views;
  for (const auto& x : parts)
    views.push_back({x.identifier, x.message.view()});
  std::vector<double> sum(parts[0].message.size());
  add_tree(std::move(views), std::span{sum});
  return block{std::move(sum)};
}

inline sync_reduction<block, block> sum_of_blocks() {
  return {.merge = merge_blocks, .finish = [](block x) { return x; }};
}

/// Values whose sum has different bits in a different order.
inline block block_of(std::int64_t identifier, int round = 0) {
  std::vector<double> values;
  for (int i = 0; i < 40; ++i)
    values.push_back(
        std::sin(static_cast<double>(identifier * 1000 + round * 40 + i))
        * std::pow(10.0, i % 17));
  return block{std::move(values)};
}

/// Replicas 0 to n - 1 of a master, with any relays between: each is an actor,
/// and the test itself sends each of its messages.
template <class In, class Out>
class replica_tree {
public:
  using handle_type = sync_master_actor<In, Out>;
  using pipe_type = slave_pipe<In, Out>;

  replica_tree(caf::actor_system& system, handle_type master)
      : system_{&system},
        master_{std::move(master)} {}

  virtual ~replica_tree() {
    for (auto& x : relays_)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(master_, caf::exit_reason::user_shutdown);
  }

  /// Adds a relay; returns its handle.
  handle_type add_relay(handle_type parent, std::string layer,
                        replica_range range,
                        std::function<In(std::span<identified<In>>)> merge) {
    return relays_.emplace_back(spawn_sync_relay<In, Out>(
        *system_, parent, std::move(layer), range, std::move(merge)));
  }

  caf::scoped_actor& actor(std::int64_t identifier) {
    auto& x = actors_[identifier];
    if (!x)
      x = std::make_unique<caf::scoped_actor>(system_of(identifier));
    return *x;
  }

  /// Ends the actor of a replica as if it had died.
  void kill(std::int64_t identifier) {
    actors_[identifier].reset();
  }

  /// Registers a replica with `at`.
  outcome<slave_ticket> enlist(const handle_type& at, std::int64_t identifier) {
    outcome<slave_ticket> x;
    register_slave(actor(identifier), at, identifier)
        .receive([&](slave_ticket& t) { x(t); }, [&](caf::error& e) { x(e); });
    if (x.value)
      pipes_.insert_or_assign(identifier, pipe_type{at, *x.value});
    return x;
  }

  void enlist(const handle_type& at, replica_range range) {
    for (std::int64_t i = 0; i < range.count; ++i)
      if (auto x = enlist(at, range.first + i); x.count != 1 || !x.value)
        throw std::runtime_error{x.text()};
  }

  /// Sends a replica's message; the result is a function that waits for the
  /// outcome.
  std::function<outcome<Out>()> send(std::int64_t identifier, In message) {
    if (identifier == 0)
      return later(run_master(actor(0), master_, std::move(message)));
    return later(
        pipes_.at(identifier).run_slave(actor(identifier), std::move(message)));
  }

  pipe_type& pipe(std::int64_t identifier) {
    return pipes_.at(identifier);
  }

  /// Sends for all `replicas` replicas and waits for what each of them gets.
  std::vector<outcome<Out>>
  run(std::int64_t replicas, const std::function<In(std::int64_t)>& message) {
    std::vector<std::function<outcome<Out>()>> waiting;
    for (std::int64_t i = 0; i < replicas; ++i)
      waiting.push_back(send(i, message(i)));
    std::vector<outcome<Out>> result;
    for (auto& x : waiting)
      result.push_back(x());
    return result;
  }

  [[nodiscard]] const handle_type& master() const {
    return master_;
  }

  template <class Response>
  static std::function<outcome<Out>()> later(Response response) {
    return [r = std::make_shared<Response>(std::move(response))] {
      outcome<Out> x;
      std::move(*r).receive([&](Out& value) { x(std::move(value)); },
                            [&](caf::error& e) { x(e); });
      return x;
    };
  }

protected:
  /// Where a replica lives.
  virtual caf::actor_system& system_of(std::int64_t) {
    return *system_;
  }

private:
  caf::actor_system* system_;
  handle_type master_;
  std::vector<handle_type> relays_;
  std::map<std::int64_t, std::unique_ptr<caf::scoped_actor>> actors_;
  std::map<std::int64_t, pipe_type> pipes_;
};

} // namespace syncnorm::test
