#include "syncnorm/caf_error.hpp"

#include "tests/actors/fault_rounds.hpp"
#include "tests/actors/system.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

// Threads that take part in every way that there is, and leave in every way.

namespace {

using owner_type = sync_master<double, double>;
using pipe_type = owner_type::pipe_type;

/// Of a participant: a bit of its own, so that a sum says who is in it.
double bit_of(std::int64_t identifier) {
  return static_cast<double>(std::int64_t{1} << identifier);
}

/// The sum; throws if messages are missing, mixed up or out of order.
std::vector<identified<double>>
add_bits(std::span<identified<double>> messages) {
  std::int64_t last = -1;
  for (const auto& x : messages) {
    if (x.identifier <= last || x.message != bit_of(x.identifier))
      throw error{errc::malformed_message, "not the message of a participant"};
    last = x.identifier;
  }
  return add_up(messages);
}

/// An owner and up to five slaves, a thread each, that do thirty things each.
class thread_run {
public:
  thread_run(caf::actor_system& system, std::uint32_t seed)
      : system_{system},
        random_{seed},
        slaves_{static_cast<std::int64_t>(1 + random_() % 5)},
        is_fixed_{random_() % 3 == 0},
        is_survivors_{random_() % 2 == 0} {}

  /// Returns how many outcomes could not be.
  int run() {
    owner_type owner{system_, options(),
                     sync_callback<double, double>{add_bits}};
    at_work_ = static_cast<int>(slaves_);
    std::vector<std::jthread> threads;
    for (std::int64_t i = 1; i <= slaves_; ++i)
      threads.emplace_back([this, &owner, i, seed = random_()] {
        play_slave(owner, i, std::mt19937{seed});
        --at_work_;
      });
    play_owner(owner, std::mt19937{random_()});
    threads.clear();
    return wrong_;
  }

private:
  /// A deadline of an hour where nobody waits for somebody who has not
  /// registered: that all come back without it.
  sync_options options() {
    auto is_patient = !is_fixed_ && random_() % 2 == 0;
    return {.layer = "bn1",
            .deadline = is_patient ? caf::timespan{1h} : 20ms,
            .policy = is_survivors_ ? failure_policy::continue_with_survivors
                                    : failure_policy::fail_round,
            .participants = is_fixed_ ? slaves_ + 1 : 0};
  }

  void play_slave(owner_type& owner, std::int64_t i, std::mt19937 random) {
    std::optional<pipe_type> pipe;
    for (int deed = 0; deed < 30; ++deed)
      if (!pipe)
        pipe = enlist(owner, i);
      else if (!act(*pipe, i, random))
        pipe.reset();
  }

  std::optional<pipe_type> enlist(owner_type& owner, std::int64_t i) {
    auto pipe = owner.register_slave(i);
    if (pipe)
      return std::move(*pipe);
    expect(code_of(pipe.error()) == errc::duplicate_identifier);
    return std::nullopt;
  }

  /// Returns whether the pipe is of use after it.
  bool act(pipe_type& pipe, std::int64_t i, std::mt19937& random) {
    auto x = bit_of(i);
    switch (random() % 12) {
    case 0:
      return is_value(i, pipe.run_slave(x, some_time(random)));
    case 1:
      return is_value(i, pipe.run_slave_async(x).get());
    case 2:
      std::ignore = pipe.run_slave_async(x);
      return is_value(i, pipe.await_reply(some_time(random)));
    case 3:
      std::ignore = pipe.run_slave_async(x);
      return false;
    case 4:
      return false;
    case 5:
      expect(!pipe.give_up("of no use"));
      return false;
    case 6:
      std::ignore = pipe.run_slave_async(x);
      expect(!pipe.give_up("of no use"));
      std::ignore = is_value(i, pipe.await_reply());
      return false;
    case 7: {
      auto other = std::move(pipe);
      expect(!pipe.run_slave(x));
      return is_value(i, other.run_slave(x)) && false;
    }
    case 8:
      std::ignore = pipe.run_slave_async(x);
      expect(!pipe.run_slave_async(x).get());
      return is_value(i, pipe.await_reply());
    default:
      return is_value(i, pipe.run_slave(x));
    }
  }

  void play_owner(owner_type& owner, std::mt19937 random) {
    while (at_work_ != 0)
      switch (random() % 10) {
      case 0:
        std::ignore = is_value(0, owner.run_master(1, some_time(random)));
        break;
      case 1:
        expect(!owner.send_master(1));
        std::ignore = is_value(0, owner.await_reply(some_time(random)));
        break;
      case 2:
        owner.give_up("of no use");
        break;
      default:
        std::ignore = is_value(0, owner.run_master(1));
      }
  }

  static caf::timespan some_time(std::mt19937& random) {
    return std::chrono::microseconds{random() % 3 == 0 ? 0 : random() % 2000};
  }

  /// Whoever has a value is in it, and if all are waited for, so are they; an
  /// error is one of the library's.
  bool is_value(std::int64_t i, const caf::expected<double>& got) {
    if (!got) {
      expect(code_of(got.error()).has_value());
      return false;
    }
    auto is_all = *got == bit_of(slaves_ + 1) - 1;
    auto is_in = (static_cast<std::int64_t>(*got) >> i) % 2 != 0;
    expect(is_in && (is_all || !is_fixed_ || is_survivors_));
    return true;
  }

  void expect(bool holds) {
    wrong_ += holds ? 0 : 1;
  }

  caf::actor_system& system_;
  std::mt19937 random_;
  std::int64_t slaves_;
  bool is_fixed_;
  bool is_survivors_;
  std::atomic<int> at_work_ = 0;
  std::atomic<int> wrong_ = 0;
};

} // namespace

TEST_CASE_FIXTURE(system_fixture,
                  "threads that wait, wait too short, leave, give up and come "
                  "again in any order: each call returns, with a value that "
                  "the thread is in, or an error of the library's") {
  for (int seed = 1; seed <= fault_rounds() / 20; ++seed) {
    auto wrong = thread_run{system, static_cast<std::uint32_t>(seed)}.run();
    CHECK_MESSAGE(wrong == 0, "seed " << seed);
  }
}
