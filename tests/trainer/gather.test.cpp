#include "trainer/run/gather.hpp"

#include "trainer/test_config.hpp"

#include "syncnorm/caf_error.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::train;
using namespace std::chrono_literals;

namespace {

using senders = std::set<caf::actor_addr>;

/// Answers how often it was asked, if it answers at all, and notes by whom.
class member : public caf::event_based_actor {
public:
  member(caf::actor_config& config, std::shared_ptr<senders> askers,
         bool answers)
      : caf::event_based_actor{config},
        askers_{std::move(askers)},
        answers_{answers} {}

  caf::behavior make_behavior() override {
    return {[this](ping_atom) -> caf::result<std::string> {
      askers_->insert(caf::actor_cast<caf::actor_addr>(current_sender()));
      ++asked_;
      if (!answers_)
        return caf::delegated<std::string>{};
      return std::to_string(asked_);
    }};
  }

private:
  std::shared_ptr<senders> askers_;
  bool answers_;
  int asked_ = 0;
};

/// Ends when it is first asked, but not before it may.
class ending_member : public caf::event_based_actor {
public:
  ending_member(caf::actor_config& config, std::shared_future<void> may_end)
      : caf::event_based_actor{config},
        may_end_{std::move(may_end)} {}

  caf::behavior make_behavior() override {
    return {[this](ping_atom) -> caf::result<std::string> {
      may_end_.wait();
      quit(caf::exit_reason::kill);
      return caf::delegated<std::string>{};
    }};
  }

private:
  std::shared_future<void> may_end_;
};

/// Some replicas and who asks them.
struct asked_members {
  caf::actor_system system{configuration()};
  /// Of each member.
  std::vector<std::shared_ptr<senders>> askers;
  caf::actor one = system.spawn<asker>();
  std::vector<replica_actor> members;

  ~asked_members() {
    caf::anon_send_exit(one, caf::exit_reason::user_shutdown);
    for (const auto& x : members)
      caf::anon_send_exit(x, caf::exit_reason::kill);
  }

  void add(bool answers = true) {
    askers.push_back(std::make_shared<senders>());
    members.push_back(caf::actor_cast<replica_actor>(
        system.spawn<member>(askers.back(), answers)));
  }

  pending_answers<std::string> begin(const gather_limits& limits = {}) {
    return begin_gather<std::string>(
        one, members,
        [](auto* self, const auto& x, std::size_t) {
          return compat::request(self, x, ping_atom_v);
        },
        limits);
  }

  answers<std::string> end(pending_answers<std::string> x) {
    return end_gather(one, std::move(x), members.size());
  }
};

} // namespace

TEST_CASE("whatever replicas are asked comes from one actor, and in order") {
  asked_members some;
  some.add();
  some.add();
  auto first = some.begin();
  auto second = some.begin();
  for (const auto& x : some.end(std::move(second)))
    CHECK(x.value == "2");
  for (const auto& x : some.end(std::move(first)))
    CHECK(x.value == "1");
  for (const auto& x : some.end(some.begin()))
    CHECK(x.value == "3");
  CHECK(some.askers[0]->size() == 1);
  CHECK(*some.askers[0] == *some.askers[1]);
}

TEST_CASE("a replica that has gone between two questions is an error to both "
          "that come after, and the others answer") {
  asked_members some;
  some.add();
  some.add();
  (void) some.end(some.begin());
  caf::anon_send_exit(some.members[0], caf::exit_reason::kill);
  for (int i = 0; i < 2; ++i) {
    auto all = some.end(some.begin());
    CHECK(all[0].silent);
    CHECK(all[0].problem == errc::participant_down);
    CHECK(all[1].value == std::to_string(2 + i));
  }
}

TEST_CASE("questions that are open when a replica goes all end by it") {
  asked_members some;
  some.add(false);
  auto first = some.begin();
  auto second = some.begin();
  caf::anon_send_exit(some.members[0], caf::exit_reason::kill);
  for (auto* x : {&first, &second}) {
    auto all = some.end(std::move(*x));
    CHECK(all[0].silent);
    CHECK(all[0].problem == errc::participant_down);
  }
}

TEST_CASE("a question that reaches a replica as it ends is an error that says "
          "so, not one of CAF's own") {
  std::promise<void> may_end;
  asked_members some;
  some.members.push_back(caf::actor_cast<replica_actor>(
      some.system.spawn<ending_member>(may_end.get_future().share())));
  auto first = some.begin();
  auto second = some.begin();
  may_end.set_value();
  for (auto* x : {&first, &second}) {
    auto all = some.end(std::move(*x));
    CHECK(all[0].silent);
    CHECK(all[0].problem == errc::participant_down);
  }
}

TEST_CASE("a question whose time is over leaves the next one its own time") {
  asked_members some;
  some.add();
  some.add(false);
  auto patient = some.begin();
  auto late = some.end(some.begin({0s, 0s, 0s}));
  CHECK(late[1].silent);
  CHECK(late[1].problem == errc::deadline_exceeded);
  CHECK(patient.all.wait_for(0s) == std::future_status::timeout);
}

TEST_CASE("a question ends by its time for this process alone, and one that "
          "another process has sent is none") {
  asked_members some;
  some.add();
  some.add(false);
  auto open = some.begin();
  // As CAF 0.17 reads what it cannot read.
  compat::anon_send(some.one, ask_atom_v, errand_slot{});
  // Whoever sends it, it is nobody of this process.
  compat::anon_send(some.one, expire_atom_v, open.number);
  CHECK(some.begin().first.wait_for(1min) == std::future_status::ready);
  CHECK(open.all.wait_for(0s) == std::future_status::timeout);
  expire(some.one, open.number);
  CHECK(some.end(std::move(open))[1].problem == errc::deadline_exceeded);
}

TEST_CASE("after an error the others have as long as they were given") {
  asked_members some;
  some.add();
  some.add(false);
  caf::anon_send_exit(some.members[0], caf::exit_reason::kill);
  auto all = some.begin({0s, 1h, std::nullopt}).all.get();
  CHECK(all[0].problem == errc::participant_down);
  CHECK(all[1].problem == errc::deadline_exceeded);
}

TEST_CASE("nobody waits for an asker that has ended") {
  asked_members some;
  some.add(false);
  some.add(false);
  auto open = some.begin();
  caf::anon_send_exit(some.one, caf::exit_reason::user_shutdown);
  for (const auto& all : {some.end(std::move(open)), some.end(some.begin())}) {
    REQUIRE(all.size() == 2);
    for (const auto& x : all)
      CHECK(x.problem == errc::master_down);
  }
}

TEST_CASE("nobody asked is no answer, at once") {
  asked_members some;
  CHECK(some.end(some.begin()).empty());
}
