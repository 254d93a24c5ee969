#pragma once

#include "tests/actors/relay_tree.hpp"
#include "tests/actors/tree_shape.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

// Replicas that live on their own: they register, send into round after round,
// do something wrong now and then, and register again when a round has failed.

namespace syncnorm::test {

/// What a replica does instead of sending one message in time.
enum class misdeed {
  dies,
  gives_up,
  sends_and_gives_up,
  sends_and_dies,
  sends_twice,
  sends_for_another_round,
  comes_late
};

/// A replica's message, and its outcome.
struct attempt {
  outcome<block> got;
  /// Whether the sender did nothing wrong.
  bool is_honest = true;
  /// The sender is gone, and no longer waits for the outcome.
  bool is_orphan = false;
};

/// What is known about one replica, whichever actor plays it.
struct simulated_record {
  std::vector<attempt> attempts;
  /// How many of these have a value.
  std::int64_t values = 0;
  /// How many are to have one.
  std::int64_t goal = 0;
  /// Errors since the last value.
  int errors = 0;
  /// Does nothing until told to.
  bool has_stopped = false;
  /// Sleeps before it sends.
  bool is_late = false;
  /// Counts the actors that have been this replica: only the last one still is.
  int incarnation = 0;

  /// Whether it waits for an answer.
  [[nodiscard]] bool is_waiting() const {
    return std::ranges::any_of(attempts, [](const auto& x) {
      return x.got.count == 0 && !x.is_orphan;
    });
  }

  /// The actor that was this replica is gone.
  void orphan() {
    ++incarnation;
    is_late = false;
    for (auto& x : attempts)
      x.is_orphan = x.is_orphan || x.got.count == 0;
  }
};

/// What all replicas of a simulation share.
struct simulated_world {
  std::mt19937 random;
  std::vector<simulated_record> replicas{};
  /// How many misdeeds may still happen.
  int misdeeds = 0;
  /// Actors that go on when told to: their registration was refused, or they
  /// are ahead of the others.
  std::vector<caf::actor> waiting{};
  /// What happened, for readers of a failed check.
  std::string log{};

  /// Whether all replicas that go on have reached their goal.
  [[nodiscard]] bool is_done() const {
    return std::ranges::all_of(replicas, [](const auto& x) {
      return x.has_stopped || x.values >= x.goal;
    });
  }
};

class simulated_replica final : public caf::event_based_actor {
public:
  simulated_replica(caf::actor_config& config, simulated_world& world,
                    block_master home, std::int64_t identifier)
      : caf::event_based_actor{config},
        world_{world},
        me_{world.replicas[static_cast<std::size_t>(identifier)]},
        incarnation_{me_.incarnation},
        home_{std::move(home)},
        identifier_{identifier} {}

  caf::behavior make_behavior() override {
    return {
        [this](go_atom) {
          if (!is_busy_)
            go_on();
        },
        [this](late_atom) {
          me_.is_late = false;
          play(true);
        },
    };
  }

private:
  void go_on() {
    // Enough for a replica that is told again and again that its place is
    // taken.
    constexpr int too_many = 10;
    me_.has_stopped = me_.has_stopped || me_.errors > too_many;
    if (incarnation_ != me_.incarnation || me_.has_stopped || world_.is_done())
      return;
    if (me_.values > me_.goal && !std::exchange(has_rested_, true))
      return wait_for_others();
    has_rested_ = false;
    is_busy_ = true;
    if (identifier_ == 0 || tag_)
      act();
    else
      enlist();
  }

  void wait_for_others() {
    world_.waiting.emplace_back(this);
  }

  void next() {
    is_busy_ = false;
    detail::send(this, caf::actor{this}, go_atom_v);
  }

  void enlist() {
    register_slave(this, home_, identifier_)
        .then(
            [this](const slave_ticket& ticket) {
              tag_ = ticket.first;
              pipe_.emplace(home_, ticket);
              next();
            },
            [this](const caf::error& why) {
              tell("refused: " + describe(why));
              ++me_.errors;
              is_busy_ = false;
              wait_for_others();
            });
  }

  void act() {
    if (world_.misdeeds == 0 || below(world_.random, 6) != 0)
      return play(true);
    --world_.misdeeds;
    auto what = static_cast<misdeed>(below(world_.random, 7));
    // An owner's message names no round.
    if (identifier_ == 0
        && (what == misdeed::sends_twice
            || what == misdeed::sends_for_another_round))
      what = misdeed::gives_up;
    tell("misdeed " + std::to_string(static_cast<int>(what)));
    me_.has_stopped = what != misdeed::comes_late;
    do_wrong(what);
  }

  void do_wrong(misdeed what) {
    switch (what) {
    case misdeed::dies:
      return die();
    case misdeed::gives_up:
      return give_up();
    case misdeed::sends_and_gives_up:
      play(false);
      return give_up();
    case misdeed::sends_and_dies:
      play(false);
      return die();
    case misdeed::sends_twice:
      play(false);
      return play_for(tag_->round);
    case misdeed::sends_for_another_round:
      return play_for(tag_->round + 5);
    case misdeed::comes_late:
      return sleep();
    }
  }

  void die() {
    me_.orphan();
    quit(caf::exit_reason::kill);
  }

  void give_up() {
    if (identifier_ != 0)
      pipe_->give_up(this, "of no use");
    else
      detail::send(this, home_, give_up_atom_v, round_tag{},
                   std::string{"of no use"});
    forget();
    is_busy_ = false;
  }

  /// Sleeps for about as long as the deadline.
  void sleep() {
    static constexpr int milliseconds[] = {5000,  9900,  9999,  10001,
                                           10100, 10300, 11200, 15000};
    auto chosen = below(world_.random, std::ssize(milliseconds));
    me_.is_late = true;
    detail::delayed_send(this, caf::actor{this},
                         std::chrono::milliseconds{milliseconds[chosen]},
                         late_atom_v);
  }

  void play(bool is_honest) {
    auto number = add_attempt(is_honest);
    if (identifier_ == 0)
      await(number, run_master(this, home_, message(number)));
    else
      await(number, pipe_->run_slave(this, message(number)));
  }

  void play_for(std::uint64_t round) {
    auto number = add_attempt(false);
    auto tag = *tag_;
    tag.round = round;
    await(number, detail::request_master(this, std::chrono::seconds{11}, home_,
                                         identifier_, run_slave_atom_v, tag,
                                         message(number)));
  }

  std::size_t add_attempt(bool is_honest) {
    me_.attempts.push_back({{}, is_honest, incarnation_ != me_.incarnation});
    return me_.attempts.size() - 1;
  }

  /// Has the message's number, from 1, at this replica's place: so a sum shows
  /// which messages are in it.
  block message(std::size_t number) const {
    std::vector<double> values(world_.replicas.size());
    values[static_cast<std::size_t>(identifier_)] =
        static_cast<double>(number + 1);
    return block{std::move(values)};
  }

  template <class Response>
  void await(std::size_t number, Response response) {
    std::move(response).then(
        [this, number](block& value) {
          me_.attempts[number].got(std::move(value));
          ++me_.values;
          me_.errors = 0;
          if (tag_)
            ++tag_->round;
          next();
        },
        [this, number](const caf::error& why) {
          tell(std::to_string(number + 1) + " failed: " + describe(why));
          me_.attempts[number].got(why);
          ++me_.errors;
          forget();
          next();
        });
  }

  void forget() {
    tag_.reset();
    pipe_.reset();
  }

  void tell(const std::string& what) {
    world_.log += "\n  replica " + std::to_string(identifier_) + ": " + what;
  }

  simulated_world& world_;
  simulated_record& me_;
  const int incarnation_;
  block_master home_;
  std::int64_t identifier_;
  /// The tag of the next message; empty unless registered.
  std::optional<round_tag> tag_;
  std::optional<slave_pipe<block, block>> pipe_;
  bool is_busy_ = false;
  /// Whether it has let the others catch up.
  bool has_rested_ = false;
};

} // namespace syncnorm::test
