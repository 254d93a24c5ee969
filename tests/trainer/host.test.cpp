#include "trainer/run/host.hpp"
#include "trainer/run/error_text.hpp"
#include "trainer/run/refusal_list.hpp"

#include "trainer/scratch_folder.hpp"
#include "trainer/test_config.hpp"

#include "syncnorm/caf_error.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::train;

namespace {

/// A host, as the trainer and applicants of its own process ask it.
struct asked_host {
  host_terms terms{"same", 3, failure_kind::go_on, 2, 3};
  caf::actor_system system{configuration()};
  caf::scoped_actor trainer{system};
  change_count changes = std::make_shared<std::atomic<std::uint64_t>>();
  host_actor host = spawn_host(system, terms, changes);

  ~asked_host() {
    caf::anon_send_exit(host, caf::exit_reason::user_shutdown);
  }

  /// Why it does not take that one; empty if it does.
  std::string join(caf::scoped_actor& self, const std::string& name,
                   std::uint64_t start) {
    auto own = caf::actor_cast<replica_actor>(caf::actor{self});
    return join(self, {name, -1, "same", {own}, start});
  }

  std::string join(caf::scoped_actor& self, const application& app) {
    std::string why;
    detail::request(self, host, join_atom_v, app)
        .receive([](std::uint64_t) {},
                 [&](const caf::error& x) { why = train::text_of(x); });
    return why;
  }

  std::vector<std::string> refusals() {
    std::vector<std::string> result;
    detail::request(trainer, host, refusals_atom_v)
        .receive([&](const std::vector<std::string>& x) { result = x; },
                 [](const caf::error&) {});
    return result;
  }

  /// Ends the run, and waits so long for the others to go.
  /// @returns whether they have gone.
  bool end(bool good, const std::string& text, caf::timespan patience = {}) {
    auto result = false;
    detail::request(trainer, host, end_atom_v, good, text, patience)
        .receive([&](bool x) { result = x; }, [](const caf::error&) {});
    return result;
  }

  /// What the first that has joined is told who asks for the end.
  std::string stay(caf::scoped_actor& self) {
    std::string told;
    detail::request_within(self, std::chrono::seconds{20}, host, stay_atom_v,
                           std::uint64_t{1})
        .receive([&](const std::string& text) { told = "good: " + text; },
                 [&](const caf::error& x) { told = train::text_of(x); });
    return told;
  }

  std::vector<process_entry> roll() {
    std::vector<process_entry> result;
    detail::request(trainer, host, roll_atom_v, std::uint64_t{0},
                    caf::timespan{})
        .receive([&](std::vector<process_entry>& x) { result = std::move(x); },
                 [](const caf::error&) {});
    return result;
  }
};

} // namespace

TEST_CASE("a process is called by what can be printed of its name") {
  asked_host one;
  caf::scoped_actor guest{one.system};
  CHECK(one.join(guest, "a\nb\x1b[2J:1", 7).empty());
  REQUIRE(one.roll().size() == 1);
  CHECK(one.roll()[0].name == "a?b?[2J:1");
}

TEST_CASE(
    "whoever is refused again and again is told of once, and of a hundred "
    "lines the last one says that there are more") {
  refusal_list told;
  const std::string text = "127.0.0.1 is refused: no\nbody";
  CHECK(told.add(text) == printable(text, 1000));
  CHECK_FALSE(told.add(text));
  for (std::size_t n = 1; n + 1 < refusal_list::max_lines; ++n) {
    auto line = "number " + std::to_string(n);
    CHECK(told.add(line) == line);
  }
  CHECK_FALSE(told.add("number 1"));
  CHECK(told.add("one more") == "more are refused, and not listed");
  CHECK_FALSE(told.add("another one"));
}

TEST_CASE("two processes may have one name, as in two containers, but one does "
          "not join twice") {
  asked_host one;
  caf::scoped_actor first{one.system};
  caf::scoped_actor second{one.system};
  caf::scoped_actor third{one.system};
  CHECK(one.join(first, "trainer:1", 7).empty());
  CHECK(one.join(second, "trainer:1", 8).empty());
  CHECK(contains(one.join(third, "trainer:1", 8), "it has joined already"));
  CHECK(contains(one.join(first, "trainer:2", 9), "it has joined already"));
}

TEST_CASE("of a run that has begun, nobody becomes a part for whom a batch has "
          "no sample") {
  asked_host one;
  caf::scoped_actor first{one.system};
  caf::scoped_actor second{one.system};
  std::ignore = one.roll();
  CHECK(one.join(first, "a:1", 1).empty());
  CHECK(one.join(second, "b:2", 2)
        == "b:2 is refused: with its 1 there would be 4 replicas, more than "
           "the 3 samples of a batch");
}

TEST_CASE("what is no application is refused by what is wrong with it") {
  asked_host one;
  caf::scoped_actor guest{one.system};
  auto own = caf::actor_cast<replica_actor>(caf::actor{guest});
  auto refusal = [&](auto change) {
    application app{"a:1", -1, "same", {own}, 7};
    change(app);
    return one.join(guest, app);
  };
  const std::string malformed = " is refused: a malformed application";
  CHECK(refusal([](auto& x) { x.name.clear(); }) == malformed);
  CHECK(refusal([](auto& x) { x.name = std::string(257, 'a'); })
        == std::string(80, 'a') + malformed);
  CHECK(refusal([](auto& x) { x.identity = std::string(4097, 'a'); })
        == "a:1" + malformed);
  CHECK(refusal([](auto& x) { x.rank = -2; }) == "a:1" + malformed);
  CHECK(refusal([](auto& x) { x.replicas.clear(); })
        == "a:1 is refused: expected 1 to 1024 replicas, found 0");
  CHECK(refusal([&](auto& x) { x.replicas.assign(1025, own); })
        == "a:1 is refused: expected 1 to 1024 replicas, found 1025");
  CHECK(refusal([](auto& x) { x.replicas.emplace_back(); })
        == "a:1 is refused: a replica that is not the applicant's own");
  CHECK(one.roll().empty());
}

TEST_CASE("a rank that has joined, and one process too many, are refused by "
          "who is there") {
  asked_host one;
  std::vector<std::unique_ptr<caf::scoped_actor>> guests;
  auto join = [&](const std::string& name, std::int64_t rank) {
    guests.push_back(std::make_unique<caf::scoped_actor>(one.system));
    auto& self = *guests.back();
    auto own = caf::actor_cast<replica_actor>(caf::actor{self});
    return one.join(self, {name, rank, "same", {own}, 7});
  };
  CHECK(join("a:1", 1).empty());
  CHECK(join("b:2", 1) == "b:2 is refused: rank 1 has joined already: a:1");
  CHECK(join("c:3", -1).empty());
  CHECK(join("d:4", -1).empty());
  CHECK(join("e:5", -1)
        == "e:5 is refused: expected 3 processes to join, and they are there: "
           "a:1, c:3, d:4");
}

TEST_CASE("a run that has begun, or ended, takes nobody in") {
  asked_host one{{"same", 3, failure_kind::stop, 2, 64}};
  caf::scoped_actor guest{one.system};
  std::ignore = one.roll();
  CHECK(contains(one.join(guest, "a:1", 7), "the run has begun, and takes "));
  one.end(true, "why");
  CHECK(one.join(guest, "a:1", 7) == "a:1 is refused: the run has ended");
}

TEST_CASE("a refusal is told to the trainer once") {
  asked_host one;
  caf::scoped_actor guest{one.system};
  auto why = one.join(guest, "", 7);
  CHECK(one.refusals() == std::vector{why});
  CHECK(one.refusals().empty());
}

TEST_CASE("nobody commands a host without a name, and nobody stays for another "
          "one") {
  asked_host one{{"same", 3, failure_kind::stop, 2, 64}};
  caf::scoped_actor first{one.system};
  caf::scoped_actor second{one.system};
  compat::anon_send(one.host, roll_atom_v, std::uint64_t{0}, caf::timespan{});
  compat::anon_send(one.host, end_atom_v, true, std::string{"why"},
                    caf::timespan{});
  compat::anon_send(one.host, refused_atom_v, std::string{"nobody"});
  CHECK(one.join(first, "a:1", 7).empty());
  CHECK(one.refusals().empty());
  auto why = one.join(second, "", 7);
  compat::anon_send(one.host, refusals_atom_v);
  CHECK(one.refusals() == std::vector{why});
  compat::anon_send(one.host, dismiss_atom_v, std::uint64_t{1},
                    std::string{"why"});
  REQUIRE(one.roll().size() == 1);
  CHECK(one.roll()[0].gone.empty());
  CHECK(one.stay(second) == "who stays must have joined");
}

TEST_CASE("what another process says is printed without what is no character "
          "of ASCII, up to the length") {
  CHECK(printable("a\x7f\xff\tb", 9) == "a???b");
  CHECK(printable("abc", 2) == "ab");
}

TEST_CASE("a round that failed is nobody's fault but its cause's") {
  for (auto code : {errc::invalid_identifier, errc::participant_failed})
    CHECK(is_consequence(make_error(code, "why")));
  CHECK_FALSE(is_consequence(make_error(errc::invalid_argument, "why")));
}

TEST_CASE("a process that is gone is on the roll once more, and then no more") {
  asked_host one;
  {
    caf::scoped_actor guest{one.system};
    CHECK(one.join(guest, "a:1", 7).empty());
  }
  auto roll = one.roll();
  while (!roll.empty() && roll[0].gone.empty())
    roll = one.roll();
  REQUIRE(roll.size() == 1);
  CHECK(roll[0].gone == "is gone");
  CHECK(one.roll().empty());
}

TEST_CASE("a process that has joined and asks for the end after it is told it "
          "as well") {
  for (auto good : {true, false}) {
    asked_host one;
    caf::scoped_actor guest{one.system};
    REQUIRE(one.join(guest, "a:1", 7).empty());
    one.end(good, "why");
    CHECK(one.stay(guest) == (good ? "good: why" : "why"));
  }
}

TEST_CASE("an application without a name of whom it comes from is nobody's, "
          "and ends no host") {
  asked_host one;
  caf::scoped_actor guest{one.system};
  application app{"a:1", -1, "same", {}, 7};
  app.replicas = {caf::actor_cast<replica_actor>(caf::actor{guest})};
  compat::anon_send(one.host, join_atom_v, app);
  CHECK(one.roll().empty());
  CHECK(one.refusals()
        == std::vector<std::string>{"a:1 is refused: only an actor can join"});
}

TEST_CASE("the end waits for those who have joined or leave, until they are "
          "gone, and for nobody who is lost") {
  using namespace std::chrono_literals;
  asked_host one;
  auto guest = std::make_unique<caf::scoped_actor>(one.system);
  auto leaver = std::make_unique<caf::scoped_actor>(one.system);
  caf::scoped_actor lost{one.system};
  REQUIRE(one.join(*guest, "a:1", 7).empty());
  REQUIRE(one.join(*leaver, "b:2", 7).empty());
  REQUIRE(one.join(lost, "c:3", 7).empty());
  detail::send(one.trainer, one.host, dismiss_atom_v, std::uint64_t{3},
               std::string{"has failed"});
  detail::send(*leaver, one.host, leave_atom_v, std::uint64_t{2});
  // After that.
  std::ignore = one.stay(lost);
  auto are_gone_with = [&](std::unique_ptr<caf::scoped_actor>& goes) {
    auto result = false;
    CHECK_FALSE(one.end(true, "why"));
    auto end =
        detail::request_within(one.trainer, 20s, one.host, end_atom_v, true,
                               std::string{"why"}, caf::timespan{1h});
    goes.reset();
    std::move(end).receive([&](bool x) { result = x; },
                           [](const caf::error&) {});
    return result;
  };
  SUBCASE("the one that leaves last") {
    guest.reset();
    CHECK(are_gone_with(leaver));
  }
  SUBCASE("the one that stays last") {
    leaver.reset();
    CHECK(are_gone_with(guest));
  }
}

TEST_CASE("the roll waits for so many, whatever timer another one sends, and "
          "then the run has begun") {
  asked_host one{{"same", 3, failure_kind::stop, 2, 64}};
  caf::scoped_actor first{one.system};
  caf::scoped_actor second{one.system};
  auto roll = detail::request_within(one.trainer, std::chrono::seconds{20},
                                     one.host, roll_atom_v, std::uint64_t{1},
                                     caf::timespan{std::chrono::hours{1}});
  compat::anon_send(one.host, expire_atom_v, std::uint64_t{1});
  detail::send(one.trainer, one.host, expire_atom_v, std::uint64_t{0});
  CHECK(one.join(first, "a:1", 7).empty());
  CHECK(contains(one.join(second, "b:2", 7), "the run has begun"));
  std::size_t there = 0;
  std::move(roll).receive(
      [&](const std::vector<process_entry>& x) { there = x.size(); },
      [](const caf::error&) {});
  CHECK(there == 1);
}

TEST_CASE("who is gone has no place any more, and its rank is free") {
  asked_host one{{"same", 1, failure_kind::go_on, 2, 64}};
  auto join = [&](caf::scoped_actor& self, const std::string& name) {
    auto own = caf::actor_cast<replica_actor>(caf::actor{self});
    return one.join(self, {name, 1, "same", {own}, 7});
  };
  caf::scoped_actor first{one.system};
  REQUIRE(join(first, "a:1").empty());
  caf::scoped_actor second{one.system};
  CHECK(contains(join(second, "b:2"), "rank 1 has joined already: a:1"));
  detail::send(one.trainer, one.host, dismiss_atom_v, std::uint64_t{1},
               std::string{"has failed"});
  CHECK(join(second, "b:2").empty());
  // Not by what came later.
  detail::send(one.trainer, one.host, dismiss_atom_v, std::uint64_t{1},
               std::string{"is late"});
  REQUIRE(one.roll().size() == 2);
  CHECK(one.roll()[0].gone == "has failed");
  CHECK(one.stay(first) == "this process has failed");
}

TEST_CASE("who joins, is refused or is lost changes what the trainer looks "
          "at") {
  asked_host one;
  auto seen = one.changes->load();
  auto has_changed = [&] {
    return std::exchange(seen, one.changes->load()) != seen;
  };
  caf::scoped_actor guest{one.system};
  REQUIRE(one.join(guest, "a:1", 7).empty());
  CHECK(has_changed());
  CHECK_FALSE(one.join(guest, "", 7).empty());
  CHECK(has_changed());
  detail::send(one.trainer, one.host, dismiss_atom_v, std::uint64_t{1},
               std::string{"has failed"});
  std::ignore = one.roll();
  CHECK(has_changed());
}
