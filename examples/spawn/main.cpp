// Spawns a master and four slaves in a CAF application. Each slave sends a
// number into a round and gets the mean of all numbers. In the second round,
// replica 2 dies, and everybody learns which replica it was. Prints:
//
//   replica 1 of 4 has 2.5
//   ...
//   replica 1: participant_down: layer bn1, round 2: replica 2 is down (kill)
//   ...
//   1 round, failures: 1 participant_down

#include "syncnorm/config.hpp"
#include "syncnorm/sync_master.hpp"

#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace syncnorm;

// begin: types
using master_type = sync_master_actor<double, double>;
using pipe_type = slave_pipe<double, double>;
// end: types

// Writes each line in one piece: several actors print.
void print(const std::string& line) {
  std::cout << line + "\n" << std::flush;
}

// begin: callback
// Called once per round, with the master's message first, then the slaves' in
// the order of their identifiers; returns one reply for each.
std::vector<identified<double>> mean(std::span<identified<double>> messages) {
  double sum = 0;
  for (const auto& x : messages.subspan(1)) // the master only leads
    sum += x.message;
  std::vector<identified<double>> replies;
  for (const auto& x : messages)
    replies.push_back(
        {x.identifier, sum / static_cast<double>(messages.size() - 1)});
  return replies;
}
// end: callback

// begin: slave
// A slave: registers, then sends a number into each round and continues when
// the reply comes. It never blocks a CAF worker thread.
class slave : public caf::event_based_actor {
public:
  slave(caf::actor_config& config, master_type master, std::int64_t identifier,
        std::shared_ptr<future_writer<bool>> registered)
      : caf::event_based_actor{config},
        master_{std::move(master)},
        identifier_{identifier},
        registered_{std::move(registered)} {}

  // begin: register
  caf::behavior make_behavior() override {
    register_slave(this, master_, identifier_)
        .then(
            [this](const slave_ticket& ticket) {
              pipe_.emplace(master_, ticket);
              registered_->put(true);
              run();
            },
            [this](const caf::error& reason) { registered_->put(reason); });
    return {[](caf::unit_t) {}}; // takes replies only
  }
  // end: register

private:
  // begin: run
  void run() {
    if (++round_ == 2 && identifier_ == 2)
      return quit(caf::exit_reason::kill); // what a crash looks like
    pipe_->run_slave(this, static_cast<double>(identifier_))
        .then(
            [this](double value) {
              std::ostringstream line;
              line << "replica " << identifier_ << " of 4 has " << value;
              print(line.str());
              run();
            },
            [this](const caf::error& reason) {
              print("replica " + std::to_string(identifier_) + ": "
                    + describe(reason));
            });
  }
  // end: run
  // end: slave

  master_type master_;
  std::int64_t identifier_;
  std::shared_ptr<future_writer<bool>> registered_;
  std::optional<pipe_type> pipe_;
  int round_ = 0;
};

// begin: config
// Lets the configuration file and the command line set the group `syncnorm`.
struct config : caf::actor_system_config {
  config() {
    add_config_options(custom_options_);
  }
};
// end: config

// begin: defaults
// Reports an invalid value of the group at the start. Otherwise, spawning the
// first master would throw the error.
void require_good_defaults(const caf::actor_system& system) {
  try {
    (void) read_defaults(system.config());
  } catch (const error& x) {
    std::cerr << x.what() << '\n';
    std::_Exit(EXIT_FAILURE); // no actor runs yet
  }
}
// end: defaults

void caf_main(caf::actor_system& system, const config&) {
  require_good_defaults(system);
  // begin: spawn
  // begin: master
  auto master = spawn_sync_master<double, double>(
      system, {.layer = "bn1", .participants = 5}, mean);
  // end: master
  for (int identifier = 1; identifier <= 4; ++identifier) {
    auto registered = std::make_shared<future_result<bool>>();
    // The holder of the writer owes a result; if the writer is destroyed
    // without one, the result is an error.
    system.spawn<slave>(master, identifier,
                        std::make_shared<future_writer<bool>>(registered));
    if (auto done = registered->get(); !done)
      print("replica " + std::to_string(identifier) + ": "
            + describe(done.error()));
  }
  // begin: lead
  caf::scoped_actor self{system};
  for (int round = 1; round <= 2; ++round)
    run_master(self, master, 0.0)
        .receive([](double) {},
                 [](const caf::error& x) { print("owner: " + describe(x)); });
  // end: lead
  // end: spawn
  // begin: metrics
  read_metrics(self, master)
      .receive(
          [](const sync_metrics& m) {
            std::ostringstream line;
            line << m.rounds << " round, failures:";
            for (const auto& failure : m.failures)
              line << ' ' << failure.count << ' ' << to_string(failure.cause);
            print(line.str());
          },
          [](const caf::error& x) { print(describe(x)); });
  // end: metrics
  // The master ends when the last slave that holds its handle has ended.
}

CAF_MAIN(caf::id_block::syncnorm)
