#pragma once

#include "tests/actors/system.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace syncnorm::test {

/// What one participant saw: how many rounds were answered with a value, how
/// many of those values were wrong, and the error that ended its rounds.
struct rounds_seen {
  std::int64_t rounds = 0;
  std::int64_t wrong = 0;
  caf::error error;
};

/// An event-driven participant that runs rounds without a pause. Identifier 0
/// leads; it starts on request, the others when they are registered.
class rounds_actor : public caf::event_based_actor {
public:
  using master_type = sync_master_actor<double, double>;
  using message_of = std::function<double(std::int64_t, std::int64_t)>;
  using is_right = std::function<bool(std::int64_t, double)>;

  rounds_actor(caf::actor_config& config, master_type master,
               std::int64_t identifier, std::int64_t rounds, message_of message,
               is_right right, std::shared_ptr<future_result<int>> ready,
               std::shared_ptr<future_result<rounds_seen>> done)
      : caf::event_based_actor{config},
        master_{std::move(master)},
        identifier_{identifier},
        rounds_{rounds},
        message_{std::move(message)},
        right_{std::move(right)},
        ready_{std::move(ready)},
        done_{std::move(done)} {}

  caf::behavior make_behavior() override {
    if (identifier_ == 0)
      std::ignore = ready_->put(0);
    else
      register_slave(this, master_, identifier_)
          .then([this](const slave_ticket& ticket) {
            pipe_.emplace(master_, ticket);
            std::ignore = ready_->put(0);
          });
    return {[this](go_atom) { next(); }};
  }

private:
  void next() {
    if (seen_.rounds == rounds_)
      return finish({});
    auto message = message_(identifier_, seen_.rounds);
    auto go_on = [this](double reply) {
      seen_.wrong += !right_(seen_.rounds, reply);
      ++seen_.rounds;
      next();
    };
    auto stop = [this](const caf::error& reason) { finish(reason); };
    if (identifier_ == 0)
      run_master(this, master_, message).then(go_on, stop);
    else
      pipe_->run_slave(this, message).then(go_on, stop);
  }

  void finish(const caf::error& reason) {
    seen_.error = reason;
    std::ignore = done_->put(seen_);
  }

  master_type master_;
  std::int64_t identifier_;
  std::int64_t rounds_;
  message_of message_;
  is_right right_;
  std::shared_ptr<future_result<int>> ready_;
  std::shared_ptr<future_result<rounds_seen>> done_;
  std::optional<slave_pipe<double, double>> pipe_;
  rounds_seen seen_;
};

/// Runs rounds with the given number of participants, the owner included, and
/// returns what each saw.
inline std::vector<rounds_seen>
run_participants(caf::actor_system& system, rounds_actor::master_type master,
                 int participants, std::int64_t rounds,
                 rounds_actor::message_of message,
                 rounds_actor::is_right right) {
  std::vector<caf::actor> actors;
  std::vector<std::shared_ptr<future_result<rounds_seen>>> done;
  for (int i = 0; i < participants; ++i) {
    auto ready = std::make_shared<future_result<int>>();
    done.push_back(std::make_shared<future_result<rounds_seen>>());
    actors.push_back(system.spawn<rounds_actor>(master, i, rounds, message,
                                                right, ready, done.back()));
    std::ignore = ready->get();
  }
  for (auto& x : actors)
    detail::anon_send(x, go_atom_v);
  std::vector<rounds_seen> seen;
  for (auto& x : done)
    seen.push_back(*x->get());
  for (auto& x : actors)
    caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
  return seen;
}

} // namespace syncnorm::test
